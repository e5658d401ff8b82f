"""table.md out of results/: by variant how often validation ended below the linear probe, and what it came to."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import norms  # noqa: E402
from outcomes import table as markdown  # noqa: E402

FINE_TUNED, EARLIER, UNTAUGHT = "defaults", "earlier defaults", "b-tuning without teachers"
"""Earlier: norms move in runs of more than 300 steps; a third, once and three times the default rate are tried."""
LARGE = 2
"""Points."""
Cell = tuple[str, str]
"""A model and a set."""


def main() -> None:
    lines = (HERE / "results" / "runs.jsonl").read_text().splitlines()
    records = list({record["key"]: record for record in map(json.loads, lines)}.values())
    by_size: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        by_size[record["steps"], record["rows"], record["pixels"] or "–"].append(record)
    lines = [
        "# Tuning without knobs, against the linear probe",
        "",
        "Points of validation that training reached over the linear probe of the frozen features, and points of test",
        "of what `tune` gives (which keeps the probe where training never reached it). Means over the runs.",
        "",
    ]
    for (steps, rows, pixels), found in sorted(by_size.items(), key=str):
        length = f"{steps} steps" if steps else "20 passes over the train split, as without `--steps`"
        lines += [f"## {length}, {rows or 'all'} rows, {pixels} px", "", *table(found), ""]
        if not steps:
            for variant in (FINE_TUNED, UNTAUGHT, EARLIER):
                if here := [record for record in found if record["variant"] == variant]:
                    lines += [f"### {variant.capitalize()}", "", *whole_sweep(here)]
            lines += changes(found, FINE_TUNED, UNTAUGHT) + changes(found, EARLIER, FINE_TUNED)
            continue
        lines += ["By model and set, points of validation reached over the probe:", "", *by_cell(found), ""]
    lines += same_searches(records)
    lines += ["## Norms that keep the statistics they came with, less norms that move", ""]
    whole = [gain for gain in norms.gains(records) if not gain.steps]
    if whole:
        lines += ["20 passes over the train split; points of validation that training reached and of test.", ""]
        for title, name in (("set", "set_name"), ("model", "model")):
            lines += [*markdown([title, "pairs", "ahead", "reached", "result"], norms.by(whole, name)), ""]
        lines += ["Runs of a number of steps:", ""]
    found = [gain for gain in norms.gains(records) if gain.steps]
    lines += ["Points of validation that training reached, and of test of what `tune` gives; pairs of runs.", ""]
    for title, name in (("set", "set_name"), ("model", "model"), ("steps", "steps")):
        lines += [*markdown([title, "pairs", "ahead", "reached", "result"], norms.by(found, name)), ""]
    lines += ["Statistics are kept …", "", *markdown(["when", "reached", "result"], norms.rules(found)), ""]
    for title, name in (("sets", "set_name"), ("models", "model")):
        lines += [f"Chosen on the other {title} by what training reached, judged on the one left out:", ""]
        lines += [*markdown(["left out", "kept", "reached", "result"], norms.left_out(found, name)), ""]
    (HERE / "table.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def whole_sweep(records: list[dict[str, Any]]) -> list[str]:
    """By model and set what a user gets over the linear probe, on test; and where that is below it."""
    sets = list(dict.fromkeys(record["set_name"] for record in records))
    models = list(dict.fromkeys(record["model"] for record in records))
    gaps = {(r["model"], r["set_name"]): result_over_probe(r) for r in records}
    rows = []
    for model in models:
        cells = [gaps.get((model, name), "–") for name in sets]
        rows.append([model, *(cell if isinstance(cell, str) else f"{cell:+.1f}" for cell in cells)])
    lines = ["Points of test over the linear probe, by model and set (about 0 where the probe was kept):", ""]
    lines += [*markdown(["model", *sets], rows), ""]
    below = sorted((gap, cell) for cell, gap in gaps.items() if not isinstance(gap, str) and gap < 0)
    kept = sum(any("the result is that probe" in note for note in record.get("notes", ())) for record in records)
    lines += [f"The probe was kept in {kept} of {len(gaps)} cells; below it on test in {len(below)}:", ""]
    lines += [*markdown(["model", "set", "points"], [[*cell, f"{gap:+.1f}"] for gap, cell in below]), ""]
    rates = Counter((record["modality"], record["learning_rate"]) for record in map(with_modality, records) if record)
    chosen = [[modality, f"{rate:g}", str(count)] for (modality, rate), count in sorted(rates.items())]
    return [*lines, "Learning rates that the search chose:", "", *markdown(["data", "rate", "cells"], chosen), ""]


def pairs_of(records: list[dict[str, Any]], earlier: str, later: str) -> dict[Cell, tuple[dict[str, Any], ...]]:
    """The runs of two variants on the same model and set."""
    by_variant = {
        variant: {(r["model"], r["set_name"]): r for r in records if r["variant"] == variant and "reached" in r}
        for variant in (earlier, later)
    }
    both = by_variant[later].keys() & by_variant[earlier].keys()
    return {cell: (by_variant[earlier][cell], now) for cell, now in by_variant[later].items() if cell in both}


def gain(before: dict[str, Any], now: dict[str, Any]) -> float:
    """Points of test of one run over another."""
    return 100 * float(now["result"]["test"] - before["result"]["test"])


def same_searches(records: list[dict[str, Any]]) -> list[str]:
    """B-Tuning without teachers over fine-tuning, where the search for a rate cannot be what makes the difference."""
    whole = [record for record in records if not record["steps"] and record["rows"] is None]
    pairs = pairs_of(whole, FINE_TUNED, UNTAUGHT)
    kinds = {
        "all": pairs,
        "searched alike": {
            c: two for c, two in pairs.items() if short_steps(two[0]) == short_steps(two[1]) is not None
        },
        "at the same rate": {c: two for c, two in pairs.items() if two[0]["learning_rate"] == two[1]["learning_rate"]},
    }
    rows = []
    for name in (*dict.fromkeys(name for _, name in pairs), "all sets"):
        cells = []
        for found in kinds.values():
            gains = [gain(*two) for cell, two in found.items() if name in (cell[1], "all sets")]
            cells += [str(len(gains)), f"{fmean(gains):+.2f}" if gains else "–"]
        rows.append([name, *cells])
    counts = []
    for name, found in kinds.items():
        gains = [gain(*two) for two in found.values()]
        counts.append([name, *(str(sum(sign * points >= LARGE for points in gains)) for sign in (1, -1))])
    return [
        f"## {UNTAUGHT.capitalize()} over {FINE_TUNED}, by how the rates were found",
        "",
        "Points of test, all rows. The runs of fine-tuning are older, and many searched for a rate in another form.",
        "Searched alike, as far as notes tell: short runs of as many steps, and no rate of fine-tuning was turned down",
        "because its lead in accuracy was too small. At the same rate: both searches chose the same one.",
        "",
        *markdown(["set", *(part for name in kinds for part in (f"cells, {name}", "points"))], rows),
        "",
        *markdown(["cells", f"gain {LARGE} or more", f"lose {LARGE} or more"], counts),
        "",
    ]


def short_steps(record: dict[str, Any]) -> int | None:
    """How long the short runs were that chose the rate; None where accuracy had to be clearly ahead as well."""
    notes = " ".join(record["notes"])
    found = re.search(r"Short runs of (\d+) steps", notes)
    return int(found[1]) if found and "than the standard error" not in notes else None


def changes(records: list[dict[str, Any]], earlier: str, later: str) -> list[str]:
    """What one variant gives over another, on test: by set, and cell by cell."""
    rows, by_set = [], defaultdict(list)
    for cell, (before, now) in pairs_of(records, earlier, later).items():
        by_set[cell[1]].append(gain(before, now))
        rates = f"{before['learning_rate']:g} → {now['learning_rate']:g}"
        values = (f"{100 * r['result']['test']:.1f}" for r in (before, now))
        rows.append([*cell, *values, f"{gain(before, now):+.1f}", rates])
    if not rows:
        return []
    gains = [gain for found in by_set.values() for gain in found]
    lost, won = (sum(sign * points >= LARGE for points in gains) for sign in (-1, 1))
    head = f"### {later.capitalize()} over {earlier}"
    text = f"{fmean(gains):+.1f} points of test in the mean of {len(gains)} cells; "
    text += f"{won} gain {LARGE} or more, {lost} lose them."
    sets = [[name, str(len(found)), f"{fmean(found):+.2f}"] for name, found in by_set.items()]
    lines = [head, "", text, "", *markdown(["set", "cells", "points"], sets), ""]
    return [*lines, *markdown(["model", "set", "before", "after", "points", "rate"], rows), ""]


def result_over_probe(record: dict[str, Any]) -> float | str:
    if "reached" not in record:
        return "diverged"
    return 100 * (record["result"]["test"] - record["probe"]["test"])


def with_modality(record: dict[str, Any]) -> dict[str, Any] | None:
    return {**record, "modality": "text" if record["pixels"] is None else "images"} if "reached" in record else None


def table(records: list[dict[str, Any]]) -> list[str]:
    lines = ["| variant | runs | diverged | started anew | below the probe | reached | result |", "|---" * 7 + "|"]
    for variant in dict.fromkeys(record["variant"] for record in records):
        runs = [record for record in records if record["variant"] == variant]
        whole = [record for record in runs if "reached" in record]
        reached = [100 * (r["reached"] - r["probe"]["validation"]) for r in whole]
        result = [100 * (r["result"]["test"] - r["probe"]["test"]) for r in whole]
        lines.append(
            f"| {variant} | {len(runs)} | {len(runs) - len(whole)} | {sum(r['restarts'] > 0 for r in whole)} | "
            f"{sum(gap < 0 for gap in reached)} | {fmean(reached):+.1f} | {fmean(result):+.1f} |"
        )
    return lines


def by_cell(records: list[dict[str, Any]]) -> list[str]:
    variants = list(dict.fromkeys(record["variant"] for record in records))
    lines = ["| model | set | probe | " + " | ".join(variants) + " |", "|---" * (3 + len(variants)) + "|"]
    cells = dict.fromkeys((record["model"], record["set_name"]) for record in records if "reached" in record)
    for model, name in cells:
        here = [r for r in records if (r["model"], r["set_name"]) == (model, name) and "reached" in r]
        probe = 100 * fmean(r["probe"]["validation"] for r in here)
        gaps = []
        for variant in variants:
            found = [100 * (r["reached"] - r["probe"]["validation"]) for r in here if r["variant"] == variant]
            gaps.append(f"{fmean(found):+.1f}" if found else "–")
        lines.append(f"| {model} | {name} | {probe:.1f} | " + " | ".join(gaps) + " |")
    return lines


if __name__ == "__main__":
    main()
