"""Rungs and budgets."""

from __future__ import annotations

from hubscout.racing.rungs import Time, choose_field, plans, rungs_of, work

MODELS = tuple(f"m{k}" for k in range(9))


def field(seconds: float | None, steps: int = 300):
    time = None if seconds is None else Time(seconds, dict.fromkeys(MODELS, 0.1))
    return choose_field(MODELS, steps, 0.2, time)


def test_rungs_rise_and_end_before_the_end() -> None:
    for steps in (5, 20, 60, 300, 10_000):
        rungs = rungs_of(steps, 0.2)
        assert all(rung.stable < rung.steps < steps for rung in rungs)
        assert [rung.stable for rung in rungs] == sorted({rung.stable for rung in rungs})


def test_without_a_budget_everyone_starts_at_both_rates() -> None:
    assert field(None).models == MODELS
    assert len(field(None).factors) == 2
    assert field(None).widths == (18, 9, 9)


def test_less_time_means_fewer_to_the_last_rung_then_one_rate_then_fewer_models_then_a_shorter_run() -> None:
    plenty, some, less, little = field(200.0), field(130.0), field(70.0), field(25.0)
    assert plenty.widths == (18, 9, 9)
    assert some.widths[0] == 18
    assert 3 <= some.widths[2] < some.widths[1] <= 9
    assert less.factors == (1.0,)
    assert less.models == MODELS[: less.widths[1]]
    assert less.widths[0] == 0
    assert little.steps < less.steps <= 300
    for found, seconds in ((plenty, 200.0), (some, 130.0), (less, 70.0), (little, 25.0)):
        assert 0.1 * work(found.widths, rungs_of(found.steps, 0.2), found.steps) <= seconds


def test_a_race_of_one_model_is_planned_too() -> None:
    assert list(plans(1)) == [(2, 1, 1), (0, 1, 1)]
    for widths in plans(17):
        assert [arms for arms in widths if arms] == sorted((arms for arms in widths if arms), reverse=True)
