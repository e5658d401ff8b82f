"""Whatever stands in a file that the user or an earlier run left, only errors of our own come out."""

from __future__ import annotations

import contextlib
import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubscout.errors import HubscoutError

plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6))
documents = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
common = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def quietly(work: Callable[[], Any]) -> None:
    """Run it; errors of ours are fine, any other ends the test."""
    with contextlib.suppress(HubscoutError):
        work()


@st.composite
def altered(draw: st.DrawFn, document: Any) -> Any:
    """A valid document with one value replaced, removed, or added."""
    changed = copy.deepcopy(document)
    place, key = None, None
    node = changed
    while isinstance(node, dict | list) and node and draw(st.integers(0, 5)) > 0:
        key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else list(range(len(node)))))
        place, node = node, node[key]
    if place is None:
        return draw(documents)
    action = draw(st.sampled_from(["replace", "remove", "add"]))
    if action == "remove":
        del place[key]
    elif action == "add" and isinstance(place, dict):
        place[draw(st.text(max_size=5))] = draw(documents)
    else:
        place[key] = draw(documents)
    return changed


def ranking_record() -> dict[str, Any]:
    from hubscout.ranking import Ranking, Row
    from hubscout.runs.ranking import TaskSummary
    from hubscout.runs.ranking_storage import to_json
    from hubscout.runs.row import Dropped, Failure

    task = TaskSummary(
        name="pets",
        kind="classification",
        modality="image",
        fingerprint="f" * 16,
        target_names=("cat", "dog"),
        rows={"train": 9},
        notes=(),
        source=None,
    )
    rows = tuple(
        Row(
            identifier=name,
            score=score,
            scores={"logme": score},
            standard_error=0.1,
            gain=1.0,
            per_target=(1.0, 2.0),
            block_scores=(score, score + 0.1, score - 0.2),
            block_sizes=(3, 3, 3),
            n=9,
            feature_dim=4,
            params=10,
            dropped=Dropped(n=3, stage=1, leader="a", probability=0.001) if name == "c" else None,
        )
        for name, score in (("a", 0.5), ("b", 0.4), ("c", 0.1))
    )
    failures = (Failure(identifier="d", error="ModelError", reason="no weights"),)
    ranking = Ranking(task=task, metrics=("logme",), rows=rows, failures=failures)
    return json.loads(json.dumps(to_json(ranking)))


RANKING = ranking_record()


@common
@given(altered(RANKING))
def test_a_saved_ranking(record: Any) -> None:
    from hubscout.ranking import Ranking

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ranking.json").write_text(json.dumps(record))
        quietly(lambda: str(Ranking.load(folder)))


ABOUT = {"description": {"model": "m", "inputs": "t"}, "layer": "", "shard_rows": [3, 2], "samples_per_second": 3.5}
RECORD = {
    "file": "0-a.safetensors",
    "size_bytes": 10,
    "sha256": "a" * 64,
    "arrays": ["rows"],
    "skipped": [1],
    "probe": "b",
}


@common
@given(altered(ABOUT), altered(RECORD))
def test_the_records_of_the_cache(about: Any, record: Any) -> None:
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.features.storage import About, ShardRecord

    with tempfile.TemporaryDirectory() as folder:
        entry = Path(folder) / "m-key"
        entry.mkdir()
        (entry / "about.json").write_text(json.dumps(about))
        (entry / "00000.json").write_text(json.dumps(record))
        quietly(lambda: About.decode((entry / "about.json").read_bytes()))
        quietly(lambda: ShardRecord.decode((entry / "00000.json").read_bytes()))
        assert len(FeatureCache(folder).entries()) == 1


@common
@given(altered({"cat": 0.5, "dog": 0.25}) | documents, st.sampled_from([".json", ".csv"]))
def test_known_results(record: Any, ending: str) -> None:
    from hubscout.runs.ranking_storage import read_reference

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"reference{ending}"
        path.write_text(json.dumps(record))
        quietly(lambda: read_reference(path))


@common
@given(st.text(max_size=60) | st.just("model,accuracy\na,0.5\nb,x\n"))
def test_known_results_in_a_table(text: str) -> None:
    from hubscout.runs.ranking_storage import read_reference

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.csv"
        path.write_bytes(text.encode("utf-8", "replace"))
        quietly(lambda: read_reference(path))


TRIAL = {
    "run": {"task": "t", "options": {}},
    "model": "m",
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "validation": 0.5,
    "test": 0.5,
    "seconds": 1.0,
    "failure": "",
}


@common
@given(st.lists(altered(TRIAL), max_size=3))
def test_trials_of_a_reference_search(records: list[Any]) -> None:
    from hubscout.tuning.reference_search import Trial
    from hubscout.tuning.trials import TrialJournal

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        quietly(lambda: TrialJournal(path, Trial, "search", {}, task="t"))


COMPARED = {
    "run": {"task": "t", "options": {}},
    "method": "kd",
    "seed": 0,
    "validation": 0.5,
    "test": 0.5,
    "seconds": 1.0,
}


@common
@given(st.lists(altered(COMPARED), max_size=3))
def test_trials_of_a_comparison(records: list[Any]) -> None:
    from hubscout.tuning.method_comparison import Trial
    from hubscout.tuning.trials import TrialJournal

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        quietly(lambda: TrialJournal(path, Trial, "comparison", {}, task="t"))


@common
@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda data: b"\x89PNG\r\n\x1a\n" + data))
def test_image_folders(content: bytes) -> None:
    from hubscout.tasks import open_task

    with tempfile.TemporaryDirectory() as folder:
        for name in ("cat", "dog"):
            for number in range(4):
                place = Path(folder) / name / f"{number}.png"
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(content + bytes([number]))
        (Path(folder) / "cat" / "notes.txt").write_bytes(content)

        def read() -> None:
            task = open_task(folder)
            for row in range(len(task.train)):
                quietly(lambda row=row: task.train.inputs[row])  # type: ignore[misc]

        quietly(read)


names = st.text(
    alphabet=st.characters(blacklist_characters="/\x00", blacklist_categories=["Cs"]), min_size=1, max_size=8
)


@common
@given(st.lists(st.tuples(names, names), max_size=6))
def test_folders_of_any_names(places: list[tuple[str, str]]) -> None:
    from hubscout.tasks import open_task

    with tempfile.TemporaryDirectory() as folder:
        for first, second in places:
            with contextlib.suppress(OSError):  # names such as "..", or longer than the file system allows
                place = Path(folder) / first / second
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(b"x")
        quietly(lambda: open_task(folder))


@pytest.fixture(scope="module")
def statistics_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from hubscout.evidence import Statistics

    path = tmp_path_factory.mktemp("statistics") / "a.safetensors"
    Statistics("classification", ["a", "b"]).update(np.eye(4), np.array([0, 1, 1, 0])).save(path)
    return path.read_bytes()


@common
@given(st.data())
def test_saved_statistics(statistics_bytes: bytes, data: st.DataObject) -> None:
    from hubscout.evidence import Statistics

    content = bytearray(statistics_bytes)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        path.write_bytes(bytes(content[:cut] if data.draw(st.booleans()) else content))
        quietly(lambda: Statistics.load(path))


@common
@given(st.binary(max_size=80), st.sampled_from(["a.pt", "a.safetensors", "a.bin", "a.onnx"]))
def test_checkpoints(content: bytes, name: str) -> None:
    from hubscout.hubs import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        scheme = "onnx" if name.endswith("onnx") else "file"
        quietly(lambda: load(f"{scheme}:{path}?arch=resnet18"))


@common
@given(st.binary(max_size=80))
def test_checkpoints_of_tuning(content: bytes) -> None:
    from hubscout.tuning.tuned import Tuned

    with tempfile.TemporaryDirectory() as folder:
        for name in ("hubscout.json", "record.json", "tuned.json", "model.safetensors", "config.json"):
            (Path(folder) / name).write_bytes(content)
        quietly(lambda: Tuned.load(folder))


@common
@given(documents)
def test_the_folder_of_a_run_in_a_report(record: Any) -> None:
    from hubscout.runs.tuning_record import find_tuning_runs

    with tempfile.TemporaryDirectory() as folder:
        for name in ("tuning.json", "record.json", "tuned.json", "trials.jsonl", "metrics.jsonl", "curves.jsonl"):
            (Path(folder) / name).write_text(json.dumps(record) + "\n")
        quietly(lambda: find_tuning_runs(Path(folder)))


@common
@given(st.lists(st.text(max_size=12), max_size=4))
def test_settings_and_lists_of_models(lines: list[str]) -> None:
    from hubscout.cli.tune import read_settings
    from hubscout.cli.values import split_models

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "models.txt"
        path.write_bytes("\n".join(lines).encode("utf-8", "replace"))
        quietly(lambda: split_models([f"@{path}"]))
    quietly(lambda: read_settings(lines))
