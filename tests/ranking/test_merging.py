from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import hubscout as hs
from hubscout.cli.app import app
from hubscout.errors import RunError
from hubscout.ranking.merging import merge_rankings
from hubscout.tasks import Task


def names(zoo: str) -> list[str]:
    return [f"python:{zoo}:look?first={first}&last={first + 4}" for first in (0, 4, 9)]


def test_two_runs_merged_are_the_run_of_both(zoo: str, array_task: Task, tmp_path: Path) -> None:
    models = names(zoo)
    together = hs.rank(array_task, models)
    hs.rank(array_task, [*models[:2], f"python:{zoo}:broken"], out=tmp_path / "a")
    hs.rank(array_task, models[1:], out=tmp_path / "b")
    result = CliRunner().invoke(app, ["merge", *(str(tmp_path / name) for name in "ab"), "--out", str(tmp_path / "c")])
    assert result.exit_code == 0, result.output
    merged = hs.Ranking.load(tmp_path / "c")
    assert merged.identifiers == together.identifiers
    assert [row.p_best for row in merged] == pytest.approx([row.p_best for row in together])
    assert len(merged.failures) == 1
    again = CliRunner().invoke(app, ["merge", *(str(tmp_path / name) for name in "ab"), "--out", str(tmp_path / "c")])
    assert again.exit_code == 2


def test_other_questions_are_not_merged(zoo: str, array_task: Task) -> None:
    models = names(zoo)
    one = hs.rank(array_task, models[:1])
    with pytest.raises(RunError, match="limit is 100"):
        merge_rankings([one, hs.rank(array_task, models[1:], limit=100)])
    with pytest.raises(RunError, match="not this data"):
        merge_rankings([one, hs.rank(array_task.subset(300), models[1:])])
    with pytest.raises(RunError, match="Two rankings or more"):
        merge_rankings([one])
