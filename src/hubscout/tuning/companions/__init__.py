"""What combines with every method: penalties on weights or features, adapters, freezing, the head's first weights."""
