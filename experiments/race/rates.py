"""Which learning rate a model is tuned with to its end: what choosing it early costs, and on whose word.

Judged on test after 300 steps at a constant rate with a cool-down, for the networks of each set that are best once
tuned and for all of them; a rate that diverged has 0. A rule is chosen on six sets and judged on the seventh.

    python experiments/race/rates.py FOLDER      # pairs of runs in the curves of others, see `public_curves.py`

writes `results/public-rates.json`. `table.py` prints all of it.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from replay import BATCH, COOLDOWN, FIRST_RATE, FLOOR, LOOKS_AT, RESULTS, SETS, STEPS, Measured, measured

from hubscout.racing.rungs import HIGHER_FACTOR, RATE_FACTORS, rungs_of

LOW, HIGH = (FIRST_RATE * factor for factor in RATE_FACTORS)
HIGHER, LOWER = FIRST_RATE * HIGHER_FACTOR, FIRST_RATE / 4
FAR_AND_FEW = "cifar10_resnet20"
COUNTS = (5, 17)
"""Best networks of each set that are looked at."""
PUBLIC = RESULTS / "public-rates.json"
EPOCHS = (1, 2, 3, 5, 8, 18, 30)
Rule = Callable[[Measured, str], float]


def seen(on: Measured, model: str, rate: float, steps: int, what: str) -> float:
    """Mean held-out accuracy ("right") or log-likelihood ("loglik") of an arm, on the samples that a race looks at."""
    arm, name = on.arms[0][model, rate], f"rung{steps}_{what}"
    if name not in arm:
        return -np.inf
    rungs = dict(zip(LOOKS_AT, rungs_of(STEPS, COOLDOWN), strict=False))
    rows = rungs[steps].rows(BATCH) if steps in rungs else on.held_out
    return _floored(arm[name][:rows])


def _floored(values: np.ndarray) -> float:
    return float(np.maximum(values.astype(float), FLOOR).mean())


def rule(steps: int, what: str, rates: str) -> Rule:
    """The leader after so many steps of two rates; "higher": of three where the higher leads; "three": of three."""

    def chosen(on: Measured, model: str) -> float:
        tried = [LOW, HIGH, HIGHER] if rates == "three" else [LOW, HIGH]
        best = max(tried, key=lambda rate: seen(on, model, rate, steps, what))
        if rates == "higher" and best == HIGH:
            best = max(HIGH, HIGHER, key=lambda rate: seen(on, model, rate, steps, what))
        return best

    return chosen


RULES: dict[str, Rule] = {f"{LOW:g} always": lambda on, model: LOW, f"{HIGH:g} always": lambda on, model: HIGH} | {
    f"after {steps} steps, by {told}, {rates}": rule(steps, what, kind)
    for steps in LOOKS_AT
    for what, told in (("right", "accuracy"), ("loglik", "log-likelihood"))
    for kind, rates in (("two", "two rates"), ("higher", "a third where the higher leads"), ("three", "three rates"))
}
IN_A_RACE = [name for name in RULES if f"after {STEPS}" not in name]


def lost(name: str, count: int) -> np.ndarray:
    """Points below the best of the three rates, by set."""
    found = []
    for on in map(measured, SETS):
        models = [on.models[place] for place in np.argsort(-on.truth)[:count]]
        ends = [{rate: _end(on, model, rate) for rate in (LOW, HIGH, HIGHER)} for model in models]
        taken = [RULES[name](on, model) for model in models]
        found.append(np.mean([max(end.values()) - end[rate] for end, rate in zip(ends, taken, strict=True)]))
    return np.array(found)


def _end(on: Measured, model: str, rate: float) -> float:
    return 100 * float(on.arms[0][model, rate].get(f"rung{STEPS}_test", 0.0))


def lines() -> list[list[str]]:
    """Rule, points lost by the five best models and by all, and of the five best by set; then leave-one-set-out."""
    tables = {count: {name: lost(name, count) for name in RULES} for count in COUNTS}
    rows = [
        [name, *(f"{tables[count][name].mean():.2f}" for count in COUNTS), *(f"{one:.1f}" for one in tables[5][name])]
        for name in RULES
    ]
    left_out = {count: [] for count in COUNTS}
    for count, place in itertools.product(COUNTS, range(len(SETS))):
        others = [number for number in range(len(SETS)) if number != place]
        best = min(IN_A_RACE, key=lambda name, count=count, others=others: tables[count][name][others].mean())
        left_out[count].append(tables[count][best][place])
    told = "chosen on six sets, judged on the seventh (none of 300 steps)"
    return [*rows, [told, *(f"{np.mean(left_out[n]):.2f}" for n in COUNTS), *(f"{one:.1f}" for one in left_out[5])]]


def leaves(name: str, on: Measured, model: str) -> bool:
    """Whether a search of 15 steps leaves its default for the higher rate, which must be ahead by a standard error."""

    def clear(what: str) -> bool:
        rows = rungs_of(STEPS, COOLDOWN)[0].rows(BATCH)
        arms = [on.arms[0][model, rate].get(f"rung{LOOKS_AT[0]}_{what}") for rate in (LOW, HIGH)]
        if any(arm is None for arm in arms):
            return arms[0] is None
        low, high = (np.maximum(arm[:rows].astype(float), FLOOR) for arm in arms)
        return float((high - low).mean()) > float((high - low).std()) / len(low) ** 0.5

    wanted = {"accuracy": ("right",), "log-likelihood": ("loglik",), "both": ("right", "loglik"), "never": ()}[name]
    return bool(wanted) and all(map(clear, wanted))


def searches() -> list[list[str]]:
    """Test accuracy by what makes a search leave its default: at constant rates, and with a cosine from twice them."""
    rows = []
    for name in ("never", "accuracy", "log-likelihood", "both"):
        means: dict[tuple[str, int], list[float]] = {}
        for set_name in SETS:
            on = measured(set_name)
            with np.load(RESULTS / f"{set_name}.npz") as file:
                for count in COUNTS:
                    models = [on.models[place] for place in np.argsort(-on.truth)[:count]]
                    rates = [HIGH if leaves(name, on, model) else LOW for model in models]
                    ends = [_end(on, model, rate) for model, rate in zip(models, rates, strict=True)]
                    means.setdefault(("constant", count), []).append(float(np.mean(ends)))
                    runs = [
                        f"{m}-{2 * rate:g}-fold0-cosine-seed0/end_test" for m, rate in zip(models, rates, strict=True)
                    ]
                    tests = [100 * float(file[run]) if run in file else 0.0 for run in runs]
                    means.setdefault(("cosine", count), []).append(float(np.mean(tests)))
        rows.append([name, *(f"{np.mean(means[kind, n]):.2f}" for kind in ("constant", "cosine") for n in COUNTS)])
    return rows


def lower() -> list[list[str]]:
    """A lower rate still, with a cosine: 0.0003 less 0.001 in points, where 0.001 is ahead of 0.004 on validation.

    Of each set's five best networks: always, and where log-likelihood at the end prefers it.
    """
    rows = []
    for name in SETS:
        on, gains = measured(name), []
        with np.load(RESULTS / f"{name}.npz") as file:
            for model in (on.models[place] for place in np.argsort(-on.truth)[:5]):
                runs = {rate: f"{model}-{rate:g}-fold0-cosine-seed0" for rate in (0.0003, 0.001, 0.004)}
                there = {rate: run for rate, run in runs.items() if f"{run}/end_test" in file}
                told = {rate: _floored(file[f"{run}/end_loglik"]) for rate, run in there.items()}
                if told.get(0.004, -np.inf) <= told[0.001]:
                    gain = 100 * float(file[f"{there[0.0003]}/end_test"] - file[f"{there[0.001]}/end_test"])
                    gains.append((gain, gain if told[0.0003] > told[0.001] else 0.0))
        rows.append([name, str(on.train), str(len(gains)), *(f"{one:+.1f}" for one in np.mean(gains, axis=0))])
    return rows


def far_and_few() -> list[list[str]]:
    """Twenty images of each class: log-likelihood after 110 and 300 steps and test accuracy of a network, by rate."""
    rows = []
    for name in ("cifar10-few", "fashion-few", "omniglot-few", "sign-few"):
        if not (RESULTS / f"{name}.npz").exists():
            continue
        with np.load(RESULTS / f"{name}.npz") as file:
            for rate in (LOWER, LOW, HIGH, HIGHER):
                run = f"{FAR_AND_FEW}-{rate:g}-fold0-wsd-seed0"
                if f"{run}/rung{STEPS}_test" in file:
                    likely = [f"{_floored(file[f'{run}/rung{steps}_loglik']):.2f}" for steps in (110, STEPS)]
                    rows.append([name, f"{rate:g}", *likely, f"{100 * float(file[f'{run}/rung{STEPS}_test']):.1f}"])
    return rows


def public(folder: Path) -> list[dict[str, float]]:
    """Pairs of runs of a model on a set, of the same kind of optimiser, at rates that differ by twice or more."""
    import pandas as pd

    table = pd.read_csv(folder / "table.csv", index_col=0)
    table.index = table.index.astype(str)
    models = [name for name in table.columns if name.startswith("cat:model:")]
    slow = table[["cat:opt:sgd", "cat:opt:momentum"]].any(axis=1)
    kind = table[models].idxmax(axis=1) + slow.map({True: "", False: " adam"}) + table["cat:opt:sgd"].astype(str)
    curves = json.loads((folder / "curves" / "perf.json").read_text())
    pairs = []
    for by_arm in curves.values():
        whole = [arm for arm, one in by_arm.items() if isinstance(one, list) and len(one) == 50]
        whole = [arm for arm in whole if not table.linear_probing[arm]]
        for a, b in itertools.combinations(sorted(whole, key=lambda arm: table.lr[arm]), 2) if len(whole) > 20 else ():
            if kind[a] == kind[b] and table.lr[b] >= 2 * table.lr[a]:
                ahead = np.array(by_arm[b]) - np.array(by_arm[a])
                pairs.append([*(ahead[epoch - 1] for epoch in EPOCHS), ahead[-3:].mean()])
    ahead, end = np.array(pairs)[:, :-1], np.array(pairs)[:, -1]
    return [
        {
            "epochs": epoch,
            "pairs": len(end),
            "higher_leads": round(float((early > 0).mean()), 3),
            "higher_is_better": round(float((end > 0).mean()), 3),
            "higher_taken_wrongly": round(float(((early > 0) & (end < 0)).mean()), 3),
            "lower_taken_wrongly": round(float(((early <= 0) & (end > 0)).mean()), 3),
            "points_lost": round(float(np.maximum(0, np.where(early > 0, -end, end)).mean()), 2),
        }
        for epoch, early in zip(EPOCHS, ahead.T, strict=True)
    ]


def public_lines() -> list[list[str]]:
    """One row for each number of epochs."""
    names = ("higher_leads", "higher_is_better", "higher_taken_wrongly", "lower_taken_wrongly")
    return [
        [f"{row['epochs']} of 50", *(f"{row[name]:.2f}" for name in names), f"{row['points_lost']:.1f}"]
        for row in json.loads(PUBLIC.read_text())
    ]


if __name__ == "__main__":
    rows = public(Path(sys.argv[1]))
    PUBLIC.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
