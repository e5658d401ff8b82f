import re
from typing import Any

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
    assert after([]).markup().count("Nothing is written yet") == 1


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
    assert "Training has begun" in progress.markup()
