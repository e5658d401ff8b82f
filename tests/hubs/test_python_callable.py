from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_models import run

from hubscout.errors import InputError, ModelError, ModelNotFoundError
from hubscout.hubs import load, python_callable
from hubscout.hubs.python_callable import code_fingerprint

MODELS = """
import torch
from torch import nn
from neighbour import WIDTH

class Plain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, width, 3, 2))
    def forward(self, x):
        return self.stages(x)

class Halves(Plain):
    def __init__(self, width, classes):
        super().__init__(width)
        self.fc = nn.Linear(width, classes)
    def forward_features(self, x):
        return self.stages(x)
    def forward_head(self, x, pre_logits=False):
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)

CFG = {"input_size": (3, 32, 32), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.2, 0.2), "crop_pct": 1.0, "license": "MIT"}

def plain(width=WIDTH):
    torch.manual_seed(0)
    module = Plain(width)
    module.pretrained_cfg = CFG
    return module

def halves(width=12, classes=4):
    torch.manual_seed(0)
    module = Halves(width, classes)
    module.pretrained_cfg = CFG
    return module

def arrays():
    module = nn.Sequential(nn.Linear(5, 7), nn.ReLU())
    module.num_features = 7
    return module

def flat():
    return nn.Linear(5, 7)

def torchvision_model():
    import torchvision
    module = torchvision.models.shufflenet_v2_x0_5(num_classes=6)
    module.pretrained_cfg = {"input_size": (3, 64, 64)}
    return module

def broken():
    raise OSError("disk on fire")

def nothing():
    return 3
"""


@pytest.fixture(autouse=True)
def _imports_of_its_own(tmp_path: Path) -> Iterator[None]:
    """What a test imports is forgotten with its files: the next one may have a module of the same name."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_models.py").write_text(MODELS)
    (tmp_path / "neighbour.py").write_text("WIDTH = 16\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "my_models"


def test_a_module_in_timms_shape(models, image):
    backbone = load(f"python:{models}:halves?width=20&classes=9")
    output = run(backbone, [image], backbone.layer_names)
    assert output.features.shape == (1, 20)
    assert output.logits.shape == (1, 9)
    torch.testing.assert_close(output.logits, backbone.module.fc(output.features).detach())
    assert backbone.card.source_classes == 9
    assert backbone.card.licence == "MIT"
    assert backbone.layer_names == ("stages.0", "stages.2")
    assert backbone.preprocessing.config.mean == (0.4, 0.5, 0.6)
    assert load(backbone.card.identifier).card == backbone.card


def test_a_plain_module_gives_its_averaged_output(models, image):
    backbone = load(f"python:{models}:plain")
    output = run(backbone, [image, image])
    assert output.features.shape == (2, 16)
    assert output.logits is None


def test_a_file_is_a_module_too(models, tmp_path, image):
    assert run(load(f"python:{tmp_path / 'my_models.py'}:plain?width=5"), [image]).features.shape == (1, 5)


def test_arrays(models):
    backbone = load(f"python:{models}:arrays")
    assert backbone.card.modalities == ("array",)
    assert run(backbone, [np.zeros(5), np.ones(5)]).features.shape == (2, 7)
    with pytest.raises(InputError, match="one shape"):
        run(backbone, [np.zeros(5), np.ones(6)])


def test_a_torchvision_classifier_has_its_last_layer_as_head(models, image):
    backbone = load(f"python:{models}:torchvision_model")
    output = run(backbone, [image])
    assert output.logits.shape == (1, 6)
    torch.testing.assert_close(output.logits, backbone.module.fc(output.features).detach())


def test_a_module_that_says_nothing_of_its_inputs(models):
    with pytest.raises(ModelError, match="pretrained_cfg"):
        load(f"python:{models}:flat")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("my_models:hallves", ModelNotFoundError, "Did you mean 'halves'"),
        ("my_models:broken", ModelError, "OSError: disk on fire"),
        ("my_models:nothing", ModelError, "must return a torch.nn.Module"),
        ("my_models:CFG", ModelError, "not a function"),
        ("no_such_module_at_all:f", ModelNotFoundError, "no Python module"),
        ("nowhere/file.py:f", ModelNotFoundError, "No Python file"),
        ("my_models", InputError, "python:module:function"),
    ],
)
def test_what_can_go_wrong(models, name, error, message):
    with pytest.raises(error, match=message):
        load(f"python:{name}")


def test_a_ready_backbone_keeps_the_name_it_was_opened_by(models, tmp_path):
    (tmp_path / "ready.py").write_text(
        "from hubscout.hubs import load\ndef make():\n    return load('python:my_models:halves')\n"
    )
    assert load("python:ready:make").card.identifier == "python:ready:make"


def test_a_tuned_network_of_ones_own_code_opens_again(models, tmp_path, image):
    backbone = load(f"python:{models}:halves")
    head = torch.nn.Linear(12, 2)
    backbone.save(tmp_path / "tuned", head=head, target_names=["no", "yes"], kind="classification")
    again = load(f"file:{tmp_path / 'tuned'}?arch=python:{models}:halves")
    torch.testing.assert_close(run(again, [image]).features, run(backbone, [image]).features)
    torch.testing.assert_close(run(again, [image]).logits, head(run(backbone, [image]).features).detach())
    assert again.card.source_classes == 2
    with pytest.raises(InputError, match=r"\?arch="):
        load(f"file:{tmp_path / 'tuned'}")


@pytest.mark.parametrize(
    "name",
    [
        "os:system?command=touch%20{executed}",
        "posix:system?command=touch%20{executed}",
        "subprocess:run?args=touch%20{executed}&shell=true",
        "subprocess:Popen?args=touch%20{executed}&shell=true",
        "builtins:exec?source=open('{executed}','w')",
        "pathlib:Path.touch?self={executed}",
        "{file}:os.system?command=touch%20{executed}",
        "{file}:subprocess.run?args=touch%20{executed}&shell=true",
        "{file}:system?command=touch%20{executed}",
        "{file}:late?command=touch%20{executed}",
        "borrows:os.system?command=touch%20{executed}",
        "borrows:torch.os.system?command=touch%20{executed}",
    ],
)
def test_only_what_the_named_module_defines_is_called(tmp_path, monkeypatch, name):
    file, executed = tmp_path / "borrows.py", tmp_path / "executed"
    file.write_text(
        "import os, subprocess, functools, torch\nfrom os import system\nlate = functools.partial(os.system)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"of Python itself|is defined in"):
        load("python:" + name.format(file=file, executed=executed))
    assert not executed.exists()


@pytest.mark.parametrize(
    "name", ["Net", "small", "Net.make", "package:build", "package.nets:build", "package:nets.build"]
)
def test_classes_partials_methods_and_what_a_package_exports_are_its_own(tmp_path, monkeypatch, name):
    (tmp_path / "package").mkdir()
    source = (
        "import functools\nfrom torch import nn\n"
        "class Net(nn.Linear):\n    num_features = 7\n"
        "    def __init__(self, width=5):\n        super().__init__(width, 7)\n"
        "    @classmethod\n    def make(cls):\n        return cls()\n"
        "def build(width=5):\n    return Net(width)\nsmall = functools.partial(build, width=3)\n"
    )
    (tmp_path / "package" / "__init__.py").write_text("from package.nets import build\n")
    (tmp_path / "package" / "nets.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    full = name if ":" in name else f"{tmp_path}/package/nets.py:{name}"
    assert load(f"python:{full}").card.feature_dim == 7


def test_a_module_whose_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "passing.py").write_text(
        "from torch import nn\ndef make():\n    net = nn.Linear(5, 7)\n    net.num_features = 7\n    return net\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("passing")
    (tmp_path / "passing.py").unlink()
    with pytest.raises(ModelError, match=r"passing\.py is gone"):
        load("python:passing:make")


def width_of(file: Path) -> int:
    return load(f"python:{file}:make").card.feature_dim


def test_a_file_or_neighbour_that_changed_is_imported_again(tmp_path: Path) -> None:
    """In one process, within a second, at the same size."""
    source = "from torch import nn\nfrom aside import WIDTH\nMORE = 1\ndef make():\n"
    source += (
        "    module = nn.Linear(5, WIDTH + MORE)\n    module.num_features = module.out_features\n    return module\n"
    )
    file, neighbour = tmp_path / "mine.py", tmp_path / "aside.py"
    file.write_text(source)
    neighbour.write_text("WIDTH = 3\n")
    first = load(f"python:{file}:make").card
    assert first.feature_dim == 4
    neighbour.write_text("WIDTH = 5\n")
    second = load(f"python:{file}:make").card
    assert second.feature_dim == 6
    file.write_text(source.replace("MORE = 1", "MORE = 2"))
    third = load(f"python:{file}:make").card
    assert third.feature_dim == 7
    assert len({card.code_fingerprint for card in (first, second, third)}) == 3


def test_neighbours_of_the_same_name_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, width in (("one", 3), ("two", 4), ("three", 5), ("four", 6)):
        (tmp_path / folder).mkdir()
        source = "from torch import nn\nfrom aside import WIDTH\ndef make():\n    module = nn.Linear(5, WIDTH)\n"
        (tmp_path / folder / f"mine_{folder}.py").write_text(
            source + "    module.num_features = WIDTH\n    return module\n"
        )
        (tmp_path / folder / "aside.py").write_text(f"WIDTH = {width}\n")
    assert width_of(tmp_path / "one" / "mine_one.py") == 3
    assert width_of(tmp_path / "two" / "mine_two.py") == 4
    assert width_of(tmp_path / "one" / "mine_one.py") == 3
    monkeypatch.syspath_prepend(tmp_path / "three")
    assert load("python:mine_three:make").card.feature_dim == 5
    assert width_of(tmp_path / "four" / "mine_four.py") == 6


FILES = {
    "model.py": "import torch\nfrom near import WIDTH\nimport package.inner\n\ndef make():\n    import late\n",
    "near.py": "WIDTH = 3\n",
    "package/__init__.py": "from .sibling import HEIGHT\n",
    "package/inner.py": "from . import other\nfrom .. import nothing\n",
    "package/sibling.py": "HEIGHT = 4\n",
    "package/other.py": "DEPTH = 5\n",
    "late.py": "import model\n",  # a circle
    "stranger.py": "nobody imports this\n",
}


def write(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder / "model.py"


@pytest.mark.parametrize("name", FILES)
def test_a_change_in_any_imported_file_counts(tmp_path: Path, name: str) -> None:
    file = write(tmp_path)
    before = code_fingerprint(file)
    with open(tmp_path / name, "a") as opened:
        opened.write("# more\n")
    assert (code_fingerprint(file) != before) == (name != "stranger.py")


def test_a_file_that_many_models_come_from_is_parsed_once(tmp_path: Path) -> None:
    file, parsed = write(tmp_path), python_callable._import_statements
    file.write_text(f"{file.read_text()}# {tmp_path}\n")
    before, misses = code_fingerprint(file), parsed.cache_info().misses
    assert code_fingerprint(file) == before
    assert parsed.cache_info().misses == misses
    file.write_text(f"# {tmp_path}\n")
    assert code_fingerprint(file) != before
    assert parsed.cache_info().misses == misses + 1


def test_installed_modules_that_are_there_are_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, looked, real = tmp_path / "model.py", [], python_callable._files_of
    file.write_text("import numpy.linalg\nfrom torch import nn\n")
    monkeypatch.setattr(python_callable, "_files_of", lambda parts, root: looked.append(root) or real(parts, root))
    before = code_fingerprint(file)
    assert looked == [tmp_path, tmp_path]
    (tmp_path / "torch.py").write_text("nn = None\n")  # a namesake beside it is the user's own
    assert code_fingerprint(file) != before


def test_the_same_source_elsewhere_is_the_same(tmp_path: Path) -> None:
    assert code_fingerprint(write(tmp_path / "one")) == code_fingerprint(write(tmp_path / "two"))


def test_installed_packages_are_left_out() -> None:
    import numpy

    assert code_fingerprint(Path(numpy.__file__)) == ""
    assert code_fingerprint(Path(pytest.__file__)) == ""


def test_a_file_that_is_no_python_has_a_fingerprint_too(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def (:")
    assert code_fingerprint(file)
    file.write_bytes(b"\x00\xff")
    assert code_fingerprint(file)


def test_the_path_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "model.py").write_text("import shelved\n")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    before = code_fingerprint(tmp_path / "model.py")
    (tmp_path / "library" / "shelved.py").write_text("A = 1\n")
    assert code_fingerprint(tmp_path / "model.py") != before
