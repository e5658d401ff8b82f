"""Who stays: chances are paired, uncertain early and sure late, and an arm without a chance goes."""

from __future__ import annotations

import numpy as np
import pytest

from hubscout.racing.arms import Arm, Look
from hubscout.racing.elimination import chances, scores, survivors


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


def test_who_has_no_chance_goes_whatever_the_room() -> None:
    assert [arm.model for arm in survivors(looks([0.0, 0.02, 9.0, 9.0, 9.0]), {}, 1.0, most=5)] == ["m0", "m1"]
    assert [arm.model for arm in survivors(looks([0.0, 0.02, 0.01]), {}, 0.04, most=2)] == ["m0", "m2"]


def test_evidence_counts_early_and_not_late() -> None:
    early = looks([0.0, 0.0, 1.0], own=0.0)
    evidence = {"m0": 0.0, "m1": 5.0, "m2": 1.0}
    assert scores(early, evidence).argmax() == 1
    late = [look(one.arm.model, np.array(one.log_likelihoods), rung=3) for one in early]
    assert scores(late, evidence)[0] == scores(late, evidence)[1]


def test_a_failure_never_stays() -> None:
    found = [*looks([0.0, 0.1]), look("bad", np.zeros(0), failure="DivergedError: NaN")]
    assert chances(found, {}, 0.1)[2] == 0.0
    assert all(arm.model != "bad" for arm in survivors(found, {}, 0.1, most=3))
