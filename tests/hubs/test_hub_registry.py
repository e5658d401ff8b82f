"""Hubs that other packages bring."""

from __future__ import annotations

import sys

import pytest

from hubscout.errors import UnknownHubError
from hubscout.hubs import HUBS, list_models, load
from hubscout.hubs.hub_registry import HUBS as SAME

HUB = """
import torch
from hubscout.hubs import ModelEntry, ModelListing
from hubscout.hubs.python_callable import wrap

def load(identifier):
    module = torch.nn.Linear(identifier.options.get("width", 3), 4)
    module.pretrained_cfg = {"input_size": (module.in_features,)}
    return wrap(module, identifier)

def list_models(pattern):
    return ModelListing([ModelEntry(identifier="acme/linear", params=16)], ["made to measure"])
"""


def test_the_hubs_there_are():
    assert HUBS is SAME
    assert {"timm", "torchvision", "hf", "sentence-transformers", "onnx", "file", "python", "pypi"} <= set(HUBS)
    with pytest.raises(UnknownHubError, match="Did you mean 'torchvision'"):
        load("torchvison/resnet18")


def test_an_installed_package_adds_a_hub(tmp_path, monkeypatch):
    (tmp_path / "acme_hub.py").write_text(HUB)
    information = tmp_path / "acme_hub-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-hub\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[hubscout.hubs]\nacme = acme_hub\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(HUBS, "_looked_outside", False)
    monkeypatch.setattr(HUBS, "_entries", dict(HUBS._entries))
    assert load("acme/linear?width=5").card.params == 5 * 4 + 4
    assert list_models("acme/*")[0].identifier == "acme/linear"
    assert list_models("acme/*").notes == ("made to measure",)
    assert list_models("acme/*", max_params=3) == []
    sys.modules.pop("acme_hub", None)


def test_files_and_functions_are_named_not_listed():
    assert list_models("file:*") == []
    assert "name one" in list_models("python:*").notes[0]
