"""Scores of the text encoders by every metric, on every text set: `results/<set>.json`, through `hubscout.rank`.

    python experiments/language/run.py                     # all sets, 2000 train rows each; half an hour on one core
    python experiments/language/run.py --sets trec cr      # some of them
    python experiments/references.py --family text --workers 10 --out experiments/language/results/references.jsonl

The last line makes the other half, what fine-tuning gives, and wants a GPU. Features are kept under
$HUBSCOUT_EXPERIMENT_CACHE, so a second run is quick.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shared_hub
from data_sets import TEXT, open_set, results_folder
from scores import ZOO_LEVEL_OR_ONLINE, score_set

LIMIT = 2000
"""Rows of train, stratified, seed 0."""
SENTENCES = 500
"""Rows where they are sentences whose words are the samples: about 7000 words."""


def main() -> None:
    from hubscout.metrics import available

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(TEXT))
    arguments = parser.parse_args()
    results = results_folder(__file__)
    models = list(shared_hub.TEXT)
    for set_name in arguments.sets:
        kind = open_set(set_name).kind
        metrics = ["logme", *(name for name in available(kind) if name not in ("logme", *ZOO_LEVEL_OR_ONLINE))]
        limit = SENTENCES if kind == "tagging" else LIMIT
        found = score_set(set_name, models, metrics, layers=True, limit=limit, center=None)
        (results / f"{set_name}.json").write_text(json.dumps(found, indent=1) + "\n")
        if kind != "regression":  # which is centred as it is
            centred = score_set(set_name, models, ["logme"], layers=False, limit=limit, center=True)
            (results / f"{set_name}-centred.json").write_text(json.dumps(centred, indent=1) + "\n")
        print(f"{set_name}: {len(found['rows'])} models, {len(found['failures'])} failed", flush=True)
    whole = score_set("sst2", models, ["logme"], layers=False, limit=None, center=None)
    (results / "sst2-whole.json").write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
