"""How far Zoo-Tuning's mixtures are from the target before the first step: results/mixtures.json.

python experiments/tuning/mixtures.py
"""

from __future__ import annotations

import json

import torch
from run import HERE, MOBILENETS, TARGET, open_task, vision_identifier

from hubscout.hubs import load
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.frozen_features import FrozenFeatures
from hubscout.tuning.methods import METHODS, Preparation

SHARES = (0.95, 0.99, 0.999)
IMAGES = 32


def main() -> None:
    task = open_task("cifar10").subset(IMAGES, seed=0)
    found = {}
    for share in SHARES:
        plain, target, *teachers = (load(vision_identifier(name)) for name in (TARGET, TARGET, *MOBILENETS))
        arguments = TuningArguments(zoo_lite=True, zoo_start=share)
        METHODS["zoo"]().prepare(
            Preparation(task, target, teachers, arguments, torch.device("cpu"), FrozenFeatures(task, "cpu"))
        )
        prepared = [plain.preprocessing(task.train.inputs[row]) for row in range(IMAGES)]
        batch = plain.preprocessing.collate(prepared)
        for backbone in (plain, target):
            backbone.module.eval()
        with torch.no_grad():
            features = [backbone.forward(batch).features for backbone in (plain, target)]
        cosine = torch.cosine_similarity(*features).mean().item()
        found[str(share)] = round(cosine, 3)
        print(f"share of the target {share}: cosine with the target's own features {cosine:.2f}", flush=True)
    (HERE / "results" / "mixtures.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
