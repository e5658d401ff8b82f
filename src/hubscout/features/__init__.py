"""Run a backbone over a task once; cache what comes out.

Nothing here knows of metrics or rankings. `extract` is the way in; torch is imported when it runs. Names are imported
when they are asked for: the processes that decode need few of them, and are waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubscout.lazy_names import lazy_names

if TYPE_CHECKING:
    from hubscout.features.decoded import PreparedPool
    from hubscout.features.extraction import extract
    from hubscout.features.feature_cache import CachedFeatures, FeatureCache
    from hubscout.features.options import ExtractionOptions
    from hubscout.features.result import Extraction

_HOMES = {
    "CachedFeatures": "feature_cache",
    "Extraction": "result",
    "ExtractionOptions": "options",
    "FeatureCache": "feature_cache",
    "PreparedPool": "decoded",
    "extract": "extraction",
}

__all__ = ["CachedFeatures", "Extraction", "ExtractionOptions", "FeatureCache", "PreparedPool", "extract"]

__getattr__ = lazy_names(__name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()})
