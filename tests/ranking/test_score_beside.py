"""On a CPU the thread has no stream; all else is as on a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from hubscout.errors import InterruptedRunError
from hubscout.metrics import METRICS, metric
from hubscout.ranking import assess, rank
from hubscout.ranking import score_beside as module
from hubscout.ranking.assess import Settings
from hubscout.ranking.score_beside import LaterRow, ScoreBeside
from hubscout.runs.ranking import Ranking
from hubscout.tasks import Task


@pytest.fixture
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __init__(self, device: str = "") -> None: ...
        def record(self, stream: Any) -> None: ...
        def wait_event(self, event: Any) -> None: ...
        def synchronize(self) -> None: ...

        device = None

    monkeypatch.setattr(ScoreBeside, "suits", staticmethod(lambda device, settings, task: True))
    for name in ("Event", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda given: nullcontext())


@pytest.fixture
def scored_by(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The thread that scored each model."""
    found: dict[str, str] = {}
    work = assess.Unscored.score

    def score(ran: assess.Unscored) -> Any:
        found[ran.identifier] = threading.current_thread().name
        return work(ran)

    monkeypatch.setattr(assess.Unscored, "score", score)
    return found


def facts(ranking: Ranking) -> list[tuple[Any, ...]]:
    return [(row.identifier, row.score, row.standard_error, row.n, row.per_target, row.expected) for row in ranking]


def run(task: Task, models: list[str], **options: Any) -> Ranking:
    given = {"device": "cpu", "cache": False, "measure_latency": False, "progress": False, "load_ahead": True}
    return rank(task, models, **{**given, **options})


@pytest.mark.usefixtures("_beside")
def test_rows_are_the_same_and_saved_one_model_later(
    array_task: Task, zoo: str, scored_by: dict[str, str], tmp_path: Path
) -> None:
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(3)]
    ranking = run(array_task, names, out=tmp_path / "run")
    assert set(scored_by.values()) == {"hubscout-score_0"}
    assert facts(Ranking.load(tmp_path / "run")) == facts(ranking)
    alone = run(array_task, names, load_ahead=False)
    assert set(scored_by.values()) == {"MainThread"}
    assert facts(alone) == facts(ranking)


@pytest.mark.usefixtures("_beside")
def test_what_was_scored_when_somebody_interrupts_is_kept(array_task: Task, zoo: str, tmp_path: Path) -> None:
    names = [*(f"python:{zoo}:look?first={first}&last=8" for first in range(2)), f"python:{zoo}:interrupt"]
    with pytest.raises(InterruptedRunError, match="2 of 3 models are finished and saved in"):
        run(array_task, names, out=tmp_path / "run")
    assert {row.identifier for row in Ranking.load(tmp_path / "run")} == set(names[:2])


@pytest.fixture
def _cursed() -> Iterator[None]:
    @metric("cursed", kinds=("classification",), from_evidence=True)
    def cursed(evidence: Any) -> float:
        raise ZeroDivisionError("in the score")

    yield
    del METRICS._entries["cursed"]


@pytest.mark.usefixtures("_beside", "_cursed")
def test_a_score_that_fails_fails_its_model_and_no_other(array_task: Task, zoo: str) -> None:
    names = [f"python:{zoo}:look?first=0&last=8", f"python:{zoo}:crash"]
    ranking = run(array_task, names, metrics=("cursed",))
    assert [failure.identifier for failure in ranking.failures] == names
    assert "in the score" in ranking.failures[0].reason
    assert "in the forward pass" in ranking.failures[1].reason


@pytest.mark.usefixtures("_beside")
@pytest.mark.parametrize("options", [{"budget": "1min"}, {"progressive": True}])
def test_growing_subsets_wait_for_every_score(
    array_task: Task, zoo: str, scored_by: dict[str, str], options: dict[str, Any]
) -> None:
    """A stage is counted in as a whole."""
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(2)]
    assert len(run(array_task, names, **options)) == 2
    assert set(scored_by.values()) == {"MainThread"}


@pytest.mark.usefixtures("_beside")
def test_who_interrupts_the_wait_for_a_score_has_its_model_too(
    array_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[None] = []
    work = LaterRow.result

    def result(row: LaterRow) -> Any:
        waits.append(None)
        if len(waits) == 2:
            raise KeyboardInterrupt
        return work(row)

    monkeypatch.setattr(LaterRow, "result", result)
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(3)]
    with pytest.raises(InterruptedRunError, match="3 of 3 models are finished"):
        run(array_task, names)


@pytest.mark.usefixtures("_beside")
def test_a_score_for_which_memory_does_not_suffice_is_tried_alone(
    array_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch, scored_by: dict[str, str]
) -> None:
    work = assess.Unscored.score

    def score(ran: assess.Unscored) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return work(ran)

    monkeypatch.setattr(assess.Unscored, "score", score)
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(2)]
    ranking = run(array_task, names)
    assert not ranking.failures
    assert scored_by == dict.fromkeys(names, "MainThread")


@pytest.mark.usefixtures("_beside")
def test_no_model_is_timed_while_another_is_scored(array_task: Task, zoo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scoring = threading.Lock()
    work, measure = assess.Unscored.score, assess.measure_latency

    def score(ran: assess.Unscored) -> Any:
        with scoring:
            time.sleep(0.2)
            return work(ran)

    def measured(*given: Any, **options: Any) -> Any:
        assert not scoring.locked()
        return measure(*given, **options)

    monkeypatch.setattr(assess.Unscored, "score", score)
    monkeypatch.setattr(assess, "measure_latency", measured)
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(3)]
    assert len(run(array_task, names, measure_latency=True)) == 3
    assert len(run(array_task, names, max_latency="10s")) == 3


@pytest.mark.usefixtures("_beside")
def test_the_score_of_a_model_that_took_long_is_not_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ran:
        seconds = 4.0

        def score(self) -> str:
            return threading.current_thread().name

    with ScoreBeside("cuda") as beside:
        found: Any = beside.score(Ran())  # type: ignore[arg-type]
        assert isinstance(found, LaterRow)
        assert found.result() == "hubscout-score_0"
        monkeypatch.setattr(module, "_LONGEST", 3.0)
        assert beside.score(Ran()) == "MainThread"  # type: ignore[arg-type]


def test_nothing_is_put_off_where_steps_are_measured_or_models_run_on_a_processor(array_task: Task) -> None:
    assert ScoreBeside.suits("cuda:1", Settings(), array_task)
    assert not ScoreBeside.suits("cpu", Settings(), array_task)
    assert not ScoreBeside.suits("cuda", Settings(profile=True), array_task)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_scores_are_those_of_one_thread(array_task: Task, zoo: str, scored_by: dict[str, str]) -> None:
    names = [f"python:{zoo}:look?first={first}&last=8" for first in range(5)]
    ranking = run(array_task, names, device="cuda")
    assert set(scored_by.values()) == {"hubscout-score_0"}
    assert facts(run(array_task, names, device="cuda", load_ahead=False)) == facts(ranking)
