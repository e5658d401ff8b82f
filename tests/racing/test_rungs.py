"""Rungs and budgets."""

from __future__ import annotations

from hubscout.racing.rungs import choose_field, rungs_of, work

MODELS = tuple(f"m{k}" for k in range(9))


def field(seconds: float | None, steps: int = 300):
    return choose_field(MODELS, dict.fromkeys(MODELS, 0.1), steps, seconds, 0.2)


def test_rungs_rise_and_end_before_the_end() -> None:
    for steps in (5, 20, 60, 300, 10_000):
        rungs = rungs_of(steps, 0.2)
        assert all(rung.stable < rung.steps < steps for rung in rungs)
        assert [rung.stable for rung in rungs] == sorted({rung.stable for rung in rungs})


def test_without_a_budget_everyone_starts_at_three_rates() -> None:
    assert field(None).models == MODELS
    assert len(field(None).factors) == 3


def test_less_time_means_fewer_rates_then_fewer_models_then_a_shorter_run() -> None:
    plenty, some, little = field(200.0), field(60.0), field(25.0)
    assert len(plenty.factors) > len(some.factors)
    assert plenty.models == MODELS
    assert little.steps < some.steps <= 300
    for found, seconds in ((plenty, 200.0), (some, 60.0), (little, 25.0)):
        arms = len(found.models) * len(found.factors)
        assert 0.1 * work(arms, rungs_of(found.steps, 0.2), found.steps) <= seconds
