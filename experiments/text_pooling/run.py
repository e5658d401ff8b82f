"""Where should the tuning of a text encoder start: at its class token, at the mean of its tokens, at its best layer?

    python experiments/text_pooling/run.py                                  # results/runs.jsonl; hours on one core
    python experiments/text_pooling/run.py --steps 20 60 --sets trec --models m3e-small
    python experiments/text_pooling/run.py --table                          # table.md

`head` is the sequence classifier of transformers (class token, then a layer of its own); `mean` the mean of the tokens,
by which models are ranked; `layer` the same of a network that ends at the layer which the ranking found best. Runs that
are on file are not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import shared_hub  # noqa: E402
from data_sets import open_set, results_folder, smaller  # noqa: E402

OUT = results_folder(__file__) / "runs.jsonl"
SETS = ("trec", "cr", "sst2")
MODELS = ("all-MiniLM-L6-v2", "paraphrase-MiniLM-L3-v2", "m3e-small")
ARMS = ("head", "mean", "layer")
STEPS = (0, 20, 100, 400)
"""0: the linear probe alone."""
ROWS = 300
"""Of each split."""


def best_layer(set_name: str, model: str, seed: int) -> tuple[int, float, float]:
    """The layer that ranking goes by, its expected accuracy, and that of the last layer."""
    import hubscout

    options: dict[str, Any] = {"cache": False, "measure_latency": False, "accelerate": "off", "progress": False}
    task, identifier = smaller(open_set(set_name), ROWS, seed), shared_hub.text_identifier(model)
    rows = [hubscout.rank(task, identifier, layer=layer, **options).best for layer in ("best", "final")]
    name = rows[0].layer
    accuracies = [row.expected[0].value for row in rows]
    return (int(name.rpartition(".")[2]) if name else -1), accuracies[0], accuracies[1]


def shorter(model: str, layers: int, folder: Path) -> str:
    """The encoder without the blocks past a layer, saved in a folder."""
    from transformers import AutoModel, AutoTokenizer

    source = shared_hub.text_identifier(model).removeprefix("file:")
    network = AutoModel.from_pretrained(source, add_pooling_layer=False)
    network.encoder.layer = network.encoder.layer[:layers]
    network.config.num_hidden_layers = layers
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return f"file:{folder}?pooling=mean"


def run(set_name: str, model: str, arm: str, steps: int, seed: int) -> dict[str, Any]:
    """One run: what it gives on validation and test, without the probe where there are steps."""
    import hubscout

    task = smaller(open_set(set_name), ROWS, seed)
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        identifier = shared_hub.text_identifier(model, pooling=arm if arm != "layer" else "mean")
        if arm == "layer":
            layer, told["expected"], told["expected_last"] = best_layer(set_name, model, seed)
            told["layer"] = layer
            if layer > 0:
                identifier = shorter(model, layer, Path(scratch))
        tuned = hubscout.tune(
            task,
            identifier,
            method="fine-tune",
            steps=steps or 1,
            linear_probe=steps == 0,
            batch_size=16,
            seed=seed,
            workers=0,
            bootstrap_resamples=5,
            progress=False,
        )
    if steps:
        found = {split: next(iter(metrics.values())).value for split, metrics in tuned.metrics.items()}
    else:
        probe = tuned.curves[-1]["probes"]["model"]["metrics"]
        found = {split: next(iter(metrics.values())) for split, metrics in probe.items()}
    return {"set": set_name, "model": model, "arm": arm, "steps": steps, "seed": seed, **told, **found}


def finished() -> list[dict[str, Any]]:
    """The runs on file."""
    return [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []


def table() -> Iterator[str]:
    """Mean test accuracy over seeds: of training, and of the better of it and the probe by validation.

    The seeds are those that `head` and `mean` have; `layer` may have fewer.
    """
    found = {(r["set"], r["model"], r["arm"], r["steps"], r["seed"]): r for r in finished()}
    yield "| set | model | steps | seeds | " + " | ".join(f"{arm}, trained | {arm}, kept" for arm in ARMS) + " |"
    yield "|---" * (4 + 2 * len(ARMS)) + "|"
    for set_name, model, steps in product(SETS, MODELS, STEPS):
        seeds = [s for s in range(9) if all((set_name, model, arm, steps, s) in found for arm in ARMS[:2])]
        if not seeds:
            continue
        cells = []
        for arm in ARMS:
            own = [seed for seed in seeds if (set_name, model, arm, steps, seed) in found]
            if not own:
                cells += ["", ""]
                continue
            runs = [found[set_name, model, arm, steps, seed] for seed in own]
            probes = [found[set_name, model, arm, 0, seed] for seed in own]
            kept = [max(pair, key=lambda one: one["validation"])["test"] for pair in zip(runs, probes, strict=True)]
            cells += [f"{100 * mean(one['test'] for one in runs):.1f}", f"{100 * mean(kept):.1f}"]
        yield f"| {set_name} | {model} | {steps or 'probe'} | {len(seeds)} | {' | '.join(cells)} |"


def main() -> None:
    """Make the runs that are missing, or the table of those that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--arms", nargs="+", default=ARMS)
    parser.add_argument("--steps", nargs="+", type=int, default=STEPS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        (HERE / "table.md").write_text("\n".join(table()) + "\n")
        return
    for seed, steps, set_name, model, arm in product(asked.seeds, asked.steps, asked.sets, asked.models, asked.arms):
        there = {(r["set"], r["model"], r["arm"], r["steps"], r["seed"]) for r in finished()}
        if (set_name, model, arm, steps, seed) not in there:
            made = run(set_name, model, arm, steps, seed)
            with OUT.open("a") as file:
                file.write(json.dumps(made) + "\n")
            print(made, flush=True)


if __name__ == "__main__":
    main()
