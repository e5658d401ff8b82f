"""Rungs chosen on curves of others: successive halving replayed on the public fine-tuning curves of Quick-Tune.

    python experiments/race/public_curves.py FOLDER      # FOLDER holds table.csv, curves/perf.json, curves/cost.json

FOLDER is `src/quicktune/data/.mtlbm/extended` of the repository rapanti/quicktune, branch beta (BSD-3; Arango et al.,
"Quick-Tune", ICLR 2024): 24 timm models on 26 image sets, accuracy and seconds of every epoch.
It is not part of this repository; what the replay gave is in `results/public-curves.json`.

An arm is one configuration that ran all its 50 epochs. Of each set, all arms start; at each rung those below the best
1/eta are given up. The truth about a model is its best arm's last accuracy (mean of the last three epochs).

Then the race as the product runs it now, its rungs and plans chosen elsewhere: two arms per model, drawn 30 times.
There is no evidence and no log-likelihood in these curves, so that it has neither here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import weightedtau

from hubscout.racing.rungs import plans, rungs_of

RESULTS = Path(__file__).resolve().parent / "results" / "public-curves.json"
EPOCHS = 50
DRAWS = 30


def read(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Set → the models of its arms, and their accuracies and seconds by epoch."""
    import pandas as pd

    table = pd.read_csv(folder / "table.csv", index_col=0)
    columns = [name for name in table.columns if name.startswith("cat:model:")]
    model_of = table[columns].idxmax(axis=1).str.removeprefix("cat:model:")
    model_of.index = model_of.index.astype(str)
    accuracy = json.loads((folder / "curves" / "perf.json").read_text())
    seconds = json.loads((folder / "curves" / "cost.json").read_text())
    found = {}
    for name, curves in accuracy.items():
        whole = [
            arm
            for arm, curve in curves.items()
            if isinstance(curve, list) and len(curve) == EPOCHS and len(seconds[name].get(arm, ())) == EPOCHS
        ]
        if len(whole) > 20:
            found[name] = (
                model_of.loc[whole].to_numpy(),
                np.array([curves[arm] for arm in whole], dtype=float),
                np.array([seconds[name][arm] for arm in whole], dtype=float),
            )
    return found


def halving(
    models: np.ndarray, accuracy: np.ndarray, seconds: np.ndarray, *, eta: float, first: int, by_model: bool
) -> tuple[np.ndarray, float]:
    """The score of each arm when it went (rung × 1000 + accuracy), and the share of the whole cost that was spent."""
    alive = np.arange(len(models))
    score = np.full(len(models), -np.inf)
    spent, before, epoch, rung = 0.0, 0, first, 0
    while True:
        spent += seconds[alive, before:epoch].sum()
        value = accuracy[alive, epoch - 1]
        score[alive] = 1000.0 * rung + value
        if epoch == EPOCHS:
            return score, spent / seconds.sum()
        order = alive[np.argsort(-value, kind="stable")]
        if by_model:  # the best arm of each model first, so that no model takes the places of others with its rates
            seen: dict[str, int] = {}
            turn = []
            for arm in order:
                turn.append(seen.get(models[arm], 0))
                seen[models[arm]] = turn[-1] + 1
            order = order[np.lexsort((np.arange(len(order)), turn))]
        alive = order[: max(1, round(len(alive) / eta))]
        before, epoch, rung = epoch, min(EPOCHS, max(epoch + 1, round(epoch * eta))), rung + 1


def judge(models: np.ndarray, accuracy: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Weighted tau of the models' order and the points lost by the first."""
    final = accuracy[:, -3:].mean(axis=1)
    names = sorted(set(models))
    truth = np.array([final[models == name].max() for name in names])
    given = np.array([score[models == name].max() for name in names])
    winner = int(np.argmax(score))
    return float(weightedtau(truth, given, rank=None).statistic), float(truth.max() - final[winner])


def product_race(
    models: np.ndarray, accuracy: np.ndarray, seconds: np.ndarray, widths: Sequence[int], *, again: bool = True
) -> tuple[np.ndarray, float]:
    """As `halving`, with the rungs of the product and so many arms on each; a model goes on with its better arm.

    The arms of the winner are compared `again` on the last rung, as the product does.
    """
    alive = np.arange(len(models))
    score = np.full(len(models), -np.inf)
    spent, before = 0.0, 0
    for rung, width in zip(rungs_of(EPOCHS, cooldown=0.0), widths, strict=True):
        alive = alive[:width]
        spent += seconds[alive, before : rung.steps].sum()
        value = accuracy[alive, rung.steps - 1]
        score[alive] = 1000.0 * rung.number + value
        order = alive[np.argsort(-value, kind="stable")]
        alive = np.array([arm for place, arm in enumerate(order) if models[arm] not in models[order[:place]]])
        before = rung.steps
    winner = alive[0]
    if again:
        own = np.flatnonzero(models == models[winner])
        spent += seconds[own, :before].sum() - seconds[winner, :before].sum()
        winner = own[np.argmax(accuracy[own, before - 1])]
        score[winner] = score.max() + 1.0
    return score, (spent + seconds[winner, before:].sum()) / seconds.sum()


def two_arms_each(models: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Two arms of every model that has as many."""
    names = [name for name in sorted(set(models)) if (models == name).sum() > 1]
    return np.concatenate([draw.choice(np.flatnonzero(models == name), 2, replace=False) for name in names])


def first_epochs_then(accuracy: np.ndarray, seconds: np.ndarray, epochs: int, k: int) -> tuple[np.ndarray, float]:
    """All arms for some epochs, the first k of them to the end."""
    score = accuracy[:, epochs - 1].copy()
    kept = np.argsort(-score)[:k]
    score[kept] = 1000 + accuracy[kept, -1]
    return score, (seconds[:, :epochs].sum() + seconds[kept, epochs:].sum()) / seconds.sum()


def drawn(sets: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[dict[str, object]]:
    """The product's plans, and what else can be done with the same arms, over draws of two arms per model."""
    outcomes: dict[str, list[tuple[float, ...]]] = {}
    for curves in sets.values():
        for seed in range(DRAWS):
            chosen = two_arms_each(curves[0], np.random.default_rng(seed))
            models, accuracy, seconds = (part[chosen] for part in curves)
            count = len(models) // 2
            longest = [widths for widths in plans(count) if widths[0]]
            tried = {
                "race, the longest plan": product_race(models, accuracy, seconds, longest[0]),
                "race, the longest plan, rate of the first rung": product_race(
                    models, accuracy, seconds, longest[0], again=False
                ),
                "race, two thirds of the models on the last rung": product_race(
                    models, accuracy, seconds, next(w for w in longest if w[2] <= round(2 * count / 3))
                ),
                "race, the shortest plan of two rates": product_race(models, accuracy, seconds, longest[-1]),
                "one epoch, the first three to the end": first_epochs_then(accuracy, seconds, 1, 3),
                "two epochs, the first three to the end": first_epochs_then(accuracy, seconds, 2, 3),
                "all arms to the end": (accuracy[:, -1], 1.0),
            }
            for name, (score, cost) in tried.items():
                outcomes.setdefault(name, []).append((*judge(models, accuracy, score), cost))
    return [{"policy": name, **_rounded(*np.mean(found, axis=0))} for name, found in outcomes.items()]


def _rounded(tau: float, regret: float, cost: float) -> dict[str, object]:
    return {"weighted_tau": round(tau, 3), "points_lost": round(regret, 3), "cost": round(cost, 3)}


def main(folder: Path) -> None:
    sets = read(folder)
    rows: list[dict[str, object]] = []
    for by_model in (False, True):
        for first in (1, 2, 3, 5):
            for eta in (2, 3, 4, 8):
                outcomes = []
                for models, accuracy, seconds in sets.values():
                    score, cost = halving(models, accuracy, seconds, eta=eta, first=first, by_model=by_model)
                    outcomes.append((*judge(models, accuracy, score), cost))
                tau, regret, cost = np.mean(outcomes, axis=0)
                told = {"eta": eta, "first_epochs": first, "by_model": by_model, "sets": len(sets)}
                rows.append({**told, **_rounded(tau, regret, cost)})
    for k in (1, 3, 6):
        outcomes = []
        for models, accuracy, seconds in sets.values():
            score, cost = first_epochs_then(accuracy, seconds, 1, k)
            outcomes.append((*judge(models, accuracy, score), cost))
        rows.append({"one_epoch_then_top": k, **_rounded(*np.mean(outcomes, axis=0))})
    rows += drawn(sets)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
