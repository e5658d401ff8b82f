"""`tune()`: a target, teachers and a method become a tuned model."""
