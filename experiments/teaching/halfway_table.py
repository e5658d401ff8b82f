"""halfway_table.md out of results/halfway.jsonl and results/crossed_numbers.jsonl."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import crossed_numbers  # noqa: E402
from explore import MOST  # noqa: E402
from halfway import (  # noqa: E402
    CHOOSE,
    CHOOSING,
    HALF,
    JUDGING,
    LABELS,
    NO_KNOBS,
    NUMBERS_HALF,
    OUT,
    TAUGHT,
    TUNED,
    TUNED_ANSWERS,
    TUNED_FIRST,
    UNTRAINED,
)
from outcomes import table as markdown  # noqa: E402
from run import FEW, HEADS, TEXTS  # noqa: E402
from table import difference, title, told  # noqa: E402

Points = dict[str, dict[str, dict[int, float]]]
"""By case, method and seed: a metric times 100."""


def points(part: str, seeds: tuple[int, ...]) -> Points:
    """Of all runs with these seeds; one that diverged has 0."""
    found: Points = defaultdict(lambda: defaultdict(dict))
    for file in (OUT, crossed_numbers.OUT):
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if "failed" not in record and record["seed"] in seeds:
                value = record[part] if record["test"] is not None else 0.0
                found[record["case"]][record["method"]][record["seed"]] = 100 * value
    return found


def rows(found: Points, base: str, methods: dict[str, str], cases: list[str]) -> list[list[str]]:
    """A row per method: the base's own mean, and what others have over it with the same seeds."""
    table = []
    for name, called in methods.items():
        cells = []
        for case in cases:
            ours, theirs = found[case][name], found[case][base]
            both = ours.keys() & theirs.keys()
            if not both:
                cells.append("–")
            elif name == base:
                cells.append(f"{fmean(theirs.values()):.1f} ({len(theirs)})")
            elif len(both) < 3:
                cells.append(f"{fmean(ours[s] - theirs[s] for s in both):+.1f} ({len(both)})")
            else:
                cells.append(f"{told(*difference(ours, theirs))} ({len(both)})")
        table.append([called, *cells])
    return table


def chosen(found: Points, methods: dict[str, str]) -> list[str]:
    """What the rule looks at: means over the cases of what each has over fine-tuning, with seeds that all have."""
    gains: dict[str, list[float]] = defaultdict(list)
    for case in CHOOSE:
        shared = set.intersection(*(set(found[case][name]) for name in methods))
        for name in methods if shared else ():
            over = fmean(found[case][name][seed] - found[case][TUNED][seed] for seed in shared)
            gains[name].append(max(-MOST, min(MOST, over)))
    told = [f"{methods[name]} {fmean(over):+.2f} (least {min(over):+.1f})" for name, over in gains.items()]
    return ["", f"Means of {len(gains[TUNED])} cases, seeds that all have: {', '.join(told[1:])}."]


def part(header: str, found: Points, base: str, methods: dict[str, str], cases: list[str]) -> list[str]:
    named = [case for case in cases if found[case][base]]
    return ["", header, "", *markdown(["follows", *map(title, named)], rows(found, base, methods, named))]


def main() -> None:
    classes = {TUNED: "nobody: fine-tuning", TAUGHT: "teachers", HALF: "halfway", LABELS: "labels"}
    judged = {name: called for name, called in classes.items() if name != LABELS}
    others = {called: called for called in (TUNED_FIRST, TUNED_ANSWERS, *UNTRAINED.values())}
    numbers = {
        "numbers, fine-tune": classes[TUNED],
        "numbers, paper": classes[TAUGHT],
        NUMBERS_HALF: classes[HALF],
    }
    heads = {NO_KNOBS[name]: called for name, called in judged.items()}
    lines = [
        "# Teachers, labels, or halfway",
        "",
        "Made by `halfway_table.py`. Points over fine-tuning with the same seeds (accuracy or R² times 100; its own",
        "row is its own value); in brackets 95% intervals, and the number of seeds. Below three seeds there is none.",
        *part(
            "Classes, validation on unused train samples, which chooses:",
            points("validation", CHOOSING),
            TUNED,
            classes,
            list(CHOOSE),
        ),
        *chosen(points("validation", CHOOSING), classes),
        *part("Classes, test, which judges:", points("test", JUDGING), TUNED, judged | others, [TEXTS, *FEW]),
        *part(
            "Numbers, test, which chooses there:",
            points("test", crossed_numbers.SEEDS),
            "numbers, fine-tune",
            numbers,
            list(crossed_numbers.CHOOSE),
        ),
        *part("Numbers, test, which judges:", points("test", JUDGING), NO_KNOBS[TUNED], heads, [HEADS]),
    ]
    (HERE / "halfway_table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
