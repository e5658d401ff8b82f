"""table.md and figure.png out of results/: how well each score predicts what fine-tuning gives, set by set."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from agreement import SETS, WEIGHTS, between_seeds, fine_tuned, leave_one_out  # noqa: E402

from hubscout.evaluation import weighted_tau  # noqa: E402

RESULTS = HERE / "results"
FIRST_RATES = (0.0003, 0.001, 0.004)
"""With which every search begins."""
CHANGED = 0.05
"""Of test accuracy: by how much a model must differ to be told."""
RESAMPLES = 500

Values = Mapping[str, float]
"""By model."""
Key = TypeVar("Key")


# What fine-tuning gave ------------------------------------------------------------------------------------------------


@cache
def reference(set_name: str, rates: tuple[float, ...] | None = None) -> dict[str, float]:
    """Mean over the seeds; with `rates`, of a search over these alone."""
    return {model: one.test for model, one in fine_tuned(rates)[set_name].items()}


# What the scores say --------------------------------------------------------------------------------------------------


@cache
def rows(set_name: str, suffix: str) -> dict[str, dict[str, Any]]:
    path = RESULTS / "scores" / f"{set_name}{suffix}.json"
    return json.loads(path.read_text())["rows"] if path.is_file() else {}


def metric(name: str) -> Callable[[str], Values]:
    """A metric of `hubscout.rank` on 1,500 train images."""
    return lambda set_name: {
        model: row["scores"][name] for model, row in rows(set_name, "").items() if name in row["scores"]
    }


def centred(set_name: str) -> Values:
    """LogME with means taken away, on 1,500 train images."""
    return {model: row["scores"]["logme"] for model, row in rows(set_name, "-centred").items()}


def of_row(function: Callable[[dict[str, Any]], float]) -> Callable[[str], Values]:
    """Something about a model on all train images."""
    return lambda set_name: {model: function(row) for model, row in rows(set_name, "-layers").items()}


logme = of_row(lambda row: row["scores"]["logme"])
best_layer = of_row(lambda row: max(row["layers"].values()))
log_params = of_row(lambda row: float(np.log(row["params"])))
log_dim = of_row(lambda row: float(np.log(row["feature_dim"])))
log_flops = of_row(lambda row: float(np.log(row["flops"])))


def total(first: Callable[[str], Values], second: Callable[[str], Values], weight: float) -> Callable[[str], Values]:
    def added(set_name: str) -> Values:
        other = second(set_name)
        return {model: value + weight * other[model] for model, value in first(set_name).items()}

    return added


def standardised(score: Callable[[str], Values]) -> Callable[[str], Values]:
    def scaled(set_name: str) -> Values:
        found = score(set_name)
        values = np.array(list(found.values()))
        return dict(zip(found, (values - values.mean()) / values.std(), strict=True))

    return scaled


# How well they agree --------------------------------------------------------------------------------------------------


def tau(score: Callable[[str], Values], set_name: str, only: set[str] | None = None) -> float | None:
    """Over the models that have both; None with fewer than five."""
    values, known = score(set_name), reference(set_name)
    models = [model for model in known if model in values and (only is None or model in only)]
    return weighted_tau([values[m] for m in models], [known[m] for m in models]) if len(models) >= 5 else None


def interval(score: Callable[[str], Values]) -> tuple[float, float]:
    """Of the mean over the sets: 95% of resamples of the models, the same models in every set."""
    generator = np.random.default_rng(0)
    names = sorted({model for set_name in SETS for model in reference(set_name)})
    data = {set_name: (score(set_name), reference(set_name)) for set_name in SETS}
    means = []
    for _ in range(RESAMPLES):
        drawn = generator.choice(names, len(names))
        parts = []
        for values, known in data.values():
            models = [model for model in drawn if model in values and model in known]
            if len(set(models)) > 1:
                parts.append(weighted_tau([values[m] for m in models], [known[m] for m in models]))
        means.append(np.mean(parts))
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def by_set(candidates: Mapping[Key, Callable[[str], Values]]) -> dict[Key, list[float]]:
    return {key: [tau(score, set_name) or 0.0 for set_name in SETS] for key, score in candidates.items()}


def wide_search() -> list[str]:
    """Metrics alone and in pairs beside a capacity: the best of hundreds, and what it is worth elsewhere."""
    names = sorted({name for row in rows("pets", "").values() for name in row["scores"]})
    whole = [name for name in names if all(len(metric(name)(s)) == len(rows(s, "")) for s in SETS) and name != "params"]
    scores = {name: standardised(metric(name)) for name in whole}
    capacities = {"flops": standardised(log_flops), "parameters": standardised(log_params)}
    candidates: dict[str, Callable[[str], Values]] = {}
    for capacity, prior in capacities.items():
        for name in whole:
            for weight in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5):
                candidates[f"{name} + {weight:g} {capacity}"] = total(scores[name], prior, weight)
        for first, second in itertools.combinations(whole, 2):
            for weight in (0.5, 1.0, 1.5, 2.0):
                both = total(scores[first], scores[second], 1.0)
                candidates[f"{first} + {second} + {weight:g} {capacity}"] = total(both, prior, weight)
    taus = by_set(candidates)
    means = {name: np.mean(values) for name, values in taus.items()}
    best = max(means, key=lambda name: means[name])
    chosen, found = leave_one_out(taus)
    return [
        f"{len(candidates)} sums of one or two standardised metrics (on 1,500 images) and a capacity: the best is "
        f"{best} with a mean of {means[best]:.2f}. Chosen on four sets and judged on the fifth: mean "
        f"{np.mean(found):.2f}.",
        "",
        *(f"- {set_name}: {name}, {value:.2f}" for set_name, name, value in zip(SETS, chosen, found, strict=True)),
    ]


def cells(values: list[float | None]) -> str:
    shown = ["–" if value is None else f"{value:.2f}" for value in values]
    known = [value for value in values if value is not None]
    mean = f"**{np.mean(known):.2f}**" if len(known) == len(values) else "–"
    return " | ".join([*shown, mean])


def line(name: str, score: Callable[[str], Values], *, doubt: bool = True) -> str:
    values = [tau(score, set_name) for set_name in SETS]
    shown = "[{:.2f}, {:.2f}]".format(*interval(score)) if doubt and None not in values else "–"
    return f"| {name} | {cells(values)} | {shown} |"


def main_table() -> list[str]:
    head = ["| score | " + " | ".join(SETS) + " | mean | 95% over models |", "|---" * (len(SETS) + 3) + "|"]
    weights = {weight: total(logme, log_flops, weight) for weight in WEIGHTS}
    chosen, found = leave_one_out(by_set(weights))
    weights_shown = ", ".join(f"{weight:g}" for weight in chosen)
    ceiling: list[float | None] = [between_seeds(fine_tuned()[s]) for s in SETS]
    return [
        *head,
        line("LogME", logme),
        line("LogME of the best layer", best_layer),
        line("`logme-capacity`: LogME + 0.1 log flops", total(logme, log_flops, 0.1)),
        f"| the same, weight chosen on the other four sets ({weights_shown}) | {cells(found)} | – |",
        line("LogME + 0.1 log parameters", total(logme, log_params, 0.1)),
        line("z(LogME) + z(log parameters)", total(standardised(logme), standardised(log_params), 1.0)),
        line("z(LogME) + z(log flops)", total(standardised(logme), standardised(log_flops), 1.0)),
        line("parameters", log_params),
        line("flops", log_flops),
        line("number of features", log_dim),
        f"| one seed of fine-tuning against the mean of two others | {cells(ceiling)} | – |",
    ]


def weight_line() -> str:
    """How much the weight of the capacity matters."""
    means = {w: np.mean([tau(total(logme, log_flops, w), s) or 0.0 for s in SETS]) for w in WEIGHTS}
    shown = ", ".join(f"{weight:g}: {mean:.2f}" for weight, mean in means.items())
    return f"Mean by the weight of log flops: {shown}."


def subset_table() -> list[str]:
    """Mean τ_w over the sets where some of the models are not there."""
    models = set(reference("pets"))
    largest = sorted(models, key=lambda model: -rows("pets", "-layers")[model]["flops"])
    left_out = {
        "all 17": set(),
        "without VGG-16, which computes most": set(largest[:1]),
        "without the four that compute most": set(largest[:4]),
        "without the four CIFAR ResNets": {model for model in models if model.startswith("cifar10_")},
    }
    scores = {
        "LogME": logme,
        "+ 0.1 log flops": total(logme, log_flops, 0.1),
        "+ 0.1 log parameters": total(logme, log_params, 0.1),
        "flops": log_flops,
        "parameters": log_params,
    }
    lines = ["| models | " + " | ".join(scores) + " |", "|---" * (len(scores) + 1) + "|"]
    for name, dropped in left_out.items():
        found = [np.mean([tau(score, s, models - dropped) or 0.0 for s in SETS]) for score in scores.values()]
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in found) + " |")
    weights = {weight: total(logme, log_params, weight) for weight in WEIGHTS}
    chosen, judged = leave_one_out(by_set(weights))
    return [
        *lines,
        "",
        "Weight of log parameters chosen on the other four sets: "
        f"{', '.join(f'{weight:g}' for weight in chosen)}; mean {np.mean(judged):.2f}.",
    ]


def narrow_lines() -> list[str]:
    """What the search past the first rates changed."""
    scores = {"LogME": logme, "LogME + 0.1 log flops": total(logme, log_flops, 0.1)}
    lines = ["| score | " + " | ".join(SETS) + " | mean |", "|---" * (len(SETS) + 2) + "|"]
    for name, score in scores.items():
        known = {s: reference(s, FIRST_RATES) for s in SETS}
        found = [weighted_tau([score(s)[m] for m in known[s]], list(known[s].values())) for s in SETS]
        lines.append(f"| {name} | {cells(list(found))} |")
    changed = [
        f"{model} on {s} {100 * before:.1f} → {100 * reference(s)[model]:.1f}"
        for s in SETS
        for model, before in reference(s, FIRST_RATES).items()
        if model in reference(s) and abs(reference(s)[model] - before) > CHANGED
    ]
    fewest = min(len(reference(s, FIRST_RATES)) for s in SETS)
    return [
        *lines,
        "",
        f"At least {fewest} models a set have two seeds at the setting that this search chooses. Differences of more "
        f"than {100 * CHANGED:.0f} points: {', '.join(changed)}.",
    ]


def metric_table() -> list[str]:
    """Every metric on 1,500 images, where all models have been scored."""
    names = sorted({name for set_name in SETS for row in rows(set_name, "").values() for name in row["scores"]})
    lines = ["| metric | models | " + " | ".join(SETS) + " | mean |", "|---" * (len(SETS) + 3) + "|"]
    found = {}
    for name in names:
        score = metric(name)
        counts = {len(set(score(s)) & set(reference(s))) for s in SETS}
        found[name] = (max(counts), [tau(score, s) for s in SETS])
    found["logme-capacity"] = (
        max(len(set(metric("logme")(s)) & set(reference(s))) for s in SETS),
        [tau(total(metric("logme"), log_flops, 0.1), s) for s in SETS],
    )
    found["logme, centred"] = (
        max(len(set(centred(s)) & set(reference(s))) for s in SETS),
        [tau(centred, s) for s in SETS],
    )
    order = sorted(found, key=lambda name: -np.mean([t for t in found[name][1] if t is not None] or [-1.0]))
    lines += [f"| `{name}` | {found[name][0]} | {cells(found[name][1])} |" for name in order]
    return lines


def value_table() -> list[str]:
    """Test accuracy of fine-tuning and, beside it, LogME."""
    models = sorted({model for set_name in SETS for model in reference(set_name)})
    lines = ["| model | Mflops | " + " | ".join(SETS) + " |", "|---" * (len(SETS) + 2) + "|"]
    for model in models:
        shown = [
            f"{100 * reference(s)[model]:.1f} ({logme(s)[model]:.3f})" if model in reference(s) else "–" for s in SETS
        ]
        flops = rows("pets", "-layers")[model]["flops"] / 1e6
        lines.append(f"| {model} | {flops:.0f} | " + " | ".join(shown) + " |")
    return lines


def draw() -> None:
    """Scatter plots, LogME above and with capacity below."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(SETS), figsize=(13, 5.2), layout="constrained")
    chosen = (("LogME", logme), ("LogME + 0.1 log flops", total(logme, log_flops, 0.1)))
    for row, (name, score) in zip(axes, chosen, strict=True):
        for axis, set_name in zip(row, SETS, strict=True):
            values, known = score(set_name), reference(set_name)
            for model in known:
                axis.plot(values[model], 100 * known[model], marker_of(model), color=colour_of(model), markersize=6)
            axis.set_title(f"{set_name}, τ_w = {tau(score, set_name):.2f}", fontsize=10)
            axis.set_xlabel(name, fontsize=9)
            axis.tick_params(labelsize=8)
            axis.grid(alpha=0.3)
        row[0].set_ylabel("fine-tuned, test accuracy, %", fontsize=9)
    for label, model in LEGEND.items():
        axes[0][0].plot([], [], marker_of(model), color=colour_of(model), label=label)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LEGEND), fontsize=9)
    figure.savefig(HERE / "figure.png", dpi=130, metadata={"Software": None})


FAMILIES = (("cifar10_", "#E69F00", "o"), ("mobilenetv2", "#0072B2", "s"), ("tf_efficientnet", "#009E73", "^"))
LEGEND = {
    "CIFAR ResNets": "cifar10_resnet20",
    "MobileNetV2": "mobilenetv2_tfhub_in1k",
    "EfficientNet-Lite": "tf_efficientnet_lite0_in1k",
    "others of ImageNet": "vgg16_features_in1k",
}


def colour_of(model: str) -> str:
    return next((colour for start, colour, _ in FAMILIES if model.startswith(start)), "#CC79A7")


def marker_of(model: str) -> str:
    return next((marker for start, _, marker in FAMILIES if model.startswith(start)), "D")


def main() -> None:
    text = [
        "# Weighted τ between scores and fine-tuning",
        "",
        *main_table(),
        "",
        weight_line(),
        "",
        "# Mean where some models are not there",
        "",
        *subset_table(),
        "",
        f"# With the learning rates {', '.join(map(str, FIRST_RATES))} alone",
        "",
        *narrow_lines(),
        "",
        "# Every metric, on 1,500 train images",
        "",
        *metric_table(),
        "",
        "# More metrics at once",
        "",
        *wide_search(),
        "",
        "# Test accuracy after fine-tuning, % (LogME)",
        "",
        *value_table(),
        "",
    ]
    (HERE / "table.md").write_text("\n".join(text))
    if "--no-figure" not in sys.argv:
        draw()


if __name__ == "__main__":
    main()
