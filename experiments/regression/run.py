"""Fine-tuning of the lighter vision models on the regression sets, short enough for a CPU: results/references.jsonl.

    python experiments/regression/run.py --workers 2                     # sprites, then the head boxes of Pets
    python experiments/regression/run.py --workers 2 --sets sprites

Two learning rates for every model, then the next one beyond the better of the two (the lower one where both diverged),
through `experiments/references.py`. What is in the results already is not run again. LogME of these sets comes from
`experiments/classification/run.py layers --sets sprites pet-heads`. For whole splits, 300 steps and all models, on a
GPU: `python experiments/references.py --family regression --workers 12 --out FILE`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from outcomes import outcomes  # noqa: E402

MODELS = (
    "cifar10_resnet20",
    "cifar10_resnet32",
    "cifar10_resnet44",
    "cifar10_resnet56",
    "squeezenet1_1_in1k",
    "alexnet_features_in1k",
    "mobilenetv2_coral_in1k",
    "mobilenetv2_coral_inat_bird",
    "mobilenetv2_coral_inat_insect",
    "mobilenetv2_tfhub_in1k",
    "tf_efficientnet_lite0_in1k",
    "tf_efficientnet_lite1_in1k",
    "tf_efficientnet_lite2_in1k",
)
STEPS, ROWS = 100, 1000
FIRST_RATES = (0.004, 0.001)
BEYOND = {0.004: 0.016, 0.001: 0.0003}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=["sprites", "pet-heads"])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "references.jsonl")
    arguments = parser.parse_args()
    # The journals of a shorter protocol must not meet those of the usual one.
    usual = Path(os.environ.get("HUBSCOUT_EXPERIMENT_CACHE", Path.home() / ".cache" / "hubscout-experiments"))
    os.environ["HUBSCOUT_EXPERIMENT_CACHE"] = str(usual / "short-regression")
    import references

    arguments.out.parent.mkdir(parents=True, exist_ok=True)

    def run(set_name: str, models: list[str], rates: tuple[float, ...]) -> None:
        given = {"--sets": [set_name], "--models": models, "--rates": map(str, rates), "--decays": ["0"]}
        options = [word for name, values in given.items() for word in (name, *values)]
        sizes = ["--steps", str(STEPS), "--rows", str(ROWS), "--one-seed", "--workers", str(arguments.workers)]
        references.main(["--family", "regression", *options, *sizes, "--out", str(arguments.out)])

    for set_name in arguments.sets:
        run(set_name, list(arguments.models), FIRST_RATES)
        found = outcomes(arguments.out).get(set_name, {})
        third: dict[float, list[str]] = {rate: [] for rate in BEYOND.values()}
        for model in arguments.models:
            better = found[model].learning_rate if model in found else min(FIRST_RATES)
            third[BEYOND.get(better, better)].append(model)
        for rate, models in third.items():
            if models:
                run(set_name, models, (rate,))


if __name__ == "__main__":
    main()
