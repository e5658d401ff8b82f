"""Each case is a process of its own: what is imported stays."""

from __future__ import annotations

import importlib.util
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

LATER = """
import sys
from hubscout.light_imports import import_lightly
import_lightly()
import torch

def there():
    return "torch._dynamo.eval_frame" in sys.modules

def as_torch(code):
    # as code of torch, which is given what stands in
    names = {"__name__": "torch.some_module"}
    exec(code, names)
    return names
"""
needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="needs hubscout[vision]")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", LATER + code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_timm
def test_a_network_is_opened_and_run_without_the_compiler() -> None:
    code = """
from hubscout.hubs import load
for name in ("timm/test_vit", "torchvision/squeezenet1_1"):
    backbone = load(name, pretrained=False)
    backbone.forward({"pixel_values": torch.zeros(2, *backbone.config.input_size)})
print(there(), [name for name in sys.modules if name.startswith("torch._dynamo")])
from torchvision.ops import roi_align
print(sys.modules["torchvision.ops.roi_align"].is_compile_supported("cpu"), there())
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""
    assert python(code).split("\n") == ["False ['torch._dynamo', 'torch._dynamo.utils']", "True True", "2.0"]


@needs_timm
def test_a_ranking_by_the_command_imports_no_compiler(pictures: Path) -> None:
    code = f"""
import atexit, sys
said = lambda: print(*(name for name in sys.modules if name.startswith(("torch._dynamo", "torchvision.ops.roi_align"))))
atexit.register(said)
model = "timm/test_efficientnet?pretrained=false&input_size=32"
sys.argv = ["hubscout", "rank", {str(pictures)!r}, "-m", model, "--no-cache", "--quiet", "--device", "cpu"]
from hubscout.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")[-2].split()) == [
        "torch._dynamo",
        "torch._dynamo.utils",
        "torchvision.ops.roi_align",
    ]


def test_what_is_kept_from_the_compiler_runs_and_is_kept_from_it() -> None:
    code = """
@torch.compiler.disable
def plain(x):
    return x if torch.compiler.is_compiling() else x + 1

@torch.compiler.disable(recursive=False)
def other(x):
    return x + 1

assert plain(torch.ones(1)).item() == other(torch.ones(1)).item() == 2
assert plain.__name__ == "plain"
assert not there()
compiled = torch.compile(lambda x: plain(x * 2) + 1, backend="eager")
print(compiled(torch.ones(1)).item(), there())
"""
    assert python(code) == "4.0 True"


@pytest.mark.parametrize(
    "code",
    [
        "from torch._dynamo import config as found",
        "found = torch._dynamo.config",
        "from torch._dynamo.utils import counters; found = torch._dynamo.config",
    ],
)
def test_whatever_else_is_asked_of_the_compiler_imports_it_once(code: str) -> None:
    check = """
import torch._dynamo.eval_frame, importlib.util
assert found is sys.modules["torch._dynamo.config"] is torch._dynamo.eval_frame.config is torch._dynamo.config
assert sys.modules["torch._dynamo"] is torch._dynamo
assert importlib.util.find_spec("torch._dynamo.config").origin.endswith("config.py")
assert not [finder for finder in sys.meta_path if "torch._dynamo" in getattr(finder, "_known", ()) and finder.waiting]
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""
    assert python(f"{code}\n{check}") == "2.0"


def test_a_part_that_there_is_not_is_missed_as_ever() -> None:
    code = """
try:
    import torch._dynamo.nothing
except ModuleNotFoundError as error:
    print(error.name, there())
try:
    torch._dynamo.nothing
except AttributeError as error:
    print("nothing" in str(error))
"""
    assert python(code).split() == ["torch._dynamo.nothing", "False", "True"]


def test_threads_that_ask_at_the_same_time_find_one_compiler() -> None:
    code = """
import threading
import torch._dynamo.utils as utilities
sys.setswitchinterval(1e-5)
found, ready = [], threading.Barrier(3)

def ask(kind):
    ready.wait()
    if kind == 0:
        from torch._dynamo import exc as module
    elif kind == 1:
        module = torch._dynamo.exc
    else:
        utilities.counters
        module = torch._dynamo.exc
    found.append(module)

threads = [threading.Thread(target=ask, args=(kind,)) for kind in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), len(set(map(id, found))))
"""
    assert python(code) == "3 1"


def test_code_of_the_user_finds_everything_there(tmp_path: Path) -> None:
    """So that it may compile in one thread while a network of others asks for a part of the compiler in another."""
    (tmp_path / "network.py").write_text("""
import sys, torch

def make():
    print([name in sys.modules for name in ("torch._dynamo.eval_frame", "sympy.core")])
    return torch.nn.Linear(3, 4)
""")
    code = f"""
from hubscout.hubs import Identifier
from hubscout.hubs.python_callable import call
print(there())
call(Identifier.parse("python:{tmp_path / "network.py"}:make"))
"""
    assert python(code).split("\n") == ["False", "[True, True]"]


def test_a_compiler_that_is_there_is_left_alone() -> None:
    code = """
import sys
import torch._dynamo.config
before = sys.modules["torch._dynamo"]
from hubscout.light_imports import import_lightly
import_lightly()
from torch._dynamo import eval_frame
print(sys.modules["torch._dynamo"] is before, [finder for finder in sys.meta_path if "_dynamo" in str(vars(finder))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout == "True []\n", done.stderr


def test_what_is_begun_twice_is_begun_once() -> None:
    code = """
before = list(sys.meta_path)
import_lightly()
assert sys.meta_path == before
import sympy.core.basic
print(sympy.core.basic.Basic is sympy.Basic)
"""
    assert python(code) == "True"


def test_classes_and_networks_that_are_kept_from_the_compiler_stay_what_they_are() -> None:
    code = """
from torch import nn

@torch.compiler.disable
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.compiler.disable(nn.Conv2d(3, 4, 3))

class Network(Head):
    pass

print(isinstance(Head, type), sum(weight.numel() for weight in Network().parameters()))
for wrong in (torch.compiler.disable, torch.compiler.allow_in_graph):
    try:
        wrong(3)
    except AssertionError:
        print("refused")
"""
    assert python(code).split("\n") == ["True 112", "refused", "refused"]


def test_functions_are_marked_once_the_compiler_is_there() -> None:
    code = """
kept = torch.compiler.disable(lambda x: x + 1, reason="as asked")

@torch.compiler.allow_in_graph
def allowed(x):
    return x * 3

held = as_torch("from torch._dynamo import allow_in_graph, disable")
assert not there()
calls = []

def plain(x):
    calls.append(torch.compiler.is_compiling())
    return kept(x) + allowed(x)

torch.compile(plain, backend="eager")(torch.ones(1))
from torch._dynamo import trace_rules
print(there(), kept._torchdynamo_disable, kept._torchdynamo_disable_msg, trace_rules.is_callable_allowed(allowed))
try:
    torch.compile(lambda x: kept(x), backend="eager", fullgraph=True)(torch.ones(1))
except torch._dynamo.exc.Unsupported as error:
    print("as asked" in str(error))
late = held["allow_in_graph"](lambda x: x)
print(trace_rules.is_callable_allowed(late), held["disable"](late)._torchdynamo_disable, kept(torch.ones(1)).item())
"""
    assert python(code).split("\n") == ["True True as asked True", "True", "True True 2.0"]


def test_code_of_others_gets_the_real_thing() -> None:
    code = """
import pickle
from sympy import *
from sympy import Basic

class Mine(Basic):
    pass

print(Mine(Integer(1)).args, pickle.loads(pickle.dumps(Basic)) is Basic, symbols("x") + 1)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
try:
    bool(ShapeEnv().create_unbacked_symint() == 3)
except GuardOnDataDependentSymNode:
    print("caught")
"""
    assert python(code).split("\n") == ["(1,) True x + 1", "caught"]


def test_nobody_imports_anything_by_looking_through_modules() -> None:
    code = """
import inspect, pickle, importlib.util
import torch.fx.experimental.symbolic_shapes as algebra
import sympy
expit = __import__("scipy.special").special.expit
print(pickle.loads(pickle.dumps(expit)) is expit)
print([hasattr(module, "no_such_name") for module in (sympy, algebra, torch._dynamo)])
inspect.getmodule(inspect.currentframe())
print(there(), "sympy.core" in sys.modules, algebra.__name__)
print([importlib.util.find_spec(name) for name in ("sympy.nothing", "torch._dynamo.nothing")])
"""
    assert python(code).split("\n") == [
        "True",
        "[False, False, False]",
        "False False torch.fx.experimental.symbolic_shapes",
        "[None, None]",
    ]


def test_a_name_that_this_release_does_not_have_is_not_promised() -> None:
    code = """
from hubscout.stand_ins import StandIn

StandIn({"colorsys": lambda _: {"rgb_to_hsv": lambda: 1, "no_such_name": lambda: 2}}, {"torch"}).begin()
names = as_torch("import colorsys; found = hasattr(colorsys, 'no_such_name'), colorsys.rgb_to_hsv.__name__")
print(names["found"], "rgb_to_yiq" in vars(sys.modules["colorsys"]))
kept = as_torch("from colorsys import rgb_to_hsv")
sys.modules["kept"] = type(sys)("kept")
sys.modules["kept"].function = kept["rgb_to_hsv"]
import colorsys
print(colorsys.rgb_to_hsv.__name__, sys.modules["kept"].function is sys.modules["colorsys"].rgb_to_hsv)
"""
    assert python(code).split("\n") == ["(False, '<lambda>') False", "rgb_to_hsv True"]


def test_what_somebody_put_back_is_taken_away_again() -> None:
    code = """
from unittest import mock
import sympy
held = sympy
with mock.patch.dict(sys.modules, {"other": sympy}):
    print(sympy.Symbol("x"))
print(sys.modules["sympy"] is held, held.Symbol("y"), sys.modules["sympy"] is held)
"""
    assert python(code).split("\n") == ["x", "True y False"]


def test_an_import_that_was_interrupted_is_made_up_for() -> None:
    code = """
import torch._dynamo.utils as held
kept = torch.compiler.disable(lambda x: x + 1)

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._dynamo.convert_frame":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
try:
    held.counters
except KeyboardInterrupt:
    print("interrupted", hasattr(kept, "_torchdynamo_disable"))
sys.meta_path.pop(0)
print(type(held.counters).__name__, kept._torchdynamo_disable)
"""
    assert python(code).split("\n") == ["interrupted False", "defaultdict True"]


def test_losses_are_real_before_code_of_the_user_runs() -> None:
    pytest.importorskip("transformers")
    code = """
import pickle
from hubscout.hubs import prepare_torchvision
prepare_torchvision()
from transformers.loss import loss_utils
from hubscout.light_imports import before_user_code
before_user_code()
loss = loss_utils.LOSS_MAPPING["ForObjectDetection"]
print(loss is loss_utils.ForObjectDetectionLoss, pickle.loads(pickle.dumps(loss)) is loss)
import transformers.loss.loss_for_object_detection as module
print(module.ForObjectDetectionLoss is loss, loss.__code__.co_filename == module.__file__)
"""
    assert python(code).split("\n") == ["True True", "True True"]


@pytest.mark.parametrize("ending", ["zip", "pyc"])
def test_a_package_without_sources_is_imported_for_any_name(tmp_path: Path, ending: str) -> None:
    (tmp_path / "parcel.py").write_text("answer = 42\n")
    if ending == "zip":
        with zipfile.ZipFile(tmp_path / "parcel.zip", "w") as file:
            file.write(tmp_path / "parcel.py", "parcel.py")
    else:
        py_compile.compile(str(tmp_path / "parcel.py"), cfile=str(tmp_path / "parcel.pyc"))
    (tmp_path / "parcel.py").unlink()
    code = f"""
sys.path.insert(0, {str(tmp_path / "parcel.zip" if ending == "zip" else tmp_path)!r})
from hubscout.stand_ins import StandIn
StandIn({{"parcel": lambda _: {{}}}}, {{"torch"}}).begin()
import parcel
print("answer" in vars(parcel), parcel.answer)
"""
    assert python(code) == "False 42"


def test_a_part_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    package = tmp_path / "parcel"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "broken.py").write_text("raise ImportError('broken')\n")
    code = f"""
sys.path.insert(0, {str(tmp_path)!r})
from hubscout.stand_ins import StandIn
StandIn({{"parcel": lambda _: {{}}}}, {{"torch"}}).begin()
for _ in range(2):
    try:
        import parcel.broken
    except ImportError as error:
        print(error)
"""
    assert python(code).split("\n") == ["broken", "broken"]


needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs hubscout[text]")


@needs_transformers
def test_losses_are_imported_once_one_is_called() -> None:
    code = """
from hubscout.hubs import prepare_torchvision
prepare_torchvision()
from transformers.loss import loss_utils
optimiser = lambda: "scipy.optimize" in sys.modules
loss = loss_utils.LOSS_MAPPING["ForObjectDetection"]
print(loss.__module__, loss.__name__, optimiser())
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss
print(ForObjectDetectionLoss.__code__.co_filename.endswith("loss_for_object_detection.py"), optimiser())
try:
    loss()
except TypeError as error:
    print("missing" in str(error))
try:
    import transformers.loss.loss_of_nobody
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert python(code).split("\n") == [
        "transformers.loss.loss_for_object_detection ForObjectDetectionLoss False",
        "True True",
        "True",
        "transformers.loss.loss_of_nobody",
    ]


WITHOUT_ALGEBRA = """
from hubscout.hubs import load
for name in sys.argv[1:]:
    print(load(name, pretrained=False).card.flops, "sympy.core" in sys.modules)
"""


@needs_timm
def test_operations_are_counted_without_symbolic_algebra() -> None:
    names = ["timm/test_vit", "timm/test_efficientnet", "torchvision/squeezenet1_1"]
    counted = []
    for begin in (LATER, "import sys\n"):
        given = [sys.executable, "-c", begin + WITHOUT_ALGEBRA, *names]
        done = subprocess.run(given, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        counted.append([line.split() for line in done.stdout.splitlines()])
    without, with_it = counted
    assert [flops for flops, _ in without] == [flops for flops, _ in with_it]
    assert [there for _, there in without] == 3 * ["False"]
    assert with_it[-1][1] == "True"


def test_the_algebra_is_there_once_more_than_numbers_are_asked() -> None:
    code = """
found = as_torch('''
from torch.fx.experimental.symbolic_shapes import guard_or_false, sym_and, sym_eq, sym_or
import sympy
print(guard_or_false(2 > 1), sym_and(True, False), sym_or(False, True), sym_eq((1, 2), [1, 2]), sym_eq([1], [2]))
print(isinstance(3, sympy.Basic))
''')
print("sympy.core" in sys.modules)
compiled = torch.compile(lambda x: x * x.shape[0], backend="eager", dynamic=True)
print(compiled(torch.ones(3)).sum().item(), compiled(torch.ones(5)).sum().item())
from torch.fx.experimental.symbolic_shapes import ShapeEnv
import torch.fx.experimental.symbolic_shapes as algebra, sympy, sympy.core.basic
shape = ShapeEnv().create_unbacked_symint()
print(found["guard_or_false"](shape == 1), type(found["sym_or"](shape == 1, shape == 2)).__name__)
print(found["guard_or_false"](a=True))
print(algebra.ShapeEnv is ShapeEnv, torch.fx.experimental.symbolic_shapes.ShapeEnv is ShapeEnv)
print(isinstance(sympy.Symbol("x"), found["sympy"].Basic), sys.modules["sympy"].Basic is sympy.core.basic.Basic)
"""
    assert python(code).split("\n") == [
        "True False True True False",
        "False",
        "False",
        "9.0 25.0",
        "False SymBool",
        "True",
        "True True",
        "True True",
    ]


@pytest.mark.parametrize(
    "code",
    [
        "from sympy import Symbol; import sympy",
        "import importlib; importlib.import_module('sympy.core'); import sympy",
    ],
)
def test_symbols_come_with_whatever_is_asked_of_them(code: str) -> None:
    check = """
import sympy.core.basic
assert sys.modules["sympy"].core.basic is sympy.core.basic is sys.modules["sympy.core.basic"]
print(sys.modules["sympy"].Symbol("x") + 1, sys.modules["sympy"].__version__ == sympy.__version__)
"""
    assert python(f"{code}\n{check}") == "x + 1 True"


def test_others_import_while_a_part_is_waited_for() -> None:
    """Python holds a lock that all imports need while it looks for a module."""
    code = """
import threading
from hubscout.stand_ins import StandIn
asked, go, real = threading.Event(), threading.Event(), StandIn.real

def wait(self, module=""):
    asked.set()
    assert go.wait(60)
    return real(self, module)

StandIn.real = wait
first = threading.Thread(target=lambda: __import__("torch._dynamo.config"))
first.start()
assert asked.wait(60)
assert "colorsys" not in sys.modules
second = threading.Thread(target=lambda: __import__("colorsys"), daemon=True)
second.start()
second.join(20)
print(second.is_alive(), there())
go.set()
first.join()
print(there())
"""
    assert python(code).split("\n") == ["False False", "True"]
