"""Transferability scores, one a file, in one registry.

A metric sees arrays (features, source logits, targets) and knows nothing of models or tasks.
"""
