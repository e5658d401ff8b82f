"""Opening a run for a report."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hubscout.errors import RunError
from hubscout.ranking import Ranking
from hubscout.report import open_run, render


def test_a_reference_in_the_folder_is_found(make_ranking: Callable[..., Ranking], tmp_path: Path) -> None:
    make_ranking(["timm/a", "timm/b"]).save(tmp_path)
    (tmp_path / "reference.json").write_text(json.dumps({"timm/a": 0.9, "timm/b": 0.8}))
    opened = open_run(tmp_path)
    assert opened.reference == {"timm/a": 0.9, "timm/b": 0.8}
    assert "nearly noise" in render(opened)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no"):
        open_run(tmp_path / "missing")
    with pytest.raises(RunError, match="neither a ranking"):
        open_run(tmp_path)
    (tmp_path / "ranking.json").write_text("[]")
    with pytest.raises(RunError, match="not a saved ranking"):
        open_run(tmp_path)
