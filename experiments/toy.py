"""The toy figure of the paper: LogME and Laplace evidence fall as noise is added to the features.

    python experiments/toy.py            # writes experiments/toy/results.json and experiments/toy/toy.png

Left: three clusters in a plane, with Gaussian noise of growing deviation added to the points. Right: x uniform on
[0, 1], y = 2x + ε with ε of deviation 0.1, and the feature x' = x + noise. Each point is the mean over seeds. Both
metrics see the same linear model, without an intercept.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from hubscout.metrics import score

NAMES = {"logme": "LogME", "laplace": "Laplace"}
OPTIONS: dict[str, dict] = {"logme": {}, "laplace": {"intercept": False}}
STYLES = {"logme": "-", "laplace": "--"}
COLOURS = {"logme": "#1b6ca8", "laplace": "#d1603d"}
CLASS_COLOURS = ("#1b9e77", "#d95f02", "#7570b3")
CENTRES = 2.0 * np.array([[np.cos(angle), np.sin(angle)] for angle in np.deg2rad([90, 210, 330])])


def clusters(noise: float, samples: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    ids = np.arange(samples) % 3
    points = CENTRES[ids] + 0.3 * generator.normal(size=(samples, 2))
    return points + noise * generator.normal(size=points.shape), ids


def line(noise: float, samples: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = generator.uniform(size=(samples, 1))
    y = 2.0 * x[:, 0] + 0.1 * generator.normal(size=samples)
    return x + noise * generator.normal(size=x.shape), y


PROBLEMS = {
    "classification": (clusters, np.linspace(0.0, 5.0, 21)),
    "regression": (line, np.linspace(0.0, 1.0, 21)),
}


def measure(seeds: int, samples: int) -> dict:
    """For each problem and metric: values (noises, seeds) as lists, and seconds in all."""
    found: dict = {}
    for kind, (draw, noises) in PROBLEMS.items():
        values: dict[str, list[list[float]]] = {name: [] for name in NAMES}
        seconds = dict.fromkeys(NAMES, 0.0)
        for noise in noises:
            rows: dict[str, list[float]] = {name: [] for name in NAMES}
            for seed in range(seeds):
                features, targets = draw(noise, samples, np.random.default_rng(seed))
                for name in NAMES:
                    start = time.perf_counter()
                    rows[name].append(score(name, features=features, targets=targets, kind=kind, **OPTIONS[name]).value)
                    seconds[name] += time.perf_counter() - start
            for name in NAMES:
                values[name].append(rows[name])
        found[kind] = {"noise": noises.tolist(), "values": values, "seconds": seconds}
    return found


def summarise(found: dict) -> dict:
    """What the paper says of the figure, as numbers."""
    summary: dict = {}
    for kind, results in found.items():
        values = {name: np.array(results["values"][name]) for name in NAMES}
        summary[kind] = {
            name: {
                "mean": values[name].mean(axis=1).round(4).tolist(),
                "deviation_over_seeds": values[name].std(axis=1, ddof=1).round(4).tolist(),
                "steps_that_rise": int((np.diff(values[name].mean(axis=1)) > 0).sum()),
                "seconds": round(results["seconds"][name], 3),
            }
            for name in NAMES
        }
        difference = values["laplace"] - values["logme"]
        summary[kind]["laplace_less_logme"] = [float(f"{end:.3g}") for end in (difference.min(), difference.max())]
        # Deviation over seeds in units of the whole fall, so that the two scales can be compared.
        for name in NAMES:
            fall = np.ptp(values[name].mean(axis=1))
            summary[kind][name]["mean_deviation_over_fall"] = round(
                float(values[name].std(axis=1, ddof=1).mean() / fall), 4
            )
    return summary


def draw_figure(found: dict, path: Path) -> None:
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.4), height_ratios=(1, 2.3), layout="constrained")
    titles = ("Classification: three clusters", "Regression: y = 2x + ε")
    for column, (kind, title) in enumerate(zip(PROBLEMS, titles, strict=True)):
        results = found[kind]
        noises = np.array(results["noise"])
        axis = axes[1, column]
        for name, label in NAMES.items():
            values = np.array(results["values"][name])
            mean, deviation = values.mean(axis=1), values.std(axis=1, ddof=1)
            axis.fill_between(noises, mean - deviation, mean + deviation, color=COLOURS[name], alpha=0.2, lw=0)
            axis.plot(noises, mean, STYLES[name], color=COLOURS[name], marker="o", ms=3.5, label=label)
        axis.set_xlabel("standard deviation of the noise on the features")
        axis.set_ylabel("evidence (nats a sample)")
        axis.set_xlim(noises[0] - 0.02 * noises[-1], noises[-1] * 1.02)
        axis.grid(alpha=0.25)
        if kind == "regression":
            same = not OPTIONS["laplace"]["intercept"]
            axis.get_lines()[-1].set_label("Laplace: exact here, so the same" if same else "Laplace with intercept")
        axis.legend(frameon=False)
        draw_examples(axes[0, column], kind, noises)
        axes[0, column].set_title(title, fontweight="bold")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_examples(axis: plt.Axes, kind: str, noises: np.ndarray) -> None:
    """Four examples of the data side by side, from no noise to the most."""
    axis.set_axis_off()
    draw = PROBLEMS[kind][0]
    for place, noise in enumerate(noises[[0, 4, 10, 20]]):
        inset = axis.inset_axes((place * 0.255, 0.12, 0.235, 0.78))
        features, targets = draw(noise, 240, np.random.default_rng(0))
        if kind == "classification":
            for label, colour in enumerate(CLASS_COLOURS):
                inset.scatter(*features[targets == label].T, s=3, color=colour, lw=0)
        else:
            inset.scatter(features[:, 0], targets, s=3, color="#444444", lw=0)
        inset.set(xticks=[], yticks=[])
        inset.set_xlabel(f"noise {noise:g}", fontsize=9)
        for spine in inset.spines.values():
            spine.set(visible=True, color="#bbbbbb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "toy")
    parser.add_argument("--intercept", action="store_true", help="give the Laplace head its default intercept")
    arguments = parser.parse_args()
    OPTIONS["laplace"]["intercept"] = arguments.intercept
    arguments.out.mkdir(parents=True, exist_ok=True)

    found = measure(arguments.seeds, arguments.samples)
    summary = summarise(found)
    settings = {
        "seeds": arguments.seeds,
        "samples": arguments.samples,
        "laplace_intercept": arguments.intercept,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "scikit-learn": version("scikit-learn"),
    }
    noises = {kind: found[kind]["noise"] for kind in found}
    text = json.dumps({"settings": settings, "noise": noises, "results": summary}, indent=1)
    (arguments.out / "results.json").write_text(text + "\n")
    draw_figure(found, arguments.out / "toy.png")
    for kind, results in summary.items():
        for name, label in NAMES.items():
            first, last = results[name]["mean"][0], results[name]["mean"][-1]
            print(
                f"{kind:15s} {label:8s} {first:+.3f} -> {last:+.3f}  "
                f"rising steps {results[name]['steps_that_rise']:2d} of {len(noises[kind]) - 1}  "
                f"deviation/fall {results[name]['mean_deviation_over_fall']:.3f}  {results[name]['seconds']:.1f} s"
            )
        low, high = results["laplace_less_logme"]
        print(f"{kind:15s} Laplace less LogME: {low:.3g} to {high:.3g}")


if __name__ == "__main__":
    main()
