"""Is a ranking any good: rank correlation, relative performance, reference fine-tuning."""
