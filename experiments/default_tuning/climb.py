"""How should short runs choose a learning rate? Replayed on the arms of `../race`: no run of its own.

    python experiments/default_tuning/climb.py        # prints the tables of the README

Each arm is a network at one rate (0.0005, 0.002 or 0.008, constant with a cool-down, norms that stay), judged after 15
and 45 steps on validation and after 300 on test. A rule sees the short runs and names a rate; its regret is how far the
300 steps at that rate stay below those at the best rate. Rules are chosen on six sets and judged on the seventh.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import table as markdown  # noqa: E402
from shared_hub import VISION  # noqa: E402

from hubscout.tuning.rates import why_not_ahead  # noqa: E402

SETS = ("pets", "cifar10", "fashion-mnist", "sign-digits", "omniglot", "pets-few", "cifar10-few")
RATES = ("0.0005", "0.002", "0.008")
FLOOR = -6.0
"""Of a log-likelihood, as in `hubscout.tasks.task_metrics`."""


@dataclass(frozen=True)
class Look:
    """A short run on validation, sample by sample."""

    right: np.ndarray
    log_likelihoods: np.ndarray

    def clearly_ahead_of(self, other: Look) -> bool:
        gains = np.maximum(self.log_likelihoods, FLOOR) - np.maximum(other.log_likelihoods, FLOOR)
        return not why_not_ahead(self.right.mean() - other.right.mean(), gains)


Looks = dict[str, Look]
Rule = Callable[[Looks], str]


def climb(looks: Looks, first: int = 0, times: int = 2) -> str:
    """Up from a rate, so many times at most, while the next one is clearly ahead; a rate that diverged is not."""
    rate = RATES[first]
    for higher in RATES[first + 1 : first + 1 + times]:
        if higher not in looks or rate not in looks or not looks[higher].clearly_ahead_of(looks[rate]):
            break
        rate = higher
    return rate


def both_ways(looks: Looks) -> str:
    """From the rate in the middle to whichever neighbour is clearly ahead, as the search did before."""
    low, middle, high = RATES
    if middle not in looks or looks[low].clearly_ahead_of(looks[middle]):
        return low
    return high if high in looks and looks[high].clearly_ahead_of(looks[middle]) else middle


RULES: dict[str, Rule] = {
    "always 0.0005": lambda looks: RATES[0],
    "always 0.002": lambda looks: RATES[1],
    "the best": lambda looks: max(looks, key=lambda rate: looks[rate].right.mean()),
    "from the middle both ways": both_ways,
    "up once": lambda looks: climb(looks, times=1),
    "up twice": climb,
}


def cells() -> Iterator[tuple[str, str, Any]]:
    """Set, network, and the arrays of the set."""
    for name in SETS:
        arrays = np.load(HERE.parent / "race" / "results" / f"{name}.npz")
        yield from ((name, model, arrays) for model in VISION)


def short_runs(arrays: Any, model: str, steps: int) -> Looks:
    """Those that did not diverge, by rate."""
    names = {rate: f"{model}-{rate}-fold0-wsd-seed0/rung{steps}_" for rate in RATES}
    return {
        rate: Look(arrays[f"{name}right"], arrays[f"{name}loglik"].astype(float))
        for rate, name in names.items()
        if f"{name}right" in arrays
    }


def regrets(steps: int) -> dict[str, dict[tuple[str, str], float]]:
    """By rule and by (set, network): points of test below the best rate."""
    found: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for name, model, arrays in cells():
        ends = {rate: f"{model}-{rate}-fold0-wsd-seed0/rung300_test" for rate in RATES}
        tests = {rate: 100 * float(arrays[end]) for rate, end in ends.items() if end in arrays}  # others diverged
        looks = short_runs(arrays, model, steps)
        for rule, chooses in RULES.items():
            found[rule][name, model] = tests.get(chooses(looks), 0.0) - max(tests.values())
    return found


def halvings(steps: int = 45) -> list[tuple[str, str]]:
    """(set, network) where `tune` tries half of a rate: the next one after its climb diverged in the short run."""
    found = []
    for name, model, arrays in cells():
        looks = short_runs(arrays, model, steps)
        higher = RATES[RATES.index(climb(looks)) + 1 :][:1]
        found += [(name, model) for rate in higher if rate not in looks]
    return found


def main() -> None:
    print("Half of a rate that diverged is tried for:", halvings(), "\n")
    for steps in (15, 45):
        found = regrets(steps)
        print(f"Short runs of {steps} steps:\n")
        rows = []
        for rule, cells in found.items():
            small = [value for (_, model), value in cells.items() if model.startswith("cifar10_")]
            others = [value for (_, model), value in cells.items() if not model.startswith("cifar10_")]
            values = [*small, *others]
            means = [f"{fmean(some):.1f}" for some in (values, others, small)]
            far = sum(value < -5 for value in values)
            rows.append([rule, *means, f"{min(values):.1f}", f"{far} of {len(values)}"])
        print(
            "\n".join(markdown(["rule", "mean", "others", "CIFAR ResNets", "worst", "more than 5 below"], rows)), "\n"
        )
        left_out = []
        for name in SETS:
            means = {
                rule: fmean(v for (where, _), v in cells.items() if where != name) for rule, cells in found.items()
            }
            best = max(means, key=means.__getitem__)
            left_out.append([name, best, f"{fmean(v for (where, _), v in found[best].items() if where == name):.1f}"])
        print("\n".join(markdown(["left out", "chosen on the others", "regret there"], left_out)), "\n")


if __name__ == "__main__":
    main()
