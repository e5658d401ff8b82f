from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from hubscout.errors import CodeNotAllowedError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.hubs import Identifier, load
from hubscout.hubs.permission import code_wanted

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


@pytest.mark.parametrize(
    ("identifier", "wants"),
    [
        ("python:os:system?command=ls", "the function os:system"),
        ("hf/evil/remote?trust_remote_code=true", "custom code"),
        ("hf/evil/remote?trust_remote_code=1", "custom code"),
        ("hf/evil/remote?trust_remote_code=yes", "custom code"),
        ("file:folder?trust_remote_code=true", "custom code"),
        ("file:folder?trust_remote_code=%74rue", "custom code"),
        ("sentence-transformers/x?pairs=cross&trust_remote_code=TRUE", "custom code"),
        ("file:w.pth?arch=python:os:system", "the function os:system"),
        ("file:w.pth?arch=python%3Aos%3Asystem", "the function os:system"),
        ("file:w.pth?arch=%70ython:os:system&command=ls", "the function os:system"),
        ("file:w.pth?arch=file:v.pth%3Farch=python:os:system", "the function os:system"),
        ("hf/facebook/dinov2-small", None),
        ("hf/a?trust_remote_code=false", None),
        ("hf/a?trust_remote_code=0", None),
        ("file:w.pth?arch=timm/resnet18", None),
        ("onnx:w.onnx", None),
    ],
)
def test_what_would_run_code(identifier, wants):
    assert code_wanted(Identifier.parse(identifier)) == wants


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
