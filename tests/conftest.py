"""Settings of the whole suite."""

import pytest
from hypothesis import settings

# A busy machine is slow now and then: that is no property of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path_factory, monkeypatch):
    """No test reads or writes the cache of the person who runs it."""
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path_factory.getbasetemp() / "feature-cache"))
