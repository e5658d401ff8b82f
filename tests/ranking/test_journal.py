"""What a run folder holds never becomes less: models stay, the same question adds, another one is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hubscout as hs
from hubscout.cli.app import app
from hubscout.errors import InterruptedRunError, RunError
from hubscout.ranking import Ranking, rank
from hubscout.ranking.journal import merge_rankings
from hubscout.runs.events import Event, Started
from hubscout.runs.run_folder import RANKING, SCORES
from hubscout.tasks import Task


def test_the_folder_tells_how_many_samples_are_done(
    array_task: Task, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubscout.ranking.journal.TELL_SECONDS", -1.0)
    ranking = rank(array_task, models["strong"], cache=False, out=tmp_path, batch_size=8)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["event"] == "model-advanced"]
    assert len(told) > 1
    assert {line["model"] for line in told} == {models["strong"]}
    assert [line["n"] for line in told] == sorted({line["n"] for line in told})
    assert told[-1]["n"] == told[-1]["rows"] == ranking[0].n


def test_the_same_question_adds_its_models(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    rank(array_task, [models["strong"], models["blind"]], cache=False, out=tmp_path)
    events: list[Event] = []
    both = rank(array_task, models["weak"], cache=False, out=tmp_path, observer=events.append)
    assert {event.model for event in events if isinstance(event, Started)} == {models["weak"]}
    at_once = rank(array_task, [models["strong"], models["weak"], models["blind"]], cache=False)
    assert both.identifiers == at_once.identifiers
    assert [row.score for row in both] == [row.score for row in at_once]
    assert [row.p_best for row in both] == [row.p_best for row in at_once]
    assert both.complete
    assert Ranking.load(tmp_path) == both


@pytest.mark.parametrize("metrics", [("etran",), ("logme", "etran")])
def test_a_metric_of_the_whole_zoo_is_computed_over_old_and_new(
    array_task: Task, models: dict[str, str], tmp_path: Path, metrics: tuple[str, ...]
) -> None:
    wanted = [models["strong"], models["weak"], models["blind"]]
    at_once = rank(array_task, wanted, metrics=metrics, cache=False)
    rank(array_task, wanted[:1], metrics=metrics, cache=False, out=tmp_path)
    events: list[Event] = []
    added = rank(array_task, wanted[1:], metrics=metrics, cache=False, out=tmp_path, observer=events.append)
    assert {event.model for event in events if isinstance(event, Started)} == set(wanted[1:])
    assert added.identifiers == at_once.identifiers
    assert [row.scores for row in added] == [row.scores for row in at_once]
    assert [row.score for row in added] == [row.score for row in at_once]


def test_repeating_a_finished_ranking_runs_nothing_and_an_interruption_loses_nothing(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    finished = rank(array_task, [models["strong"], models["weak"]], cache=False, out=tmp_path)
    events: list[Event] = []
    again = rank(array_task, [models["strong"], models["weak"]], cache=False, out=tmp_path, observer=events.append)
    assert not [event for event in events if isinstance(event, Started)]
    assert again.rows == finished.rows
    assert again.seconds >= finished.seconds
    wanted = [models["interrupt"], models["strong"], models["weak"], models["blind"]]
    with pytest.raises(InterruptedRunError, match="2 of 4 models are finished and saved in"):
        rank(array_task, wanted, cache=False, out=tmp_path)
    assert Ranking.load(tmp_path).rows == finished.rows
    assert not Ranking.load(tmp_path).complete


CTRL_C_WHILE_PYARROW_IS_IMPORTED = """
import signal
import sys
import numpy as np
from hubscout.ranking import rank
from hubscout.tasks import Task

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "pyarrow.ipc":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
assert "pyarrow" not in sys.modules
sys.meta_path.insert(0, CtrlC())
inputs = np.random.default_rng(0).standard_normal((60, 20)).astype(np.float32)
task = Task.from_arrays(inputs, inputs[:, 0] > 0)
try:
    rank(task, sys.argv[2:], cache=False, out=sys.argv[1])
except KeyboardInterrupt:
    print("after all is saved")
"""


def test_the_table_for_other_tools_is_written_once_and_every_row_at_once(
    array_task: Task, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hubscout.runs import ranking_storage

    tables: list[int] = []
    there: list[int] = []
    monkeypatch.setattr(ranking_storage, "_save_table", lambda ranking, path: tables.append(len(ranking)))

    def look(event: Event) -> None:
        if isinstance(event, Started) and (tmp_path / "run" / RANKING).exists():
            there.append(len(Ranking.load(tmp_path / "run")))

    rank(array_task, list(models.values())[:3], cache=False, out=tmp_path / "run", observer=look)
    assert there == [1, 2]
    assert tables == [3]


def test_ctrl_c_while_the_table_is_saved(models: dict[str, str], tmp_path: Path) -> None:
    names = [models["strong"], models["weak"]]
    command = [sys.executable, "-c", CTRL_C_WHILE_PYARROW_IS_IMPORTED, str(tmp_path / "run"), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "after all is saved" in done.stdout, done.stderr
    assert set(Ranking.load(tmp_path / "run").identifiers) == set(names)
    assert (tmp_path / "run" / SCORES).exists()


def test_failures_of_models_that_are_not_asked_for_stay(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    rank(array_task, [models["strong"], models["broken"]], cache=False, out=tmp_path)
    added = rank(array_task, models["weak"], cache=False, out=tmp_path)
    assert [failure.identifier for failure in added.failures] == [models["broken"]]


def test_growing_subsets_run_again_with_all_models_and_replace_what_was_there_in_the_end(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"progressive": True, "cache": tmp_path / "cache", "out": tmp_path / "run"}
    there = [models["strong"], models["blind"]]
    finished = rank(array_task, there, **options)
    assert finished.stages
    events: list[Event] = []
    same = rank(array_task, there, **options, observer=events.append)
    assert not [event for event in events if isinstance(event, Started)]
    assert same.rows == finished.rows
    assert same.stages == finished.stages
    with pytest.raises(RunError, match=r"growing subsets.*name those that are there as well.*--overwrite"):
        rank(array_task, models["weak"], **options)
    wanted = [models["weak"], *there]
    with pytest.raises(InterruptedRunError, match=r"not saved in .*: the ranking there would lose"):
        rank(array_task, [*wanted, models["interrupt"]], **options)
    assert Ranking.load(tmp_path / "run").rows == finished.rows
    added = rank(array_task, wanted, **options)
    at_once = rank(array_task, wanted, progressive=True, cache=False)
    assert [(row.identifier, row.score, row.n) for row in added] == [
        (row.identifier, row.score, row.n) for row in at_once
    ]
    assert Ranking.load(tmp_path / "run") == added


def test_a_budget_that_is_too_short_for_all_leaves_what_was_there(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    options: dict[str, Any] = {"budget": 0.5, "cache": tmp_path / "cache", "out": tmp_path / "run"}
    finished = rank(array_task, [models["strong"], models["blind"]], **options)
    assert len(finished) == 2
    sleepy = f"python:{models['strong'].split(':')[1]}:sleepy"
    later = rank(array_task, [sleepy, models["strong"], models["blind"]], **options)
    assert "would lose" in later.environment["not_saved"]
    assert Ranking.load(tmp_path / "run").rows == finished.rows


def test_overwriting_destroys_nothing_before_there_is_something_new(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    finished = rank(array_task, [models["strong"], models["weak"]], cache=False, out=tmp_path)
    with pytest.raises(InterruptedRunError):
        rank(array_task, [models["broken"], models["interrupt"]], limit=90, cache=False, out=tmp_path, overwrite=True)
    assert Ranking.load(tmp_path) == finished
    nothing = rank(array_task, models["broken"], limit=90, cache=False, out=tmp_path, overwrite=True)
    assert "no model could be ranked" in nothing.environment["not_saved"]
    assert Ranking.load(tmp_path) == finished
    other = rank(array_task, models["blind"], limit=90, cache=False, out=tmp_path, overwrite=True)
    assert Ranking.load(tmp_path) == other
    assert Ranking.load(tmp_path / "ranking.previous.json") == finished


def test_a_damaged_ranking_is_refused_with_the_way_out(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / RANKING).write_text('{"format": "hubscout-ranking", "versi')
    with pytest.raises(RunError, match=r"is not JSON.*--overwrite"):
        rank(array_task, models["strong"], cache=False, out=tmp_path)
    assert len(rank(array_task, models["strong"], cache=False, out=tmp_path, overwrite=True)) == 1


HOLD = """
import sys, time
from pathlib import Path
from hubscout.ranking.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.open(task="t", settings={}, overwrite=False)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is ranking into `tmp_path/run`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait(20)
    process.stdout.close()


def test_the_second_of_two_is_told_at_once_who_is_there_and_a_kill_frees_the_folder(
    array_task: Task, models: dict[str, str], tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    began = time.monotonic()
    for overwrite in (False, True):
        with pytest.raises(RunError, match=rf"is being written by process {holder.pid} on .+, since 20"):
            rank(array_task, models["strong"], cache=False, out=tmp_path / "run", overwrite=overwrite)
    assert time.monotonic() - began < 10
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(20)
    assert len(rank(array_task, models["strong"], cache=False, out=tmp_path / "run")) == 1
    assert len(rank(array_task, models["weak"], cache=False, out=tmp_path / "run")) == 2  # nor does a finished one hold


def test_another_question_is_refused_before_any_work(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    rank(array_task, models["strong"], cache=False, out=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    events: list[Event] = []
    with pytest.raises(RunError, match=r"blocks is 10 there and 5 here.*another folder.*--overwrite"):
        rank(array_task, models["weak"], blocks=5, cache=False, out=tmp_path, observer=events.append)
    assert not events
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_event_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    from hubscout.ranking.journal import Journal

    journal = Journal(tmp_path)
    journal.open(task="t", settings={}, overwrite=False)
    journal.begin()
    journal.note("model-finished", score=float("nan"))
    journal.note("odd", what=object())
    assert journal.problem is not None
    journal.note("fine")
    lines = [json.loads(line)["event"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines[-1] == "fine"
    journal.close()


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
