"""LogME and sizes of all models on the train part of fold 0 of each set: what a race knows before its first rung.

python experiments/race/evidence.py [SET ...]       # results/evidence.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import run
import shared_hub
from references import vision_identifier

import hubscout as hs

FILE = Path(__file__).resolve().parent / "results" / "evidence.json"


def main(sets: list[str]) -> None:
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in sets or run.SETS:
        opened = {vision_identifier(model): model for model in shared_hub.VISION}
        ranking = hs.rank(run.fold(name, 0), list(opened), cache=False, measure_latency=False)
        found[name] = {
            opened[row.identifier]: {
                "logme": row.score,
                "standard_error": row.standard_error,
                "params": row.params,
                "flops": row.flops,
            }
            for row in ranking
        }
        FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
