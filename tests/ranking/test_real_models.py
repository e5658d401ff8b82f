"""Real weights and real photographs, where the folder of them is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hubscout.ranking import rank
from hubscout.tasks import open_task


@pytest.mark.shared
@pytest.mark.slow
def test_a_network_of_insects_is_not_for_pets() -> None:
    """The same architecture, trained on ImageNet (with many dogs in it) and on insects, for breeds of cats and dogs."""
    root = Path(os.environ.get("HUBSCOUT_SHARED", Path(__file__).parents[3] / "shared"))
    if not (root / "hub" / "weights").is_dir():
        pytest.skip("the folder of real weights is not here")
    options = "arch=timm/mobilenetv2_100&input_size=128&mean=0.5&pad_type=same&std=0.5"
    names = ("mobilenetv2_coral_inat_insect", "mobilenetv2_coral_in1k")
    insects, imagenet = (f"file:{root}/hub/weights/{name}.safetensors?{options}" for name in names)
    task = open_task(root / "data" / "pets" / "pets-train.parquet", label="breed")
    ranking = rank(task, [insects, imagenet], metrics=("logme", "knn", "leep"), limit=150, cache=False)
    assert not ranking.failures
    assert ranking.identifiers == (imagenet, insects)
    assert ranking.tied_with_best == (imagenet,)
    assert ranking[imagenet].scores["knn"] > ranking[insects].scores["knn"] + 0.2
    assert ranking[imagenet].scores["leep"] > ranking[insects].scores["leep"]
