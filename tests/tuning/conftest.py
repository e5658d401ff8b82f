from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The helpers of this folder are a plain module beside the tests, under a name that no other folder uses.
sys.path.insert(0, str(Path(__file__).parent))

from tuning_networks import make_task

from hubscout.tasks import Task


@pytest.fixture
def task() -> Task:
    return make_task()
