from __future__ import annotations

import importlib

import pytest

from hubscout.runs.hooks import HOMES


@pytest.mark.parametrize("name", HOMES)
def test_every_hook_is_there(name: str) -> None:
    assert callable(getattr(importlib.import_module(HOMES[name]), name))
