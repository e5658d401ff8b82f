"""Each case is a process of its own: what is imported stays."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

LATER = (
    "import sys, torch\n"
    "from hubscout.hubs import prepare_torchvision\n"
    "from hubscout.hubs.torch_compiler import compiler_later\n"
)


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", LATER + code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_network_is_opened_and_run_without_the_compiler() -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs hubscout[vision]")
    code = """
from hubscout.hubs import load
for name in ("timm/test_vit", "torchvision/squeezenet1_1"):
    backbone = load(name, pretrained=False)
    backbone.forward({"pixel_values": torch.zeros(2, *backbone.config.input_size)})
print([name for name in sys.modules if name.startswith("torch._dynamo")], "_dynamo" in vars(torch))
import torch._dynamo.config
from torchvision.ops import roi_align
print(sys.modules["torchvision.ops.roi_align"].is_compile_supported("cpu"))
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""
    assert python(code).split("\n") == ["[] False", "True", "2.0"]


def test_what_timm_keeps_from_the_compiler_runs_and_is_kept_from_it() -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs hubscout[vision]")
    code = """
from hubscout.hubs.timm_hub import import_timm
import_timm()
with compiler_later():
    @torch.compiler.disable
    def plain(x):
        return x if torch.compiler.is_compiling() else x + 1
    @torch.compiler.disable(recursive=False)
    def other(x):
        return x + 1
assert "torch._dynamo" not in sys.modules
assert plain(torch.ones(1)).item() == other(torch.ones(1)).item() == 2
assert plain.__name__ == "plain"
compiled = torch.compile(lambda x: plain(x * 2) + 1, backend="eager")
print(compiled(torch.ones(1)).item())
"""
    assert python(code) == "4.0"


@pytest.mark.parametrize(
    "code",
    [
        "import torch._dynamo.config; print(torch._dynamo.config.__name__)",
        "from torch._dynamo import config; print(config.__name__)",
        "print(torch._dynamo.config.__name__)",
        "from torch._dynamo.utils import counters; print('torch._dynamo.config')",
    ],
)
def test_whatever_else_is_asked_of_the_compiler_imports_it(code: str) -> None:
    rest = "\nassert sys.modules['torch._dynamo'].__spec__ and torch._dynamo is sys.modules['torch._dynamo']"
    assert python(f"with compiler_later():\n    {code}{rest}") == "torch._dynamo.config"


def test_a_compiler_that_is_there_is_left_alone() -> None:
    code = """
import torch._dynamo
before = torch._dynamo
prepare_torchvision()
with compiler_later():
    assert sys.modules["torch._dynamo"] is torch._dynamo is before
print(torch._dynamo is before)
"""
    assert python(code) == "True"
