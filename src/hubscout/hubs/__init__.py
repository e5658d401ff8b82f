"""Where models come from, and the one `Backbone` that they all become.

Nothing here knows of tasks, metrics or rankings.
"""

from hubscout.hubs.backbone import Backbone, Batch, ModelCard, Output, Preprocessing

__all__ = ["Backbone", "Batch", "ModelCard", "Output", "Preprocessing"]
