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
    "decode_samples_per_second": ("decoding and resizing alone", "#e69f00"),
    "rank_samples_per_second": ("rank, end to end", "#0072b2"),
}


def load(name: str) -> dict[str, Any] | None:
    path = HERE / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def decodes(found: dict[str, Any]) -> list[bool]:
    """Whether a model of the ranking decoded images itself or took those of a model before it."""
    keys = [model["preprocessing"] for model in found["models"]]
    return [key not in keys[:place] for place, key in enumerate(keys)]


def set_table(found: dict[str, Any]) -> list[str]:
    lines = [
        f"# {SETS[found['set']]}: {found['n']:,} images through `rank`, {found['device']}",
        "",
        "| model | pixels | LogME | rank, images/s | bare forward, images/s | rank / bare | decoding alone, images/s | "
        "rank / slower of the two |",
        "|---" * 8 + "|",
    ]
    for model, itself in zip(found["models"], decodes(found), strict=True):
        rank, bare = model["rank_samples_per_second"], model["bare_samples_per_second"]
        decode = model["decode_samples_per_second"]
        limit = min(bare, decode) if itself else bare
        lines.append(
            f"| {model['model']} | {model['pixels'][0]} | {model['score']:.3f} ± {model['standard_error']:.3f} | "
            f"{rank:,.0f} | {bare:,.0f} | {rank / bare:.0%} | {f'{decode:,.0f}' if itself else 'shared'} | "
            f"{rank / limit:.0%} |"
        )
    seconds = found["rank_seconds"]
    passes = sum(found["n"] / model["bare_samples_per_second"] for model in found["models"])
    decoding = sum(
        found["n"] / model["decode_samples_per_second"]
        for model, itself in zip(found["models"], decodes(found), strict=True)
        if itself
    )
    return [
        *lines,
        "",
        f"The whole ranking of {len(found['models'])} models took {seconds:.1f} s ({found['open_seconds']:.1f} s more "
        f"to open the data): {len(found['models']) * found['n'] / seconds:,.0f} images/s. Alone, the forward passes "
        f"take {passes:.1f} s ({passes / seconds:.0%} of it) and decoding {decoding:.1f} s ({decoding / seconds:.0%}), "
        f"in {found['decoding_threads']} threads; the two overlap. Peak memory: "
        f"{found['peak_resident_bytes'] / 1e9:.1f} GB, on the device {found['peak_device_bytes'] / 1e9:.1f} GB.",
    ]


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
    """Images a second of every model: alone, decoding alone, and in the ranking."""
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(found), figsize=(7.5, 3.6), layout="constrained", squeeze=False, sharey=True)
    for axis, one in zip(axes[0], found, strict=True):
        places = np.arange(len(one["models"]))
        for offset, (key, (label, colour)) in enumerate(BARS.items()):
            shown = [
                model[key] if key != "decode_samples_per_second" or itself else np.nan
                for model, itself in zip(one["models"], decodes(one), strict=True)
            ]
            axis.bar(places + (offset - 1) * 0.27, shown, 0.25, color=colour, label=label)
        names = [model["model"].partition("_in1k")[0].replace("_", "\n", 1) for model in one["models"]]
        axis.set_xticks(places, names, fontsize=7)
        axis.set_title(f"{SETS[one['set']]}, {one['n']:,} images", fontsize=10)
        axis.set_yscale("log")
    axes[0, 0].set_ylabel("images a second")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, fontsize=8, loc="outside upper center")
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
    if found:
        draw(found, HERE / "figure.png")


if __name__ == "__main__":
    main()
