"""table.md and figure.png out of results/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
SETS = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST"}
BARS = {
    "bare_samples_per_second": ("bare forward passes", "#999999"),
    "decode_samples_per_second": ("decoding alone, in processes", "#e69f00"),
    "thread_decode_samples_per_second": ("decoding alone, in threads", "#f0e442"),
    "rank_samples_per_second": ("in the ranking", "#0072b2"),
}
DECODING = ("decode_samples_per_second", "thread_decode_samples_per_second")
"""Of the bars, those of models that decode images themselves."""


def load(name: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def decodes(found: dict[str, Any]) -> list[bool]:
    """Whether a model of the ranking decoded images itself or took those of a model before it."""
    keys = [model["preprocessing"] for model in found["models"]]
    return [key not in keys[:place] for place, key in enumerate(keys)]


def device_of(found: dict[str, Any]) -> str:
    return "CPU" if found["device"] == "cpu" else str(found["device"]).removeprefix("NVIDIA ")


def set_table(found: dict[str, Any]) -> list[str]:
    """What every model did alone and in the ranking; without processes, decoding is that of threads."""
    processes, threads = found.get("decoding_processes", 0), found["decoding_threads"]
    columns = [f"decoding alone in {processes} processes, images/s"] * (processes > 0)
    columns.append(f"decoding alone in {threads} threads, images/s")
    header = [
        *("model", "pixels", "LogME", "seconds", "rank, images/s", "bare forward, images/s", "rank / bare"),
        *(*columns, "rank / slower of the two"),
    ]
    lines = [
        f"# {SETS[found['set']]}: {found['n']:,} images through `rank`, {device_of(found)}",
        "",
        f"| {' | '.join(header)} |",
        "|---" * len(header) + "|",
    ]
    for model, itself in zip(found["models"], decodes(found), strict=True):
        rank, bare = model["rank_samples_per_second"], model["bare_samples_per_second"]
        decode = model["decode_samples_per_second"]
        rates = [decode, model["thread_decode_samples_per_second"]] if processes else [decode]
        limit = min(bare, decode) if itself else bare
        cells = [
            *(model["model"], str(model["pixels"][0]), f"{model['score']:.3f} ± {model['standard_error']:.3f}"),
            *(f"{model['seconds']:.1f}", f"{rank:,.0f}", f"{bare:,.0f}", f"{rank / bare:.0%}"),
            *(f"{rate:,.0f}" + " (not needed)" * (not itself) for rate in rates),
            f"{rank / limit:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    seconds, count = found["rank_seconds"], len(found["models"])
    passes = sum(found["n"] / model["bare_samples_per_second"] for model in found["models"])
    decoding = sum(
        found["n"] / model["decode_samples_per_second"]
        for model, itself in zip(found["models"], decodes(found), strict=True)
        if itself
    )
    lines += [
        "",
        f"The whole ranking of {count} model{'s' * (count > 1)} took {seconds:.1f} s ({found['open_seconds']:.1f} s "
        f"more to open the data): {count * found['n'] / seconds:,.0f} images/s. Alone, the forward passes take "
        f"{passes:.1f} s ({passes / seconds:.0%} of it) and decoding {decoding:.1f} s ({decoding / seconds:.0%}); the "
        f"two overlap. Peak memory of the ranking's own process: {found['peak_resident_bytes'] / 1e9:.1f} GB, on the "
        f"device {found['peak_device_bytes'] / 1e9:.1f} GB.",
    ]
    return [*lines, f"{found['note'].capitalize()}."] if found["note"] else lines


def imagenet_table(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "# A stream of ImageNet's shape",
        "",
        "| device | rows | D | classes | statistics | scoring | memory | on the device | ResNet-50's forward passes | "
        "statistics + scoring |",
        "|---" * 10 + "|",
    ]
    for cell in found:
        whole = cell["statistics_seconds"] + cell["scoring_seconds"]
        device = f"{cell['peak_device_bytes'] / 2**20:,.0f} MiB" if cell["peak_device_bytes"] else "–"
        lines.append(
            f"| {cell['device']} | {cell['n']:,} | {cell['dim']} | {cell['classes']} | "
            f"{cell['statistics_seconds']:.1f} s | {cell['scoring_seconds']:.1f} s | "
            f"{cell['peak_bytes'] / 2**20:,.0f} MiB | {device} | {cell['forward_seconds']:,.0f} s | "
            f"{whole / cell['forward_seconds']:.1%} of them |"
        )
    return [*lines, *[f"\n{cell['device']}: {cell['note']}" for cell in found if cell["note"]]]


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Images per second of every model: alone, decoding alone, and in the ranking."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(found), figsize=(8.5, 3.9), layout="constrained", squeeze=False, sharey=True)
    for axis, one in zip(axes[0], found, strict=True):
        places = np.arange(len(one["models"]))
        for offset, (key, (label, colour)) in enumerate(BARS.items()):
            shown = [
                model.get(key, np.nan) if key not in DECODING or itself else np.nan
                for model, itself in zip(one["models"], decodes(one), strict=True)
            ]
            # Dots: a bar on a logarithmic axis has no bottom, and its length says nothing.
            axis.plot(places + (offset - 1.5) * 0.15, shown, "o", color=colour, markersize=6, label=label)
        for place, itself in zip(places, decodes(one), strict=True):
            if not itself:
                axis.text(place, 1050, "images\nshared", ha="center", va="bottom", fontsize=6.5, color="0.3")
        names = [model["model"].removesuffix("_in1k").replace("_", "\n") for model in one["models"]]
        axis.set_xticks(places, names, fontsize=7.5)
        axis.set_title(f"{SETS[one['set']]}, {one['n']:,} images, {device_of(one)}", fontsize=10)
        axis.set_yscale("log")
        axis.set_ylim(bottom=1000)
        axis.grid(axis="y", alpha=0.3)
    axes[0, 0].set_ylabel("images per second")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=4, fontsize=8, loc="outside upper center")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    devices = ("cuda", "cpu")
    found = [one for name in SETS for device in devices if (one := load(f"{name}-{device}")) is not None]
    streams = [one for device in ("cuda", "cpu") if (one := load(f"imagenet-{device}")) is not None]
    parts = [*(set_table(one) for one in found), *([imagenet_table(streams)] if streams else [])]
    if not parts:
        print("no results yet")
        return
    text = "\n\n".join("\n".join(part) for part in parts) + "\n"
    (HERE / "table.md").write_text(text)
    print(text)
    if drawn := [one for one in found if one["device"] != "cpu"] or found:
        draw(drawn, HERE / "figure.png")


if __name__ == "__main__":
    main()
