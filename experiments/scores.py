"""Scores of every model on a set by every metric, through `hubscout.rank`: one JSON a set.

    python experiments/scores.py --sets pets cifar10 --out experiments/classification/results
    python experiments/scores.py --sets sprites --layers --out ...      # LogME of every layer as well

Features are kept in $HUBSCOUT_EXPERIMENT_CACHE/features, so that another metric costs no extraction.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import shared_hub
from data_sets import TEXT, open_set
from references import CACHE, identifier

ZOO_LEVEL_OR_ONLINE = ("popularity",)
"""Metrics that cannot be had here: there is no hub to ask."""


def score_set(
    set_name: str, models: list[str], metrics: list[str], *, layers: bool, limit: int | None, center: bool | None
) -> dict[str, Any]:
    """Everything that the tables need of a ranking, by names instead of paths."""
    import hubscout

    ranking = hubscout.rank(
        open_set(set_name),
        [identifier(name, set_name) for name in models],
        metrics=metrics,
        layers="all" if layers else None,
        cache=CACHE / "features",
        precision="float32",
        limit=limit,
        center=center,
        measure_latency=False,
    )
    rows = {
        shared_hub.name_of(row.identifier): {
            "scores": dict(row.scores),
            "standard_error": row.standard_error,
            "gain": row.gain,
            "layers": {layer.name: layer.score for layer in row.layers},
            "params": row.params,
            "flops": row.flops,
            "feature_dim": row.feature_dim,
            "seconds": row.seconds,
            "notes": [note.replace(row.identifier, shared_hub.name_of(row.identifier)) for note in row.notes],
        }
        for row in ranking
    }
    failures = {shared_hub.name_of(f.identifier): f.reason for f in ranking.failures}
    return {"set": set_name, "n": len(open_set(set_name).train), "limit": limit, "rows": rows, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--metrics", nargs="*", help="default: all that serve the kind of task")
    parser.add_argument("--layers", action="store_true", help="LogME of every layer too")
    parser.add_argument("--center", action="store_true")
    parser.add_argument("--limit", type=int, help="train samples, stratified; default all")
    parser.add_argument("--suffix", default="", help="of the file's name")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    from hubscout.metrics import available

    arguments.out.mkdir(parents=True, exist_ok=True)
    for set_name in arguments.sets:
        kind = open_set(set_name).kind
        metrics = arguments.metrics or [
            "logme",
            *(name for name in available(kind) if name not in ("logme", *ZOO_LEVEL_OR_ONLINE)),
        ]
        models = arguments.models or list(shared_hub.TEXT if set_name in TEXT else shared_hub.VISION)
        found = score_set(
            set_name, models, metrics, layers=arguments.layers, limit=arguments.limit, center=arguments.center or None
        )
        path = arguments.out / f"{set_name}{arguments.suffix}.json"
        path.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{path}: {len(found['rows'])} models, {len(found['failures'])} failed", flush=True)


if __name__ == "__main__":
    main()
