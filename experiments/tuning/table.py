"""table.md out of results/: the search of every method, and the final runs over seeds where there are any."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
from run import HERE, LEARNING_RATES, METHODS, load_results


def cell(record: dict | None) -> str:
    return "–" if record is None else f"{100 * record['validation']:.1f} / {100 * record['test']:.1f}"


def search_table(results: dict[str, dict]) -> list[str]:
    """One row a method and λ, one column a learning rate: accuracy on validation / test, in percent."""
    found = {(r["method"], r["trade_off"], r["learning_rate"]): r for r in results.values() if r["seed"] == 0}
    rates = [rate for rate in LEARNING_RATES if any(key[2] == rate for key in found)]
    lines = ["| method | λ | " + " | ".join(f"lr {rate:g}" for rate in rates) + " |", "|---" * (len(rates) + 2) + "|"]
    for method, off in sorted({key[:2] for key in found}, key=lambda key: (METHODS.index(key[0]), key[1] or 0)):
        cells = [cell(found.get((method, off, rate))) for rate in rates]
        lines.append(f"| {method} | {'–' if off is None else f'{off:g}'} | " + " | ".join(cells) + " |")
    return lines


def final_table(results: dict[str, dict]) -> list[str]:
    """Mean ± standard deviation over seeds; the difference from fine-tuning, paired by seed, with its 95% interval."""
    by_method: dict[str, dict[int, float]] = defaultdict(dict)
    for record in results.values():
        if record["seed"] > 0 and "error" not in record:
            by_method[record["method"]][record["seed"]] = 100 * record["test"]
    if not by_method:
        return ["No final runs yet."]
    lines = ["| method | seeds | test accuracy, % | ahead of fine-tuning |", "|---|---|---|---|"]
    base = by_method.get("fine-tune", {})
    for method in METHODS:
        if method not in by_method:
            continue
        values = np.array(list(by_method[method].values()))
        pairs = np.array([value - base[seed] for seed, value in by_method[method].items() if seed in base])
        ahead = "–"
        if method != "fine-tune" and len(pairs) > 1:
            from scipy import stats

            half = stats.t.ppf(0.975, len(pairs) - 1) * pairs.std(ddof=1) / np.sqrt(len(pairs))
            ahead = f"{pairs.mean():+.2f} [{pairs.mean() - half:+.2f}, {pairs.mean() + half:+.2f}]"
        spread = values.std(ddof=1) if len(values) > 1 else float("nan")
        lines.append(f"| {method} | {len(values)} | {values.mean():.2f} ± {spread:.2f} | {ahead} |")
    return lines


def main() -> None:
    results = load_results(HERE / "results")
    search = ["# Search, one seed: validation / test accuracy in percent", "", *search_table(results), ""]
    text = "\n".join([*search, "# Final runs", "", *final_table(results), ""])
    Path(HERE / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
