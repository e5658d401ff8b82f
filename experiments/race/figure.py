"""The figure of the race: points lost and tau against cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from replay import Outcome

SERIES = {
    "LogME, and its first k tuned fully": (
        "tab:green",
        "s-",
        {"LogME": "LogME", "LogME's first 3, tuned fully": "k = 3", "LogME's first 6, tuned fully": "k = 6"},
    ),
    "short runs of all, 3 rates": (
        "tab:blue",
        "D-",
        {f"validation after {steps} steps, 3 rates": f"{steps} steps" for steps in (15, 45, 110)},
    ),
    "short runs, the first 3 tuned fully": (
        "tab:cyan",
        "D-",
        {f"after {steps} steps, the first 3 tuned fully": f"{steps}, then 3" for steps in (15, 45)},
    ),
    "race, replayed on fold 0 (chosen there)": (
        "tab:orange",
        "o-",
        {f"race at {share}%, replayed on fold 0": f"{share}%" for share in ("2", "3", "5", "7.5", "10")},
    ),
    "race, run on fold 3": (
        "tab:red",
        "*-",
        {"race at 3%, run on fold 3": "race, 3%", "race at 10%, run on fold 3": "race, 10%"},
    ),
    "brute force": ("black", "o", {"brute force: 5 rates, 300 steps": "brute force"}),
}
SIDES = {
    "LogME": (0, -14, "center"),
    "race, 3%": (0, -15, "center"),
    "race, 10%": (10, -6, "left"),
    "2%": (-8, -3, "right"),
    "3%": (8, -4, "left"),
    "7.5%": (-8, -8, "right"),
    "10%": (9, 1, "left"),
    "k = 6": (9, -4, "left"),
    "15 steps": (9, -4, "left"),
    "45 steps": (9, -4, "left"),
    "110 steps": (9, -4, "left"),
    "15, then 3": (-9, -4, "right"),
    "45, then 3": (9, -4, "left"),
}
"""Where labels stand that would stand on something else."""


def draw(found: Mapping[str, Outcome], file: Path) -> None:
    """Two panels: points lost by taking the first, and weighted tau."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(13, 5.6), layout="constrained")
    for axis, field in zip(axes, ("lost", "tau"), strict=True):
        for label, (colour, style, names) in SERIES.items():
            points = [(found[name].cost, getattr(found[name], field), text) for name, text in names.items()]
            size = 13 if "*" in style else 6
            axis.plot(*list(zip(*points, strict=True))[:2], style, color=colour, label=label, markersize=size, lw=1)
            for cost, value, text in points:
                x, y, side = SIDES.get(text, (0, 8, "center"))
                axis.annotate(
                    text, (cost, value), (x, y), textcoords="offset points", fontsize=8, ha=side, color=colour
                )
        axis.axhline(getattr(found["brute force: 5 rates, 300 steps"], field), color="black", lw=0.7, ls=":")
        axis.set_xscale("log")
        axis.set_xlim(0.005, 1.6)
        axis.set_xlabel("cost in steps, brute force = 1")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("points of test accuracy lost by taking the first")
    axes[0].set_ylim(0, 1.75)
    axes[1].set_ylabel("weighted tau")
    axes[1].set_ylim(0.5, 0.9)
    order = found["random order"]
    axes[0].text(0.0055, 1.68, f"random order: {order.lost:.1f} points, tau {order.tau:.2f}", fontsize=8, va="top")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    figure.savefig(file, dpi=130)
