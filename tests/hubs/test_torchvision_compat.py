"""Each case is a process of its own: what is imported stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def python(code: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    prefix = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    return subprocess.run([sys.executable, "-c", prefix + code], capture_output=True, text=True, timeout=120)


def fake_torchvision(folder: Path, code: str) -> Path:
    (folder / "torchvision").mkdir()
    (folder / "torchvision" / "__init__.py").write_text(code)
    return folder


def test_the_installed_torchvision_models_and_transforms_work():
    done = python(
        """
from hubscout.hubs.torchvision_compat import prepare_torchvision
import gc
first = prepare_torchvision()
assert prepare_torchvision() is first
gc.collect()
import timm, torch, torchvision
from torchvision.transforms.v2 import functional
assert torchvision.models.squeezenet1_1().eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)
assert functional.resize(torch.zeros(3, 8, 8), [4, 4]).shape == (3, 4, 4)
print(first)
"""
    )
    assert done.returncode == 0, done.stderr
    alone = python("import torchvision")
    # Declarations are made exactly where torchvision does not import by itself.
    assert done.stdout.strip() == str(alone.returncode != 0)


def test_missing_operators_are_declared_where_the_library_does_not_load(tmp_path):
    # The line of torchvision that fails, and its error, are torch's own.
    broken = 'import torch\ntorch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "Meta")\nloaded = True\n'
    folder = fake_torchvision(tmp_path, broken)
    assert "torchvision::nms does not exist" in python("import torchvision", folder).stderr
    code = """
from hubscout.hubs.torchvision_compat import prepare_torchvision
import gc
assert prepare_torchvision() is True
gc.collect()
import torch, torchvision
assert torchvision.loaded
assert "float iou_threshold" in str(torch.ops.torchvision.nms.default._schema)
"""
    done = python(code, folder)
    assert done.returncode == 0, done.stderr


def test_nothing_is_declared_where_torchvision_loads(tmp_path):
    code = """
from hubscout.hubs.torchvision_compat import prepare_torchvision
import sys, torch
assert prepare_torchvision() is False
assert "torchvision" in sys.modules
assert not hasattr(torch.ops.torchvision, "nms")
"""
    done = python(code, fake_torchvision(tmp_path, "loaded = True\n"))
    assert done.returncode == 0, done.stderr


def test_other_failures_of_torchvision_are_not_hidden(tmp_path):
    folder = fake_torchvision(tmp_path, "raise RuntimeError('another fault')\n")
    done = python("from hubscout.hubs.torchvision_compat import prepare_torchvision; prepare_torchvision()", folder)
    assert "another fault" in done.stderr


def test_hubs_import_no_deep_learning_library():
    done = python(
        "import hubscout.hubs, sys; print([m for m in ('torch', 'timm', 'transformers') if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_transformers_image_processors_import_after_it():
    code = "from hubscout.hubs import prepare_torchvision; prepare_torchvision()"
    done = python(code + "; from transformers import AutoImageProcessor")
    assert done.returncode == 0, done.stderr
