"""The store of past races: what it expects of a model that did better, or worse, than its evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hubscout.runs.past_races import SHRINKAGE, PastResult, add_race, expectations, read_past, store_path


def results(task: str, places: dict[str, tuple[int, int]], **changes: Any) -> list[PastResult]:
    """Model → its places by evidence and at the end."""
    return [
        PastResult(
            **{
                "task": task,
                "recipe": "r",
                "race": f"race-of-{task}",
                "model": model,
                "models": len(places),
                "evidence": 0.1,
                "evidence_rank": before,
                "rank": after,
                "metric": 0.5,
                "learning_rate": 0.1,
                "steps": 9,
                **changes,
            }  # type: ignore[arg-type]
        )
        for model, (before, after) in places.items()
    ]


SWAP = {"a": (3, 1), "b": (2, 2), "c": (1, 3)}


def test_a_model_that_did_better_than_its_evidence_is_expected_to_again() -> None:
    found = expectations(results("one", SWAP), recipe="r", task="new")
    assert found["a"].shift > 0 > found["c"].shift
    assert found["b"].shift == 0
    assert found["a"].shift == pytest.approx(-found["c"].shift)


def test_one_race_says_little_and_many_say_more() -> None:
    past = [result for task in ("one", "two", "three", "four") for result in results(task, SWAP)]
    first = expectations(past[:3], recipe="r", task="new")["a"]
    fourth = expectations(past, recipe="r", task="new")["a"]
    assert (first.races, fourth.races) == (1, 4)
    assert fourth.shift / first.shift == pytest.approx((4 / (4 + SHRINKAGE)) / (1 / (1 + SHRINKAGE)))


def test_only_the_same_recipe_on_other_data_counts_and_each_set_once() -> None:
    past = [*results("one", SWAP), *results("one", {"a": (1, 1), "b": (2, 2), "c": (3, 3)})]
    assert expectations(past, recipe="r", task="new")["a"].shift == 0  # the latest on that data
    assert expectations(past, recipe="r", task="one") == {}
    assert expectations(past, recipe="other", task="new") == {}
    assert expectations(results("two", {"a": (2, 1), "b": (1, 2)}), recipe="r", task="new") == {}  # two say too little


def test_the_store_keeps_what_it_is_given_and_passes_over_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "races.jsonl"
    add_race(results("one", SWAP), path)
    with path.open("a") as file:
        file.write('{"task": 3}\n[]\n{"task": "t"\n')
    add_race(results("two", {"a": (9, 9), "b": (1, 1), "c": (2, 2)}), path)  # there is no ninth of three
    found = read_past(path)
    assert [result.model for result in found] == ["a", "b", "c", "b", "c"]
    assert found[0].time > 0


def test_its_place_can_be_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUBSCOUT_RACES", str(tmp_path / "mine.jsonl"))
    assert store_path() == tmp_path / "mine.jsonl"
    monkeypatch.delenv("HUBSCOUT_RACES")
    assert store_path().name == "races.jsonl"
