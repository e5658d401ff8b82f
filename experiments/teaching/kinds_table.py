"""kinds_table.md out of results/kinds.jsonl: what the rule of `kind_rule.py` chooses, and how that is judged."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from kind_rule import BASE, JUDGING, KD, KINDS, Kind, Run, results_of  # noqa: E402
from outcomes import table as markdown  # noqa: E402
from table import difference, title, told  # noqa: E402

FILE = HERE / "results" / "kinds.jsonl"
LEAST_SEEDS = 3


def chosen(kind: Kind, tests: dict[Run, float | None]) -> list[list[str]]:
    """A row for each candidate: points over fine-tuning on the cases that choose."""
    choice = {kind.choice(tests, kind.b_tuning), kind.choice(tests, KD)}
    rows = []
    for name in (*kind.b_tuning, *KD):
        gains = kind.gains(tests, name)
        cells = [f"{gains[case]:+.1f}" if case in gains else "–" for case in kind.choose]
        rows.append([f"**{name}**" if name in choice else name, *cells])
    return rows


def judged(kind: Kind, tests: dict[Run, float | None]) -> list[list[str]]:
    """A row for each method: fine-tuning's test metric times 100, and points over it with their intervals."""
    names = dict.fromkeys((BASE, *kind.b_tuning, *KD, "logit-kd, 0.3", "distill-weighted, 0.3"))
    rows = []
    for name in names:
        cells = []
        for case in kind.judge:
            ours, base = (
                {s: 100 * t for s in JUDGING if (t := tests.get((case, m, s))) is not None} for m in (name, BASE)
            )
            both = ours.keys() & base.keys()
            if not both:
                cells.append("–")
            elif name == BASE:
                cells.append(f"{fmean(base.values()):.1f} ({len(base)} seeds)")
            elif len(both) < LEAST_SEEDS:
                cells.append(f"{fmean(ours[s] - base[s] for s in both):+.1f} ({len(both)})")
            else:
                cells.append(f"{told(*difference(ours, base))} ({len(both)})")
        if set(cells) != {"–"}:
            rows.append([name, *cells])
    return rows


def main() -> None:
    records = [r for r in map(json.loads, FILE.read_text().splitlines()) if "failed" not in r]
    tests = results_of(records)
    metrics = {r["case"]: r["metric"].replace("_", " ") for r in records if "metric" in r}

    def titles(case: str) -> str:
        return f"{title(case)} ({metrics.get(case, 'not run')})"

    lines = [
        "# Strengths by kind of task",
        "",
        f"Made by `kinds_table.py` out of {len(records)} runs. Test metric times 100, less that of fine-tuning with",
        "the same seed. In brackets: 95% intervals, and the number of seeds; below three seeds there is no interval.",
    ]
    for name, kind in KINDS.items():
        lines += ["", f"## {name[0].upper()}{name[1:]}"]
        if kind.choose:
            lines += [
                "",
                "Chosen on these (bold):",
                "",
                *markdown(["candidate", *map(titles, kind.choose)], chosen(kind, tests)),
            ]
        lines += ["", "Judged on these:", "", *markdown(["method", *map(titles, kind.judge)], judged(kind, tests))]
    (HERE / "kinds_table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
