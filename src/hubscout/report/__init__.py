"""What a person looks at, made from saved results alone."""
