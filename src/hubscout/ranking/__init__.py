"""`rank()`: features and metrics become a `Ranking` with order, doubt, cost and teachers."""
