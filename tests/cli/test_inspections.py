"""hubscout doctor"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_doctor(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = hubscout("doctor", "--json")
    record = json.loads(result.stdout)
    states = {check["name"]: check["state"] for check in record["checks"]}
    assert states["hubscout"] == "ok"
    assert states["torch"] == "ok"
    assert states["feature cache"] == "ok"
    assert record["environment"]["packages"]["numpy"]
    assert "processor" in hubscout("doctor").stdout


def test_doctor_says_what_is_missing_and_how_to_get_it(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubscout.cli import inspections

    there, gone = inspections.package_versions, {"timm", "scipy"}
    monkeypatch.setattr(inspections, "package_versions", lambda names: there(tuple(set(names) - gone)))
    result = hubscout("doctor", "--json")
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert found["hubscout"]["state"] == "broken"
    assert found["hubscout[vision]"]["state"] == "missing"
    assert "pip install 'hubscout[vision]'" in found["hubscout[vision]"]["details"]


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_doctor_says_how_models_run_faster(hubscout: Run, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    result = hubscout("doctor", "--json")
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "acceleration"]
    assert check["state"] == "missing"
    assert "pip install 'hubscout[onnx]'" in check["details"]


def test_doctor_finds_a_cache_that_cannot_be_made(
    hubscout: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path / "file"))
    record = json.loads(hubscout("doctor", "--json").stdout)
    assert next(c for c in record["checks"] if c["name"] == "feature cache")["state"] == "broken"


def test_doctor_knows_a_cache_behind_a_url(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBSCOUT_CACHE", "memory://me:s3cret@bucket")
    record = json.loads(hubscout("doctor", "--json").stdout)
    found = next(c for c in record["checks"] if c["name"] == "feature cache")
    assert (found["state"], found["details"]) == ("ok", "memory://***@bucket/features, 0 MB used")
