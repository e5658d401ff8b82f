"""The sentences of a race's answer, as a user reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from racing_networks import QUICK, names

from hubscout.metric_texts import interval_text
from hubscout.racing import Race, race
from hubscout.runs.race_record import Contestant, more_time_may_tell
from hubscout.tasks import Task


@pytest.fixture(scope="module")
def found(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Race:
    from racing_networks import NETWORKS

    folder = tmp_path_factory.mktemp("answer")
    (folder / "nets.py").write_text(NETWORKS)
    models = names(folder / "nets.py", "width=2", "width=64")
    return race(task, models, out=folder / "run", learning_rate=0.05, **QUICK)


def test_it_says_which_model_how_good_against_the_probe_and_the_others_and_how_sure(found: Race, task: Task) -> None:
    assert found.tuned is not None
    assert found.told.beside is not None
    value, beside = found.tuned.metric("test"), found.told.beside
    first, second, third = found.answer.split(". ")
    told = interval_text("accuracy", *value)
    assert first.endswith(f"tuned to the end it has accuracy {told} on {len(task.test)} test samples")
    assert second.startswith(f"On {beside.samples} held-out samples its accuracy is {beside.winner:.1%}, that of the")
    assert second.endswith(f"frozen features {beside.probe:.1%}")
    assert third.startswith("Of the 2 models it is the best with a probability of ")
    assert "width=2" in third
    assert beside.winner == found.tuned.metric("validation").value


def test_the_probe_of_another_model_is_named(found: Race) -> None:
    assert found.told.beside is not None
    (other,) = {row.identifier for row in found.ranking} - {found.winner.model}
    told = replace(found.told, beside=replace(found.told.beside, model=other))
    assert "width=2's frozen features" in replace(found, told=told).answer


def test_one_model_alone_is_compared_with_its_probe_only(task: Task, networks: Path, tmp_path: Path) -> None:
    alone = race(task, names(networks, "width=64"), out=tmp_path / "run", learning_rate=0.05, **QUICK)
    assert "probability" not in alone.answer
    assert "linear probe of its frozen features" in alone.answer


def contestant(rank: int, *, p_best: float | None, steps: int = 15, failure: str = "") -> Contestant:
    return Contestant(
        model=f"m{rank}",
        rank=rank,
        evidence_rank=rank,
        learning_rate=0.1,
        steps=steps,
        metric=0.5,
        p_best=p_best,
        failure=failure,
    )


def test_more_time_may_tell_where_models_are_tied_or_were_not_tuned() -> None:
    first = contestant(1, p_best=0.97)
    assert not more_time_may_tell([first])
    assert not more_time_may_tell([first, contestant(2, p_best=0.03)])
    assert more_time_may_tell([first, contestant(2, p_best=0.06)])
    assert more_time_may_tell([first, contestant(2, p_best=None, steps=0)])
    assert not more_time_may_tell([first, contestant(2, p_best=None, steps=0, failure="broken")])
