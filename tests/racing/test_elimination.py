"""Who stays: chances are paired, uncertain early and sure late, and an arm without a chance goes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hubscout.racing.arms import Arm, Look
from hubscout.racing.elimination import (
    better_rate,
    broken_by_rate,
    chances,
    one_rate_each,
    pooled,
    scores,
    survivors,
)


def look(model: str, values: np.ndarray, rung: int = 0, failure: str = "") -> Look:
    return Look(
        arm=Arm(model, 0.1),
        rung=rung,
        steps=10,
        metric=None if failure else float(np.mean(values)),
        log_likelihoods=() if failure else tuple(values),
        seconds=1.0,
        seconds_per_step=0.1,
        failure=failure,
    )


def looks(gaps: list[float], rows: int = 400, own: float = 0.05) -> list[Look]:
    draw = np.random.default_rng(0)
    hard = draw.normal(size=rows) * 3  # the same for all arms: must not count
    return [look(f"m{k}", hard - gap + own * draw.normal(size=rows)) for k, gap in enumerate(gaps)]


def test_the_best_of_clearly_different_arms_is_sure_at_the_end_and_not_at_the_start() -> None:
    found = looks([0.0, 0.5, 1.0])
    late, early = chances(found, {}, 1.0), chances(found, {}, 0.04)
    assert late.argmax() == early.argmax() == 0
    assert late[0] > 0.99 > early[0]
    assert early.sum() == pytest.approx(1.0)


def test_arms_that_cannot_be_told_apart_share_the_chance() -> None:
    chance = chances(looks([0.0, 0.0, 3.0], own=0.5), {}, 1.0)
    assert 0.05 < chance[0] < 0.95
    assert chance[2] < 0.01


def test_two_of_three_arms_that_are_close_are_not_far_apart_because_the_third_is_left_out() -> None:
    """The held-out samples tell them apart, but a rung is not the end: a small lead after few steps is not sure."""
    chance = chances(looks([0.0, 0.05, 1.0], rows=4000, own=0.05), {}, 0.05)
    assert 0.4 < chance[0] < 0.65
    assert chance[1] > 0.2


def test_how_far_arms_lie_apart_is_hardly_known_of_two() -> None:
    two, many = looks([0.0, 0.5], rows=4000), looks([0.0, *[0.5] * 4, *[1.0] * 8], rows=4000)
    assert chances(two, {}, 0.37)[0] < 0.95  # one gap, in units of itself
    assert chances(many, {}, 0.37)[0] > 0.95


def test_who_has_no_chance_goes_whatever_the_room() -> None:
    assert [arm.model for arm in survivors(looks([0.0, 0.02, 9.0, 9.0, 9.0]), {}, 1.0, most=5)] == ["m0", "m1"]
    assert [arm.model for arm in survivors(looks([0.0, 0.02, 0.01]), {}, 0.04, most=2)] == ["m0", "m2"]


def test_the_better_rate_is_told_by_log_likelihood() -> None:
    calm, hasty = looks([0.0, 0.5])
    assert better_rate([replace(hasty, metric=0.9), replace(calm, metric=0.8)]) == calm.arm
    broken = look("m9", np.zeros(4), failure="diverged")
    assert better_rate([broken, hasty]) == hasty.arm
    assert better_rate([broken]) == broken.arm


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_of_two_arms_that_the_held_out_samples_do_not_tell_apart_the_one_ahead_so_far_stays_ahead(order) -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        likelier, right = looks([0.0, 1.0], rows=30)
        metrics = np.sort(draw.random(2))
        pair = [replace(likelier, metric=metrics[0]), replace(right, metric=metrics[1])][order]
        assert survivors(pair, {}, 0.04, most=2) == [one.arm for one in pair]
        assert np.ptp(scores(pair, {})) == 0.0


def arms_with_evidence(rows: int, slope: float) -> tuple[list[Look], dict[str, float]]:
    """Twelve arms as good as `slope` times their evidence; the best by evidence has bad luck with its samples."""
    draw = np.random.default_rng(1)
    evidence = {f"m{k}": k / 4 for k in range(12)}
    own = draw.normal(size=(12, rows))
    own[11] -= own[11].mean() + 2 / np.sqrt(rows)
    return [look(f"m{k}", slope * k / 4 + own[k]) for k in range(12)], evidence


def test_evidence_that_tells_who_does_well_corrects_the_luck_of_few_samples() -> None:
    few, evidence = arms_with_evidence(20, slope=1.0)
    assert scores(few, {}).argmax() != 11
    assert scores(few, evidence).argmax() == 11


def test_many_samples_speak_for_themselves() -> None:
    many, evidence = arms_with_evidence(20_000, slope=1.0)
    assert scores(many, evidence) == pytest.approx(scores(many, {}), abs=0.01)


def test_evidence_that_says_the_opposite_is_not_believed() -> None:
    few, evidence = arms_with_evidence(200, slope=1.0)
    backwards = {model: -value for model, value in evidence.items()}
    assert scores(few, backwards).argsort().tolist() == scores(few, {}).argsort().tolist()


def test_finalists_are_compared_on_the_folds_that_all_of_them_were_judged_on() -> None:
    hard, easy = looks([1.0, 1.0], rows=30), looks([0.0], rows=30)
    told = {one.arm: {0: one, 1: one} for one in hard}
    told[hard[0].arm][2] = replace(easy[0], arm=hard[0].arm)  # time ended before the other was judged on this fold
    first, second = pooled(told, rung=3)
    assert (first.rung, len(first.log_likelihoods), len(second.log_likelihoods)) == (3, 60, 60)
    assert first.metric == hard[0].metric
    told[hard[1].arm][2] = replace(easy[0], arm=hard[1].arm)
    assert [len(one.log_likelihoods) for one in pooled(told, rung=3)] == [90, 90]
    assert pooled(told, rung=3)[0].metric == pytest.approx((2 * hard[0].metric + easy[0].metric) / 3)


def test_a_model_goes_on_with_its_best_rate_alone() -> None:
    arms = [Arm("a", 0.4), Arm("b", 0.1), Arm("a", 0.1), Arm("c", 0.1), Arm("b", 0.4)]
    assert one_rate_each(arms) == [Arm("a", 0.4), Arm("b", 0.1), Arm("c", 0.1)]


def test_time_that_was_granted_keeps_arms_without_a_chance() -> None:
    found = looks([0.0, 0.02, 9.0, 9.0, 9.0])
    assert len(survivors(found, {}, 1.0, most=5, fewest=4)) == 4


def test_a_failure_never_stays() -> None:
    found = [*looks([0.0, 0.1]), look("bad", np.zeros(0), failure="DivergedError: NaN")]
    assert chances(found, {}, 0.1)[2] == 0.0
    assert all(arm.model != "bad" for arm in survivors(found, {}, 0.1, most=3))


def test_a_rate_has_broken_an_arm_that_is_worse_than_its_model_was_at_another() -> None:
    earlier = replace(look("m", np.zeros(2)), metric=0.5)
    failed = look("m", np.zeros(2), failure="DivergedError")
    assert broken_by_rate(replace(earlier, metric=0.4), earlier)
    assert broken_by_rate(failed, earlier)
    assert not broken_by_rate(replace(earlier, metric=0.6), earlier)
    assert not broken_by_rate(earlier, failed)
    assert not broken_by_rate(failed, failed)
