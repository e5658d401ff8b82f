import json
import os
import platform
import shutil
import threading
import time
from pathlib import Path

import psutil
import pytest

from hubscout.errors import RunError
from hubscout.serve.run_index import Kept, RunIndex
from hubscout.serve.served_folder import NotHereError


def write_events(folder: Path, *events: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def test_runs_are_found_with_what_they_say(runs: Path, zoo: str) -> None:
    library = RunIndex(runs)
    assert library.names() == ["first", "team/second"]
    first = library.summary("first")
    assert (first.kind, first.state, first.task) == ("ranking", "finished", "colours")
    assert (first.models, first.unranked, first.metric) == (2, "1 failed", "logme")
    assert first.best == f"{zoo}:colours".rpartition(":")[2]
    assert first.score == pytest.approx(json.loads((runs / "first" / "ranking.json").read_text())["rows"][0]["score"])
    assert not first.stoppable


def test_a_ranking_that_explains_nothing_has_no_best(runs: Path) -> None:
    path = runs / "first" / "ranking.json"
    saved = json.loads(path.read_text())
    saved["rows"] = [{**row, "odds": -1.0} for row in saved["rows"]]
    beats = {"metric": "accuracy", "value": 0.9, "low": 0.6, "high": 1.0, "guess": 0.5}
    saved["rows"][0]["expected"] = [beats]
    path.write_text(json.dumps(saved))
    assert RunIndex(runs).summary("first").best == "too few samples to tell"
    saved["rows"] = [{**row, "expected": [{**beats, "low": 0.4}]} for row in saved["rows"]]
    path.write_text(json.dumps(saved))
    assert RunIndex(runs).summary("first").best == "none explains the labels"


def test_a_search_wants_every_word(runs: Path) -> None:
    path = runs / "first" / "ranking.json"
    saved = json.loads(path.read_text())
    saved["environment"]["started"] = "2020-01-01T00:00:00"  # both may have begun in the same second
    path.write_text(json.dumps(saved))
    library = RunIndex(runs)
    assert [run.name for run in library.summaries()] == ["team/second", "first"]
    assert [run.name for run in library.summaries("TEAM finished")] == ["team/second"]
    assert library.summaries("team tuning") == []


def test_a_run_folder_itself_is_refused_with_advice(runs: Path) -> None:
    with pytest.raises(RunError, match="folder that contains it"):
        RunIndex(runs / "first")


def test_a_process_that_lives_makes_a_run_running(runs: Path) -> None:
    library = RunIndex(runs)
    began = {"event": "started", "time": time.time(), "models": ["a"], "pid": os.getpid(), "host": platform.node()}
    write_events(runs / "going", began)
    assert library.summary("going").state == "running"
    assert library.summaries()[0].name == "going"
    dead = {**began, "time": psutil.Process().create_time() - 1000}  # then this number belonged to another process
    write_events(runs / "gone", dead, {"event": "model-started", "model": "a"})
    assert library.summary("gone").state == "interrupted"
    write_events(runs / "stopped", dead, {"event": "interrupted"})
    assert library.summary("stopped").state == "interrupted"
    write_events(runs / "over", dead, {"event": "finished"})
    assert library.summary("over").state == "finished"


def test_elsewhere_the_time_of_the_last_line_decides(runs: Path) -> None:
    library = RunIndex(runs)
    write_events(runs / "far", {"event": "started", "time": time.time(), "pid": 1, "host": "another machine"})
    assert library.summary("far").state == "running"
    long_ago = time.time() - 3600
    os.utime(runs / "far" / "events.jsonl", (long_ago, long_ago))
    assert library.summary("far").state == "interrupted"


def test_tuning_runs(runs: Path) -> None:
    library = RunIndex(runs)
    folder = runs / "tuned"
    folder.mkdir()
    lines = [{"event": "validation", "step": 5, "epoch": 1.0, "metrics": {"accuracy": 0.5}, "best": True}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = library.summary("tuned")
    assert (found.kind, found.state, found.score, found.metric) == ("tuning", "running", 0.5, "accuracy, validation")
    with (folder / "metrics.jsonl").open("a") as file:
        measure = {"test": {"accuracy": {"value": 0.75, "low": 0.7, "high": 0.8}}}
        file.write(json.dumps({"event": "result", "step": 5, "metrics": measure}) + "\n")
    found = library.summary("tuned")
    assert (found.state, found.score, found.metric) == ("finished", 0.75, "accuracy, test")
    assert "accuracy" in library.report("tuned")


def test_a_tuning_is_running_as_long_as_its_process(runs: Path) -> None:
    library = RunIndex(runs)
    (runs / "tuned").mkdir()
    path = runs / "tuned" / "metrics.jsonl"
    long_ago = time.time() - 3600
    started = {"event": "started", "time": time.time(), "step": 0, "steps": 9, "batch_size": 4, "host": platform.node()}
    for pid, state in ((os.getpid(), "running"), (2**22 + 1, "interrupted")):
        path.write_text(json.dumps({**started, "pid": pid}) + "\n")
        assert library.summary("tuned").state == state  # also right after something was written
        os.utime(path, (long_ago, long_ago))
        assert library.summary("tuned").state == state  # a test split may take an hour


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"rows": 3, "task": 7, "failures": {}}', '{"rows": [1, {}]}', "\udcff"]
)
def test_broken_files_do_not_hide_the_other_runs(runs: Path, text: str) -> None:
    (runs / "broken").mkdir()
    (runs / "broken" / "ranking.json").write_text(text, errors="surrogateescape")
    library = RunIndex(runs)
    assert {run.name for run in library.summaries()} == {"broken", "first", "team/second"}
    with pytest.raises(RunError):
        library.report("broken")


def test_links_are_neither_listed_nor_opened(runs: Path, tmp_path: Path) -> None:
    outside = shutil.copytree(runs / "first", tmp_path / "outside")
    (runs / "link").symlink_to(outside)
    (runs / "linked-file").mkdir()
    (runs / "linked-file" / "ranking.json").symlink_to(outside / "ranking.json")
    library = RunIndex(runs)
    assert library.names() == ["first", "team/second"]
    for name in ("link", "linked-file", "../outside"):
        with pytest.raises(NotHereError):
            library.report(name)
    (runs / "first" / "reference.csv").symlink_to(outside / "ranking.json")
    with pytest.raises(RunError, match="links"):
        library.report("first")


def test_a_report_is_made_once_for_all_who_ask_and_again_when_files_change(runs: Path) -> None:
    library = RunIndex(runs)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(library.report("first"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(page is found[0] for page in found)
    (runs / "first" / "reference.csv").write_text("model,accuracy\nnothing,0.5\n")
    assert library.report("first") is not found[0]


def test_what_cannot_be_made_is_tried_again() -> None:
    kept = Kept(1)

    def fail() -> str:
        raise RunError("cannot be made")

    with pytest.raises(RunError, match="cannot be made"):
        kept.get("a", fail)
    assert kept.get("a", lambda: "made") == "made"
    assert kept.get("a", fail) == "made"
    kept.get("b", lambda: "other")
    assert kept.get("a", lambda: "again") == "again"
