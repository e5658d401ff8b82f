"""Whether P(best) is calibrated: among some of the models, how sure is the race of its first, and how often right?

    python experiments/race/certainty.py

The looks are those of fold 0 of seven sets, each model at the better of its rates; right is who has the best mean test
accuracy over five fresh seeds. The table of `moves` comes from the curves of others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from outcomes import table
from replay import BATCH, COOLDOWN, FIRST_RATE, SETS, STEPS, _look, measured

from hubscout.racing.arms import Arm, Look
from hubscout.racing.elimination import TIED_ABOVE, better_rate, chances
from hubscout.racing.rungs import RATE_FACTORS, Rung, rungs_of

SIZES, DRAWS = (2, 3, 5, 9, 17), 25


def looks_of(name: str, rung: Rung) -> list[Look]:
    """Each model of a set at its better rate."""
    on, found = measured(name), []
    for model in on.models:
        arms = [Arm(model, FIRST_RATE * factor) for factor in RATE_FACTORS]
        rows = min(on.held_out, rung.rows(BATCH))
        looks = [_look(on.arms[0][arm.model, arm.learning_rate], arm, rung.number, rows, "both") for arm in arms]
        found.append(next(look for look in looks if look.arm == better_rate(looks)))
    return found


def line(size: int, rung: Rung) -> list[str]:
    """Draws of so many models: how sure, how often right, Brier score, how often the best is among the tied."""
    draw, found = np.random.default_rng(0), []
    for name in SETS:
        on, looks = measured(name), looks_of(name, rung)
        evidence = dict(zip(on.models, on.logme.tolist(), strict=True))
        for _ in range(DRAWS if size < len(looks) else 1):
            some = draw.choice(len(looks), size, replace=False)
            chance = chances([looks[k] for k in some], evidence, rung.steps / STEPS)
            best, first = int(np.argmax(on.truth[some])), int(np.argmax(chance))
            brier = float(((chance - (np.arange(size) == best)) ** 2).sum())
            found.append([chance[first], first == best, brier, chance[best] >= TIED_ABOVE])
    return [str(size), str(rung.steps), *(f"{value:.2f}" for value in np.mean(found, axis=0))]


def main() -> None:
    header = [
        "models",
        "steps of 300",
        "mean P(best) of the first",
        "first is best",
        "Brier score",
        "best among the tied",
    ]
    rungs = rungs_of(STEPS, COOLDOWN)
    print("\n".join(table(header, [line(size, rung) for size in SIZES for rung in rungs])))


if __name__ == "__main__":
    main()
