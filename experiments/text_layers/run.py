"""LogME of the last layer, of every layer and of their mean, and for tags of first, last and mean tokens.

    python experiments/text_layers/run.py            # results/scores.json; ten minutes on one core
    python experiments/text_layers/run.py --sets trec cr
    python experiments/text_layers/run.py --cost     # results/cost.json: processor seconds of ranking by each

The references, what fine-tuning gives, are those of `experiments/language`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import shared_hub  # noqa: E402
from data_sets import open_set  # noqa: E402

OUT = HERE / "results" / "scores.json"
SETS = ("sst2", "trec", "agnews", "cr", "sick", "conll2003")
LIMIT, SENTENCES = 1000, 300
"""Rows of train, stratified, seed 0; where words are the rows, sentences."""


def score(set_name: str) -> dict[str, Any]:
    """By way of pooling words and model: LogME of the last layer, of each layer and of the mean, and seconds."""
    import hubscout

    task = open_set(set_name)
    tagging = task.kind == "tagging"
    found: dict[str, Any] = {}
    for words in ("first", "last", "mean") if tagging else ("first",):
        for model in shared_hub.TEXT:
            cpu = time.process_time()
            row = hubscout.rank(
                task,
                shared_hub.text_identifier(model, words=words),
                layers=("all", "mean"),
                limit=SENTENCES if tagging else LIMIT,
                cache=False,
                measure_latency=False,
                accelerate="off",
                progress=False,
            ).best
            found.setdefault(words, {})[model] = {
                "layers": {layer.name or "final": layer.score for layer in row.layers},
                "n": row.n,
                "cpu_seconds": time.process_time() - cpu,
            }
    return found


def cost() -> dict[str, list[float]]:
    """Processor seconds of ranking one encoder on 300 questions of TREC from nothing, twice."""
    import hubscout

    task, model = open_set("trec"), shared_hub.text_identifier(shared_hub.TEXT[0])
    seconds: dict[str, list[float]] = {"final": [], "mean": [], "best": []}
    hubscout.rank(
        task, model, limit=20, cache=False, measure_latency=False, progress=False
    )  # imports are nobody's cost
    for _ in range(2):
        for layer, found in seconds.items():
            started = time.process_time()
            hubscout.rank(
                task,
                model,
                layer=layer,
                limit=300,
                cache=False,
                measure_latency=False,
                accelerate="off",
                progress=False,
            )
            found.append(time.process_time() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--cost", action="store_true")
    arguments = parser.parse_args()
    OUT.parent.mkdir(exist_ok=True)
    if arguments.cost:
        (OUT.parent / "cost.json").write_text(json.dumps(cost(), indent=1) + "\n")
        return
    known = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for set_name in arguments.sets:
        known[set_name] = score(set_name)
        OUT.write_text(json.dumps(known, indent=1) + "\n")
        print(set_name, flush=True)


if __name__ == "__main__":
    main()
