"""LogME and the metric of the task on samples left out, of every model on every set: `results/<set>.json`.

python experiments/left_out/run.py --limit 600
python experiments/left_out/run.py --sets trec sst2 --limit 600
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared_hub  # noqa: E402
from data_sets import CLASSIFICATION, REGRESSION, open_set  # noqa: E402
from references import CACHE, identifier  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=[*CLASSIFICATION, *REGRESSION])
    parser.add_argument("--limit", type=int, help="train samples, stratified; default all")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    import hubscout

    arguments.out.mkdir(parents=True, exist_ok=True)
    for set_name in arguments.sets:
        ranking = hubscout.rank(
            open_set(set_name),
            [identifier(name, set_name) for name in shared_hub.VISION],
            cache=CACHE / "features",
            precision="float32",
            limit=arguments.limit,
            measure_latency=False,
        )
        rows = {
            shared_hub.name_of(row.identifier): {
                "logme": row.score,
                "gain": row.gain,
                "expected": {found.metric: [found.value, found.low, found.high, found.guess] for found in row.expected},
            }
            for row in ranking
        }
        failures = {shared_hub.name_of(failure.identifier): failure.reason for failure in ranking.failures}
        found = {"set": set_name, "n": ranking.best.n, "limit": arguments.limit, "rows": rows, "failures": failures}
        (arguments.out / f"{set_name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(set_name, len(rows), failures, flush=True)


if __name__ == "__main__":
    main()
