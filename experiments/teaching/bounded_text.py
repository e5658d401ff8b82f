"""Whether the default, with its bound, is behind fine-tuning on TREC at searched rates, as 6·C without the bound was.

    python experiments/teaching/bounded_text.py        # goes on where it stopped; an hour on a core

Four rates with the seed of the search, then five fresh seeds at the best by validation, as in `run.py`, and fine-tuning
at the rate that was found for it there; on a CPU (float32), so that these runs are compared with each other alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import run  # noqa: E402

OUT = HERE / "results" / "bounded_text.jsonl"
FINE_TUNED = run.Setting(run.TEXTS, "fine-tune", 0.00015, None, 0)


def main() -> None:
    done = {r["key"]: r for r in map(json.loads, OUT.read_text().splitlines())} if OUT.is_file() else {}

    def made(setting: run.Setting) -> dict[str, Any]:
        if setting.key not in done:
            done[setting.key] = run.work(setting)
            with OUT.open("a") as file:
                file.write(json.dumps(done[setting.key]) + "\n")
            print(setting.method, setting.learning_rate, setting.seed, done[setting.key].get("test"), flush=True)
        return done[setting.key]

    searched = run.search(run.TEXTS, run.BOUNDED)
    best = max(searched, key=lambda setting: made(setting)["validation"])
    for seed in run.SEEDS:
        for setting in (FINE_TUNED, best):
            made(run.replace(setting, seed=seed))


if __name__ == "__main__":
    main()
