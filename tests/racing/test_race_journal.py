"""The best so far can be used whenever a race is stopped, and the same command goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from racing_networks import QUICK, names

from hubscout.errors import RunError
from hubscout.racing import race
from hubscout.racing.race_journal import RaceJournal, evidence_seconds, put_in_place
from hubscout.racing.rungs import Clock
from hubscout.runs.events import silent
from hubscout.tasks import Task
from hubscout.tuning import Tuned


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "weights").write_text("new")
    return tmp_path / "source"


def test_a_copy_is_put_in_the_place_of_the_one_before(source: Path, tmp_path: Path) -> None:
    for text in ("old", "new"):
        (source / "weights").write_text(text)
        put_in_place(source, tmp_path / "winner")
        assert (tmp_path / "winner" / "weights").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "winner"]


@pytest.mark.parametrize("killed_at", range(6))
def test_a_kill_at_any_call_leaves_one_whole_copy(
    source: Path, tmp_path: Path, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that changes the disk may be the last one."""
    put_in_place(source, tmp_path / "winner")
    (source / "weights").write_text("newer")
    calls = 0

    class KilledError(BaseException):
        pass

    def counted(function):
        def call(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls > killed_at:
                raise KilledError
            return function(*arguments, **options)

        return call

    import hubscout.racing.race_journal as module

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted(Path.rename))
        patched.setattr(module.shutil, "rmtree", counted(module.shutil.rmtree))
        patched.setattr(module.shutil, "copytree", counted(module.shutil.copytree))
        with suppress(KilledError):
            put_in_place(source, tmp_path / "winner")
    module.restore(tmp_path / "winner")
    assert (tmp_path / "winner" / "weights").read_text() in ("new", "newer")
    put_in_place(source, tmp_path / "winner")
    assert (tmp_path / "winner" / "weights").read_text() == "newer"


SCRIPT = """
import numpy as np, sys
from hubscout.racing import race
from hubscout.tasks import Task
draw = np.random.default_rng(0)
inputs = draw.normal(size=(600, 6)).astype(np.float32)
task = Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")
race(task, sys.argv[2].split(","), out=sys.argv[1], deploy=sys.argv[3], learning_rate=0.05, **{options})
"""


@pytest.mark.slow
def test_kill_9_at_any_time(task: Task, networks: Path, tmp_path: Path) -> None:
    """A race that is killed again and again ends as one that is not, and what it had in the meantime could be used."""
    models = names(networks, "width=8&pace=0.01", "width=32&pace=0.01")
    deploy = names(networks, "width=6&seed=2&pace=0.01")[0]
    whole = race(task, models, out=tmp_path / "whole", deploy=deploy, learning_rate=0.05, **QUICK)
    command = [
        sys.executable,
        "-c",
        SCRIPT.replace("{options}", repr(QUICK)),
        str(tmp_path / "cut"),
        ",".join(models),
        deploy,
    ]
    drawn = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(command, env={**os.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines, before = tmp_path / "cut" / "race.jsonl", time.monotonic()
        grown = lines.stat().st_size if lines.exists() else 0
        while process.poll() is None and time.monotonic() - before < 120:
            if lines.exists() and lines.stat().st_size > grown:
                break
            time.sleep(0.05)
        time.sleep(drawn.uniform(0.0, 3.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        winner = tmp_path / "cut" / "winner"
        if winner.exists():
            usable = Tuned.load(winner, allow_code=True)
            assert len(usable.predict(list(task.test.inputs))) == len(task.test)
    resumed = race(task, models, out=tmp_path / "cut", deploy=deploy, learning_rate=0.05, **QUICK)
    assert resumed.winner == whole.winner
    assert {(look.arm, look.rung): look.metric for look in resumed.looks} == {
        (look.arm, look.rung): look.metric for look in whole.looks
    }
    assert resumed.deployed is not None
    assert resumed.deployed.metric("test") == whole.deployed.metric("test")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("identity", "another"),
        ("identity", ["a", "b"]),
        ("identity", {"task": "t"}),
        ("identity", {"task": "t", "models": 3}),
        ("identity", {"task": "t", "models": [["a"]]}),
    ],
)
def test_a_damaged_start_of_a_race_is_another_race(field: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "race.jsonl").write_text(json.dumps({"event": "race", field: value, "elapsed": 0.0}) + "\n")
    with pytest.raises(RunError, match="holds another race"):
        RaceJournal(tmp_path, Clock(None, 0.0), silent).resume({"task": "t", "models": ["a"]}, ["a"])


@pytest.mark.parametrize("value", ["long", [1], {"a": 1}, True])
def test_damaged_times_of_a_race_are_not_compared(value: object, tmp_path: Path) -> None:
    line = {"event": "race", "budget": value, "evidence_seconds": value, "whole_evidence": False}
    (tmp_path / "race.jsonl").write_text(json.dumps(line) + "\n")
    assert evidence_seconds(tmp_path, budget=60.0, wanted=15.0) == (15.0, False)


def test_a_model_that_was_deployed_before_another_is_deployed_anew(tmp_path: Path) -> None:
    """The folder holds the other one by then."""
    journals = [RaceJournal(tmp_path, Clock(None, 0.0), silent, model) for model in ("a", "b")]
    for journal in journals:
        for model in ("a", "b"):
            journal.record.take({"event": "stage", "stage": "deploy", "model": model, "elapsed": 1.0})
    assert [journal.stages_done for journal in journals] == [{}, {"deploy": "b"}]
