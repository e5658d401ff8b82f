"""`check()`: a look at labelled data before any model is trusted with it. Finds, and changes nothing."""

from hubscout.checking.check_data import check
from hubscout.runs.data_check import DataCheck, Finding, Sample

__all__ = ["DataCheck", "Finding", "Sample", "check"]
