import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import hubscout.evidence.array_backend as arrays

settings.register_profile(
    "hubscout", deadline=None, max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hubscout")


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.fixture
def tensors_stay_tensors(monkeypatch):
    """Run the code for accelerators on tensors of this machine's CPU."""
    monkeypatch.setattr(arrays, "HOST_TENSORS_AS_NUMPY", False)
