"""Raw results of the contrastive models: scores by `hubscout.rank`, reference by fine-tuning through `reference`.

    python experiments/contrastive/run.py scores
    python experiments/contrastive/run.py references --workers 12

The weights come from `pretrain.py`. Both go on where they stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import references  # noqa: E402
import scores  # noqa: E402
from data_sets import open_set  # noqa: E402
from models import WEIGHTS  # noqa: E402

RESULTS = HERE / "results"
CLASSIFICATION = ["logme", "linear-probe", "knn", "h-score", "n-leep", "sfda"]
REGRESSION = ["logme", "linear-probe", "knn"]
FAMILIES = {"contrastive": "references.jsonl", "contrastive-regression": "references-regression.jsonl"}


def score(set_names: list[str]) -> None:
    """Every model on every set; metrics that need a head of classes cannot score contrastive models."""
    for set_name in set_names:
        metrics = REGRESSION if open_set(set_name).kind == "regression" else CLASSIFICATION
        found = scores.score_set(set_name, list(references.RESNET20S), metrics, layers=False, limit=None, center=None)
        (RESULTS / f"scores-{set_name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{set_name}: {len(found['rows'])} models, failed: {found['failures']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["scores", "references"])
    parser.add_argument("--sets", nargs="*", help="default: all")
    parser.add_argument("--workers", type=int, default=1, help="for the references")
    parser.add_argument("--out", type=Path, default=RESULTS, help="for the references")
    arguments, more = parser.parse_known_args()
    protocols = {family: references.PROTOCOLS[family] for family in FAMILIES}
    wanted = arguments.sets or [name for protocol in protocols.values() for name in protocol.sets]
    RESULTS.mkdir(exist_ok=True)
    if arguments.what == "scores":
        log = WEIGHTS / "pretraining.jsonl"
        if log.is_file():
            shutil.copy(log, RESULTS / log.name)
        score(wanted)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    for family, file in FAMILIES.items():
        sets = [name for name in protocols[family].sets if name in wanted]
        if sets:
            out = str(arguments.out / file)
            references.main(
                ["--family", family, "--sets", *sets, "--workers", str(arguments.workers), "--out", out, *more]
            )


if __name__ == "__main__":
    main()
