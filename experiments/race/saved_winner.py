"""Where the test accuracy of a race's saved winner differs from that of brute force's best run, part by part."""

from __future__ import annotations

import numpy as np
from replay import FIRST_RATE, STEPS, measured, product, sets_of

from hubscout.racing.rungs import RATE_FACTORS

PARTS = (
    "its model is the better choice (mean of five seeds at brute force's rate)",
    "two constant rates with a cool-down, the better of them, for a cosine at the best of five",
    "the rate that it took, for the better of the two",
    "another fold and seed than the arms of fold 0",
    "brute force's own run, for the mean of five seeds",
)


def parts(share: float, fold: int) -> list[float]:
    """Points of each of `PARTS`, means over the sets; they add up to race less brute force.

    Both train for as many steps, on four fifths of train, and neither is fitted again on all of it.
    """
    found = []
    for name in sets_of(fold):
        on, record = measured(name), product()[f"race-{name}-fold{fold}-{share:g}-steps"]
        model, rate = record["winner"]["model"], record["winner"]["learning_rate"]
        rates = {rate, *(FIRST_RATE * factor for factor in RATE_FACTORS)}
        arms = {one: on.arms[0][model, one] for one in rates if (model, one) in on.arms[0]}
        ends = {one: float(kept[f"rung{STEPS}_test"]) for one, kept in arms.items() if f"rung{STEPS}_test" in kept}
        end = ends.get(rate, max(ends.values()))  # a rate that was not run on fold 0
        truth = {"race": on.truth[on.models.index(model)], "brute force": on.truth[int(np.argmax(on.brute_force))]}
        found.append(
            [
                truth["race"] - truth["brute force"],
                max(ends.values()) - truth["race"],
                end - max(ends.values()),
                record["tuned"]["test"]["accuracy"]["value"] - end,
                truth["brute force"] - on.brute_force_test,
            ]
        )
    return (100 * np.mean(found, axis=0)).tolist()


def lines(fold: int) -> list[list[str]]:
    """A row for each part of the races on a fold, and their sum."""
    columns = [parts(share, fold) for share in (0.03, 0.1)]
    rows = [[part, *(f"{one:+.2f}" for one in ones)] for part, *ones in zip(PARTS, *columns, strict=True)]
    return [*rows, ["together", *(f"{sum(ones):+.2f}" for ones in columns)]]
