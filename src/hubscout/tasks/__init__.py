"""Labelled data: what the inputs are, what the labels are, how it is split.

Nothing here knows of models, features or metrics.
"""

from hubscout.tasks.task import Kind, Modality, Split, Task

__all__ = ["Kind", "Modality", "Split", "Task"]
