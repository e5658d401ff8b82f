"""The rule that chooses strengths by kind of task, on made-up results."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "experiments" / "teaching" / "kind_rule.py"
spec = importlib.util.spec_from_file_location("kind_rule", FILE)
kind_rule = sys.modules["kind_rule"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kind_rule)
BASE, KINDS, results_of = kind_rule.BASE, kind_rule.KINDS, kind_rule.results_of

NUMBERS = KINDS["numbers"]
FIRST, SECOND = NUMBERS.choose


def made_up(gains: dict[str, tuple[float, float]]) -> dict[tuple[str, str, int], float | None]:
    """Every run that chooses: 0.5 for fine-tuning, and so many points more on the two cases."""
    points = {name: dict(zip(NUMBERS.choose, given, strict=True)) for name, given in gains.items()}
    return {
        (case, method, seed): 0.5 + points.get(method, {}).get(case, 0.0) / 100
        for case, method, seed in NUMBERS.choosing()
    }


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([(1, 1), (2, 2), (0, 0)], "b-tuning, explained"),
        ([(5, -2), (0.1, 0.1), (0, 0)], "b-tuning, explained"),  # more than a point below on one case
        ([(30, 0), (2, 2), (0, 0)], "b-tuning, explained"),  # no case decides alone
        ([(-9, 0), (-4, 0), (-2, 0)], "b-tuning, signal to noise"),  # none is allowed: the best worst case
    ],
)
def test_the_best_of_those_that_are_nowhere_below_fine_tuning(points, chosen):
    tests = made_up(dict(zip(NUMBERS.b_tuning, points, strict=True)))
    assert NUMBERS.choice(tests, NUMBERS.b_tuning) == chosen


def test_nothing_is_chosen_before_all_runs_are_there():
    tests = made_up({})
    del tests[NUMBERS.choosing()[-1]]
    assert NUMBERS.choice(tests, NUMBERS.b_tuning) is None
    assert {method for _, method, _ in NUMBERS.judging(tests, 1)} == {
        BASE,
        "b-tuning, alike",
        "logit-kd, 0.3",
        kind_rule.KD[0],
    }


def test_what_is_chosen_is_judged_on_other_cases_and_seeds():
    tests = made_up({"b-tuning, explained": (1, 1), "kd, a tenth": (1, 1)})
    judged = NUMBERS.judging(tests, 1)
    assert {"b-tuning, explained", "kd, a tenth"} <= {method for _, method, _ in judged}
    assert not {run[0] for run in judged} & set(NUMBERS.choose)
    assert not {run[2] for run in judged} & {run[2] for run in NUMBERS.choosing()}


def test_a_run_that_failed_says_nothing_and_one_that_diverged_is_worth_nothing():
    record = {"case": FIRST, "method": BASE, "seed": 31}
    other = {"case": SECOND, "method": BASE, "seed": 31, "test": None}
    found = results_of([{**record, "failed": "no data"}, other])
    assert found == {(FIRST, BASE, 31): None, (SECOND, BASE, 31): 0.0}
