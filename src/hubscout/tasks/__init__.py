"""Labelled data: what the inputs are, what the labels are, how it is split.

Nothing here knows of models, features or metrics, and pandas, Pillow and datasets are imported only when data needs
them.
"""

from hubscout.tasks.opening import open_task
from hubscout.tasks.task import Kind, Modality, Split, Task

__all__ = ["Kind", "Modality", "Split", "Task", "open_task"]
