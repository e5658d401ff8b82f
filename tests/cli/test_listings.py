"""hubscout models"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_models(hubscout: Run) -> None:
    record = json.loads(hubscout("models", "pypi/efficientnet*", "--max-params", "5M", "--json", "-q").stdout)
    assert [entry["identifier"] for entry in record["models"]] == ["pypi/efficientnet-lite0"]
    assert "pypi/efficientnet-lite2" in hubscout("models", "pypi/*").stdout
    nothing = hubscout("models", "pypi/nothing*")
    assert nothing.exit_code == 0
    assert "No model matches" in nothing.stderr
    unknown = hubscout("models", "nohub/*")
    assert unknown.exit_code == 2
    assert "Unknown hub 'nohub'" in unknown.stderr


def test_columns_of_which_nothing_is_known_are_left_out(hubscout: Run) -> None:
    listed = hubscout("models", "pypi/efficientnet*").stdout
    assert "licence" in listed
    assert "downloads" not in listed
    assert "FLOPs" not in listed
