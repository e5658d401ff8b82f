"""Does the store of past races help? Each set is left out in turn; the others are its past.

    python experiments/race/prior.py

What a past race saw is the best validation accuracy of each model over five rates (`replay.Measured.brute_force`); what
is predicted is the test accuracy after fine-tuning on the set that was left out, from LogME alone and with what
`race(prior=True)` adds to it.
"""

from __future__ import annotations

import numpy as np
from replay import FAR, SETS, measured

from hubscout.racing.elimination import standardised
from hubscout.runs.past_races import PastResult, expectations


def places(values: np.ndarray) -> np.ndarray:
    """Places from 1, the highest first."""
    order = np.argsort(-values, kind="stable")
    found = np.empty(len(values), dtype=int)
    found[order] = np.arange(1, len(values) + 1)
    return found


def past(name: str) -> list[PastResult]:
    """A set as a race that is over."""
    one = measured(name)
    by_evidence, at_end = places(one.logme), places(one.brute_force)
    return [
        PastResult(
            task=name,
            recipe="same",
            race=name,
            model=model,
            models=len(one.models),
            evidence=float(one.logme[k]),
            evidence_rank=int(by_evidence[k]),
            rank=int(at_end[k]),
            metric=float(one.brute_force[k]),
            learning_rate=None,
            steps=300,
        )
        for k, model in enumerate(one.models)
    ]


def main() -> None:
    """Print a line per set and the means."""
    rows = []
    for name in SETS:
        one = measured(name)
        known = [result for other in SETS if other != name for result in past(other)]
        shifts = expectations(known, recipe="same", task=name)
        added = np.array([shifts[model].shift if model in shifts else 0.0 for model in one.models])
        rows.append((*one.judge(one.logme), *one.judge(standardised(one.logme) + added)))
        print(f"{name:14} tau {rows[-1][0]:.2f} -> {rows[-1][2]:.2f}   lost {rows[-1][1]:.2f} -> {rows[-1][3]:.2f}")
    for words, chosen in (("all", SETS), ("photographs", [s for s in SETS if s not in FAR]), ("far domains", FAR)):
        mean = np.mean([row for row, name in zip(rows, SETS, strict=True) if name in chosen], axis=0)
        print(f"{words:14} tau {mean[0]:.2f} -> {mean[2]:.2f}   lost {mean[1]:.2f} -> {mean[3]:.2f}")


if __name__ == "__main__":
    main()
