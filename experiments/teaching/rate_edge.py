"""Where the search for a learning rate ends at the edge of divergence: what half of the diverged rate is worth.

    python experiments/teaching/rate_edge.py fashion-mnist-500/cifar10_resnet20 "crossed, 6C" 1 2 3
    python experiments/teaching/rate_edge.py cr-300/paraphrase-MiniLM-L3-v2/unused fine-tune 1 --search

Each line of `results/rate_edge.jsonl` is a run without knobs (and without linear probes, which are no part of the
question): what the search said, the rate that it took, and the rate that it would have taken without halving. Where
they differ, a run at that other rate follows, a line without a reason. With `--search` nothing is trained after the
search: where no rate diverges, the search is what it was.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import kept
import run as teaching
from candidates import changed

from hubscout.tuning import tuning_run
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.rates import RateChoice, round_rate, search_rate

OUT = Path(__file__).resolve().parent / "results" / "rate_edge.jsonl"


class SearchedError(Exception):
    """Ends a run after its search."""


def tuned(case: teaching.Case, method: str, seed: int, rate: float | None = None) -> Any:
    """One run of a method with its own strength; at a given rate it has what a run without knobs has beside that."""
    options = dict(teaching.METHODS[method])
    strength, taught_by = options.pop("fixed", None), options.pop("teachers", 0)
    if strength is not None:
        task = teaching.open_task(case.set_name, case.train_samples, case.unused)
        options["trade_off"] = strength * (len(task.target_names) if options.pop("per_target", False) else 1)
    base = options.pop("method")
    teachers = [kept.opened_once(teaching.opened(name, case)) for name in case.teachers[:taught_by]]
    given = {"batch_size": TuningArguments.batch_size, "frozen_norm_statistics": True}
    with ExitStack() as changes:
        for change in changed(options):
            changes.enter_context(change)
        found = {**options, **({"no_knobs": True} if rate is None else given), "linear_probe": False}
        return teaching.tuned_run(case, case.student, teachers, base, rate or 0.0, seed=seed, **found)


def without_halving(reason: str, rate: float) -> float:
    """The rate that the search would have taken: one that is half of a diverged rate came after a quarter of it."""
    tried = {float(value): word for word, value in re.findall(r"(\S+) at ([\d.e-]*\d)", reason)}
    lower = round_rate(rate / 2)
    return lower if tried.get(round_rate(2 * rate)) == "divergence" and lower in tried else rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=teaching.CASES)
    parser.add_argument("method", choices=teaching.METHODS)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--search", action="store_true", help="End each run after its search.")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kept.share(teaching.CACHE / "kept")
    case, said = teaching.CASES[given.case], []

    def search(run: Any) -> RateChoice:
        said.append(search_rate(run))
        if given.search:
            raise SearchedError
        return said[-1]

    tuning_run.search_rate = search

    def tell(began: float, **values: Any) -> None:
        record = {"case": given.case, "method": given.method, **values}
        record["processor_seconds"] = round(time.process_time() - began, 1)
        with OUT.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)

    for seed in given.seeds:
        began = time.process_time()
        values: dict[str, float] = {}
        with suppress(SearchedError):
            values = measured(tuned(case, given.method, seed))
        rate, reason = said[-1].learning_rate, said[-1].reason
        other = without_halving(reason, rate)
        tell(began, seed=seed, rate=rate, **values, reason=reason, without_halving=other)
        if other != rate and not given.search:
            began = time.process_time()
            tell(began, seed=seed, rate=other, **measured(tuned(case, given.method, seed, other)))


def measured(result: Any) -> dict[str, float]:
    return {part: result.metric(part).value for part in ("validation", "test")}


if __name__ == "__main__":
    main()
