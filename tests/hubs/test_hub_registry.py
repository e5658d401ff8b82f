"""Hubs that other packages bring."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from pathlib import Path

import pytest

from hubscout.errors import CodeNotAllowedError, UnknownHubError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.hubs import HUBS, Identifier, list_models, load
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


NETWORK = """
from pathlib import Path
from torch import nn

def build(touch):
    Path(touch).touch()
    module = nn.Linear(5, 7)
    module.num_features = 7
    return module
"""


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "network.py").write_text(NETWORK)
    return f"python:{tmp_path}/network.py:build"


def test_a_name_out_of_a_file_runs_nothing_and_the_refusal_says_which_file_wants_what(network, tmp_path):
    executed = tmp_path / "executed"
    name = f"{network}?touch={executed}"
    read = IdentifierFromFile(name, "run/ranking.json")
    with pytest.raises(CodeNotAllowedError, match=r"run/ranking\.json names .*network\.py:build.*--allow-code") as told:
        load(read)
    assert "allow_code=True" in str(told.value)
    assert not executed.exists()
    # The user's own word opens it: the name typed by the user, or the permission for this one.
    assert load(read, allow_code=True).card.identifier == name
    assert executed.exists()
    executed.unlink()
    load(name)
    assert executed.exists()


def test_the_user_may_add_what_the_file_did_not_ask_for(network, tmp_path):
    from safetensors.torch import save_file
    from torch import nn

    save_file(nn.Linear(5, 7).state_dict(), tmp_path / "w.safetensors")
    read = IdentifierFromFile(f"file:{tmp_path}/w.safetensors", "list.txt")
    assert load(read, arch=network, touch=str(tmp_path / "executed")).card.feature_dim == 7


@pytest.mark.parametrize(
    "carry",
    [
        copy.deepcopy,
        lambda name: pickle.loads(pickle.dumps(name)),
        lambda name: str(Identifier.parse(name).with_options(pooling="head")),
        lambda name: Identifier.parse(name),
        lambda name: next(iter({name: 1})),
    ],
)
def test_the_mark_stays_on_the_name_wherever_it_is_carried(carry):
    with pytest.raises(CodeNotAllowedError, match="from somewhere"):
        load(carry(IdentifierFromFile("python:os:getcwd", "from somewhere")))


def test_a_marked_name_is_the_same_string():
    name = IdentifierFromFile("timm/resnet18", "a.json")
    assert name == "timm/resnet18"
    assert {name: 1}["timm/resnet18"] == 1
    assert json.dumps([name]) == '["timm/resnet18"]'
    assert repr(name) == "'timm/resnet18'"
    assert Identifier.parse(name) == Identifier.parse("timm/resnet18")


def test_a_folder_that_brings_its_own_classes_runs_none_of_them(bert, tmp_path):
    """A sentence encoder names the classes of its parts in a file of its folder."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from hubscout.errors import ModelError

    folder, executed = tmp_path / "encoder", tmp_path / "executed"
    sentence_transformers.SentenceTransformer(str(bert), device="cpu").save(str(folder))
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(executed)!r}).touch()\nclass Part: pass\n")
    parts = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*parts, {**parts[-1], "idx": 9, "type": "evil.Part"}]))
    with pytest.raises(ModelError, match="trust_remote_code=true"):
        load(f"file:{folder}")
    with pytest.raises(CodeNotAllowedError, match="custom code"):
        load(IdentifierFromFile(f"file:{folder}?trust_remote_code=true", "run/ranking.json"))
    assert not executed.exists()
    with pytest.raises(Exception):  # noqa: B017, PT011  whatever it makes of such a part
        load(f"file:{folder}?trust_remote_code=true")
    assert executed.exists(), "the attack must work where it is allowed, or this test proves nothing"
