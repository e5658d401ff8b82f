import re
from typing import Any

import pytest

from hubscout.serve.progress import STEPS_KEPT, Progress

EVENTS: list[dict[str, Any]] = [
    {"event": "started", "models": ["timm/a", "timm/b", "timm/c", "timm/d"], "taken_over": ["timm/d"]},
    {"event": "model-started", "model": "timm/a", "time": 1.0},
    {"event": "model-finished", "model": "timm/a", "score": 0.25, "seconds": 3.0},
    {"event": "model-started", "model": "timm/b", "time": 5.0},
    {"event": "model-failed", "model": "timm/b", "error": "ModelError", "reason": "<i>no</i>"},
    {"event": "model-started", "model": "timm/c", "time": 6.0},
]


def after(events: list[dict[str, Any]]) -> Progress:
    progress = Progress()
    for event in events:
        progress.take("events.jsonl", event)
    return progress


def states(progress: Progress) -> dict[str, str]:
    return dict(re.findall(r'title="timm/(\w)">.*?class="state (\w+)"', progress.markup()))


def test_events_lead_to_states() -> None:
    progress = after(EVENTS)
    assert states(progress) == {"a": "done", "b": "failed", "c": "running", "d": "done"}
    assert progress.status == "2 of 4 models done, 1 failed; now c"
    assert '<progress value="3" max="4"' in progress.markup()
    assert "ModelError: &lt;i&gt;no&lt;/i&gt;" in progress.markup()
    assert after([]).markup().count("Nothing has been written yet") == 1


def test_models_over_the_limits_have_not_failed() -> None:
    over = {"event": "model-failed", "model": "timm/b", "error": "OverLimitError", "reason": "30M parameters"}
    late = {"event": "model-failed", "model": "timm/c", "error": "BudgetSpent", "reason": "no time"}
    progress = after([*EVENTS[:3], over, late])
    assert progress.status == "2 of 4 models done, 1 not reached, 1 over the limits"
    assert '<span class="state over the limits">over the limits</span>' in progress.markup()
    assert "OverLimitError" not in progress.markup()
    assert "failed" not in progress.markup()


def facts(progress: Progress) -> dict[str, str]:
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", progress.markup())
    return {name: re.sub("<.*?>", "", value) for name, value in found}


def test_the_header_of_a_ranking_moves_with_time_and_models(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [{**EVENTS[0], "time": 100.0}, *EVENTS[1:]]
    monkeypatch.setattr("time.time", lambda: 160.0)
    progress = after(events)
    # Two models since the start, one left; the fourth was finished before.
    assert facts(progress) == {
        "Elapsed": "1 min",
        "Time left": "about 30 s",
        "Samples done": "–",
        "Best so far": "a, 0.2500",
    }
    monkeypatch.setattr("time.time", lambda: 220.0)
    progress.take("events.jsonl", {"event": "model-finished", "model": "timm/c", "score": 0.5, "n": 1200, "seconds": 1})
    assert facts(progress)["Elapsed"] == "2 min"
    assert facts(progress)["Samples done"] == "1,200"
    assert facts(progress)["Best so far"] == "c, 0.5000"
    progress.halt()
    assert facts(progress) == {}


def test_a_model_that_is_running_counts_by_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 160.0)
    progress = after([{**EVENTS[0], "time": 100.0}, *EVENTS[1:]])
    progress.take("events.jsonl", {"event": "model-advanced", "model": "timm/c", "n": 300, "rows": 600})
    assert facts(progress)["Samples done"] == "300"
    assert facts(progress)["Time left"] == "about 12 s"  # half a model of two and a half
    assert '<progress value="3.5" max="4"' in progress.markup()


def test_the_header_of_a_tuning_moves_with_time_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 130.0)
    progress = Progress()
    started = {"event": "started", "time": 100.0, "step": 10, "steps": 100, "batch_size": 8}
    progress.take("metrics.jsonl", {"event": "validation", "step": 40, "metrics": {"accuracy": 0.75}})
    assert facts(progress)["Elapsed"] == "–"
    progress.take("metrics.jsonl", started)
    assert facts(progress) == {
        "Elapsed": "30 s",
        "Time left, at most": "about 1 min",
        "Steps": "40 of 100",
        "Samples done": "320",
        "Best so far": "accuracy 75.0%",
    }


def test_what_was_running_when_the_process_went_is_unfinished() -> None:
    progress = after(EVENTS)
    progress.halt()
    assert states(progress)["c"] == "unfinished"
    assert "now" not in progress.status
    assert "<progress" not in progress.markup()


def test_a_ranking_that_begins_again_forgets() -> None:
    assert after([*EVENTS, EVENTS[0]]).status == "1 of 4 models done"


def test_curves_of_a_tuning_are_drawn_and_thinned() -> None:
    progress = Progress()
    for step in range(1, 4 * STEPS_KEPT + 1):
        progress.take("metrics.jsonl", {"event": "step", "step": step, "parts": {"task": 1.0 / step, "teachers": 0.5}})
    progress.take("metrics.jsonl", {"event": "validation", "step": step, "epoch": 1.0, "metrics": {"accuracy": 0.5}})
    assert len(progress.curves[""]) <= 2 * STEPS_KEPT + 1
    assert progress.curves[""][-1]["event"] == "validation"
    markup = progress.markup()
    assert "Validation accuracy" in markup
    assert "Parts of the loss" in markup
    assert progress.status == f"1 run, step {4 * STEPS_KEPT}"


def test_nonsense_is_passed_over() -> None:
    nonsense: list[dict[str, Any]] = [{}, {"event": 3}, {"event": "model-finished", "model": "x", "score": "high"}]
    assert "x" in after(nonsense).markup()
    progress = Progress()
    progress.take("metrics.jsonl", {"event": "step", "parts": None})
    progress.take("metrics.jsonl", {"event": "validation", "metrics": {"accuracy": None}})
    assert "The first numbers will appear soon." in progress.markup()
    progress.halt()
    assert "No step of training was recorded." in progress.markup()
    assert "soon" not in progress.markup()


def test_the_evidence_of_a_race_is_its_first_stage() -> None:
    progress = Progress()
    progress.take("evidence/events.jsonl", {"event": "started", "time": 1.0, "models": ["a", "b"]})
    progress.take("evidence/events.jsonl", {"event": "model-finished", "model": "a", "score": 0.5, "seconds": 1.0})
    assert progress.status == "Stage 1, evidence: 1 of 2 models done"
    assert "Time left" not in progress.markup()  # of the evidence alone, not of the race


def test_before_the_first_event_the_last_printed_line_is_shown() -> None:
    assert "features of &lt;b&gt;" in Progress(printed="features of <b>").markup()
