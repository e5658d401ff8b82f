from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hubscout.errors import RunError
from hubscout.runs.files import read_lines
from hubscout.runs.tuning_record import Curves, TuningRecord, read_tuning, tuning_run, write_tuning

RECORD = TuningRecord(
    task="pets",
    task_fingerprint="f" * 16,
    kind="classification",
    model="timm/small",
    teachers=("timm/large",),
    method="b-tuning",
    metrics={"test": {"accuracy": (0.9, 0.85, 0.95)}},
    best_step=8,
    steps=10,
    notes=("a note, ä",),
    sizes={"train": 100},
    arguments={"seed": 3, "epochs": 1.5},
)
CURVES = [{"event": "step", "step": 1, "loss": 2.0}]


def spoil(folder: Path, **changes: Any) -> None:
    path = folder / "tuning.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_tuning(tmp_path / "run", RECORD, CURVES)
    assert read_tuning(tmp_path / "run") == RECORD
    assert read_lines(tmp_path / "run" / "metrics.jsonl") == CURVES
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["metrics.jsonl", "tuning.json"]


def test_metrics_of_the_network_in_the_folder_are_the_merged_ones(tmp_path: Path) -> None:
    write_tuning(tmp_path, RECORD, [])
    spoil(tmp_path, merged_metrics={"test": {"accuracy": {"value": 0.7, "low": 0.6, "high": 0.8}}})
    assert read_tuning(tmp_path).saved_metrics == {"test": {"accuracy": (0.7, 0.6, 0.8)}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 99}, "version 99.*reads version 2"),
        ({"version": True}, "version True"),
        ({"format": 1}, "not a saved tuning"),
        ({"steps": "many"}, "steps must be int, not 'many'"),
        ({"teachers": "timm/large"}, "teachers must be"),
        ({"metrics": {"test": {"accuracy": 0.9}}}, "metrics cannot be read"),
        ({"metrics": {"test": {"accuracy": {"value": "x", "low": 0, "high": 1}}}}, "must be float, not 'x'"),
        ({"arguments": 3}, "arguments must be"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    write_tuning(tmp_path, RECORD, [])
    spoil(tmp_path, **changes)
    with pytest.raises(RunError, match=words) as raised:
        read_tuning(tmp_path)
    assert str(tmp_path / "tuning.json") in str(raised.value)


def test_what_is_announced_is_for_those_who_watch_and_no_part_of_the_curves(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "metrics.jsonl")
    curves.announce(time=1.0, step=0, steps=10, batch_size=4)
    curves.add("step", step=1, parts={"task": 1.0})
    assert [line["event"] for line in read_lines(curves.path)] == ["started", "step"]
    assert [line["event"] for line in curves.lines] == ["step"]
    assert tuning_run("run", TuningRecord(), read_lines(curves.path)).losses == tuple(curves.lines)
    Curves().announce(time=1.0)  # without a folder nobody watches
