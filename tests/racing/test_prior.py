"""Earlier races on this machine, as a prior of later ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from racing_networks import QUICK, names

from hubscout.racing import race
from hubscout.runs.events import Message
from hubscout.runs.past_races import read_past, store_path
from hubscout.tasks import Task


def products(seed: int) -> Task:
    draw = np.random.default_rng(seed)
    inputs = draw.normal(size=(300, 6)).astype(np.float32)
    return Task.from_arrays(inputs, (inputs[:, 0] * inputs[:, 1] > 0).astype(int), kind="classification", name="signs")


def test_what_a_race_has_shown_is_used_by_the_next_when_asked(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBSCOUT_RACES", str(tmp_path / "races.jsonl"))
    models = names(networks, "width=2", "width=64", "width=3&seed=1", "width=16")
    options = {**QUICK, "learning_rate": 0.05}
    first = race(products(0), models, **options)
    past = read_past()
    assert [result.model for result in past] == [one.model for one in first.order]
    assert past[0].rank == 1
    assert len({result.recipe for result in past}) == 1
    heard: list[object] = []
    plain = race(products(1), models, observer=heard.append, **options)
    assert plain.evidence == {row.identifier: row.score for row in plain.ranking}
    assert not [one for one in heard if isinstance(one, Message) and "prior" in one.text]
    asked = race(products(2), models, prior=True, observer=heard.append, **options)
    (said,) = [one.text for one in heard if isinstance(one, Message) and one.text.startswith("prior:")]
    assert said in asked.notes
    assert "(2)" in said  # two races on other data
    assert sorted(asked.evidence.values(), reverse=True) == list(asked.evidence.values())
    assert any(model in said for model in models)


def test_another_recipe_has_no_prior(networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBSCOUT_RACES", str(tmp_path / "races.jsonl"))
    models = names(networks, "width=4", "width=8", "width=16")
    race(products(0), models, **QUICK)
    found = race(products(1), models, prior=True, **{**QUICK, "steps": 40})
    assert any("no earlier race of the same recipe" in note for note in found.notes)
    assert found.evidence == {row.identifier: row.score for row in found.ranking}


def test_a_race_that_is_asked_for_again_is_not_added_again(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBSCOUT_RACES", str(tmp_path / "races.jsonl"))
    models = names(networks, "width=4", "width=8")
    for _ in range(2):
        race(products(0), models, out=tmp_path / "run", **QUICK)
    assert len(store_path().read_text().splitlines()) == 2


def test_a_store_that_cannot_be_written_costs_nothing(
    networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUBSCOUT_RACES", str(tmp_path / "file" / "races.jsonl"))
    assert race(products(0), names(networks, "width=8"), **QUICK).tuned is not None
