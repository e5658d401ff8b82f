"""Run a backbone over a task once; cache what comes out.

Nothing here knows of metrics or rankings. `extract` is the way in; torch is imported when it runs.
"""

from hubscout.features.decoded import PreparedPool
from hubscout.features.extraction import extract
from hubscout.features.feature_cache import CachedFeatures, FeatureCache
from hubscout.features.options import ExtractionOptions
from hubscout.features.result import Extraction

__all__ = ["CachedFeatures", "Extraction", "ExtractionOptions", "FeatureCache", "PreparedPool", "extract"]
