"""Each case in a process of its own: what was imported once cannot be unimported."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str, *path: Path) -> None:
    prefix = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}\n"
    done = subprocess.run([sys.executable, "-c", prefix + code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs timm")
def test_the_compiler_of_torch_comes_when_it_is_needed_and_not_with_torchvision_and_timm() -> None:
    run(
        """
from hubscout.hubs.timm_hub import import_timm
timm = import_timm()
import torch, torchvision
assert not [name for name in sys.modules if name.startswith("torch._dynamo")]
assert torch.compiler.disable.__module__ == "torch.compiler"

# what torchvision asks
assert torchvision.ops.roi_align.__globals__["is_compile_supported"]("cpu") in (True, False)
import torch._dynamo.utils
assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"]
assert hasattr(torch._dynamo.utils, "counters")

# what timm marks
marked = timm.layers.disable_compiler(lambda x: x * (2 if torch.compiler.is_compiling() else 3), reason="a test")
assert torch.compile(lambda x: marked(x), backend="eager")(torch.ones(1)) == 3
"""
    )


@pytest.mark.parametrize(
    "statement",
    [
        "from torch._dynamo.utils import counters",
        "import torch._dynamo.utils; counters = torch._dynamo.utils.counters",
        "import torch._dynamo; counters = torch._dynamo.utils.counters",
        "from torch._dynamo import utils; counters = utils.counters",
    ],
)
def test_whoever_takes_more_of_the_compiler_gets_the_compiler(statement: str, tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(f"import torch\n{statement}\n")
    run(
        """
from hubscout.optional import compiler_later
with compiler_later():
    import asking
import torch._dynamo
assert asking.counters is torch._dynamo.utils.counters
assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"]
assert torch._dynamo.utils.__file__
""",
        tmp_path,
    )


def test_operations_are_counted_without_the_compiler_and_marked_functions_stay_marked(tmp_path: Path) -> None:
    (tmp_path / "networks.py").write_text(
        "from torch import nn\n"
        "def make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()\n"
    )
    run(
        """
import torch
from hubscout.hubs import load
assert load("python:networks:make").card.flops == 2 * 222 * 222 * 4 * 27
assert not [name for name in sys.modules if name.startswith("torch._dynamo")]

from hubscout.optional import no_compiler
mark = torch._disable_dynamo(lambda x: x * (2 if torch.compiler.is_compiling() else 3))
with no_compiler():
    assert mark(torch.ones(1)) == 3
assert "torch._dynamo" not in sys.modules
assert torch.compile(lambda x: mark(x), backend="eager")(torch.ones(1)) == 3
""",
        tmp_path,
    )
