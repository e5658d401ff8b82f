"""hubscout evaluate"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_evaluate(hubscout: Run, run_folder: Path, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text(f"model,accuracy\n{zoo}:red,0.5\n{zoo}:colours,0.9\nother,0.7\n")
    result = hubscout("evaluate", run_folder, tmp_path / "known.csv", "--json")
    record = json.loads(result.stdout)
    assert record["metrics"]["logme"]["weighted_tau"] == 1.0
    assert "params" in record["baselines"]
    assert "Not in" in result.stderr
    table = hubscout("evaluate", run_folder, tmp_path / "known.csv").stdout
    assert "weighted tau" in table
    assert "nearly noise" in table
    (tmp_path / "errors.json").write_text(json.dumps({f"{zoo}:red": 0.5, f"{zoo}:colours": 0.9}))
    lower = hubscout("evaluate", run_folder, tmp_path / "errors.json", "--lower-is-better", "--json")
    assert json.loads(lower.stdout)["metrics"]["logme"]["weighted_tau"] == -1.0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "model,accuracy\nx,1\n", "has 0 of the 2 ranked models"),
        ("a.csv", "who,what\nx,1\n", "needs a column model"),
        ("a.csv", "model,accuracy\nx,good\n", "not a number"),
        ("a.csv", "model,accuracy\nx,1\nx,2\n", "names x twice"),
        ("a.csv", "model,accuracy\nx,nan\n", "finite numbers"),
        ("a.json", "[1, 2]", "must be an object"),
        ("a.json", "{", "not JSON"),
        ("a.csv", "", "no header"),
        ("none.csv", None, "there is no file"),
    ],
)
def test_references_that_cannot_be_used(
    hubscout: Run, run_folder: Path, tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    result = hubscout("evaluate", run_folder, tmp_path / name)
    assert result.exit_code == 2
    assert words in result.stderr
