"""passed_table.md out of results/passed.jsonl."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import passed  # noqa: E402
from outcomes import table as markdown  # noqa: E402
from passed import OPEN, SEEDS, TAUGHT, TUNED, WEAK, WEIGHED  # noqa: E402
from table import difference, told  # noqa: E402

RECORDS = list(map(json.loads, (HERE / "results" / "passed.jsonl").read_text().splitlines()))


def rows(cases: Sequence[str], methods: Sequence[str]) -> list[list[str]]:
    """Points of test over fine-tuning by case and method, and with how many of the seeds the teachers are followed."""
    tests: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    followed: dict[tuple[str, str], int] = defaultdict(int)
    for record in RECORDS:
        tests[record["case"], record["method"]][record["seed"]] = 100 * record["test"]
        followed[record["case"], record["method"]] += bool(record.get("followed"))
    found = []
    for case in cases:
        plain, cells = tests[case, TUNED], []
        for method in methods:
            if (case, method) not in tests:
                cells.append("–")
                continue
            cells.append(told(*difference(tests[case, method], plain)))
            if method in (OPEN, WEIGHED):
                cells[-1] += f" ({followed[case, method]})"
        found.append([case.replace("/", ", "), f"{fmean(plain.values()):.1f}", *cells])
    return found


def main() -> None:
    numbers = [name for name in (*passed.FRESH, passed.SICK, *passed.SEEN) if name not in passed.TAGS]
    lines = [
        "# Teachers of numbers and tags, as `tune` comes",
        "",
        f"Test metric times 100 (R² of numbers, F1 of tags) over {len(SEEDS)} seeds: fine-tuning, and points over it",
        "with 95% intervals paired by seed; bold: clear of zero. In brackets: seeds for which teachers are followed.",
        "",
    ]
    for title, cases, methods in (
        ("The second round, which judges", passed.JUDGING, (WEIGHED, TAUGHT)),
        ("The first round: numbers", numbers, (WEIGHED, OPEN, TAUGHT, WEAK)),
        ("The first round: tags", passed.TAGS, (OPEN, TAUGHT, WEAK)),
    ):
        lines += [f"## {title}", "", *markdown(["case", TUNED, *methods], rows(cases, methods)), ""]
    (HERE / "passed_table.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
