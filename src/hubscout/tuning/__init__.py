"""`tune()`: a model, teachers and a method become a tuned model.

torch, accelerate and the methods are imported when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubscout.lazy_names import lazy_names
from hubscout.tuning.arguments import TuningArguments

if TYPE_CHECKING:
    from hubscout.tuning.methods import METHODS
    from hubscout.tuning.model_soup import soup
    from hubscout.tuning.predictions import Predictions
    from hubscout.tuning.tuned import Tuned
    from hubscout.tuning.tuning_run import tune

_HOMES = {
    "METHODS": "hubscout.tuning.methods",
    "Predictions": "hubscout.tuning.predictions",
    "Tuned": "hubscout.tuning.tuned",
    "soup": "hubscout.tuning.model_soup",
    "tune": "hubscout.tuning.tuning_run",
}

__all__ = ["METHODS", "Predictions", "Tuned", "TuningArguments", "soup", "tune"]

__getattr__ = lazy_names(__name__, _HOMES)
