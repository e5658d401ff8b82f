"""What a run leaves on disk, and what it says while it works: files, records, events and how a terminal shows them.

Nothing here imports torch, opens a model or computes a score of one.
"""
