"""Where models come from, and the one `Backbone` that they all become.

Nothing here knows of tasks, metrics or rankings.
"""

from hubscout.file_identifiers import IdentifierFromFile
from hubscout.hubs.backbone import Backbone, Batch, ModelCard, Output, Preprocessing
from hubscout.hubs.hub_registry import HUBS, Hub, list_models, load
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing
from hubscout.hubs.torchvision_compat import prepare_torchvision

__all__ = [
    "HUBS",
    "Backbone",
    "Batch",
    "Hub",
    "Identifier",
    "IdentifierFromFile",
    "ModelCard",
    "ModelEntry",
    "ModelListing",
    "Output",
    "Preprocessing",
    "list_models",
    "load",
    "prepare_torchvision",
]
