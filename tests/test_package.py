"""The package as a whole: what importing it costs, and the parts that everything else stands on."""

import ast
import gc
import importlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import hubscout
from hubscout import errors
from hubscout.errors import (
    EvidenceWarning,
    HubscoutError,
    InputError,
    MissingDependencyError,
    UnknownMetricError,
    UnknownNameError,
)
from hubscout.optional import require, uncollected
from hubscout.registry import Registry
from small_models import save_bert

HEAVY = ("torch", "transformers", "timm", "ray", "sklearn", "pandas", "pyarrow", "matplotlib")


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True)


@pytest.mark.parametrize(
    "module", ["hubscout", "hubscout.evidence", "hubscout.metrics", "hubscout.errors", "hubscout.registry"]
)
def test_importing_pulls_in_nothing_heavy(module):
    loaded = run("-c", f"import sys, {module}; print(*sys.modules)").stdout.split()
    assert not set(HEAVY) & set(loaded)


def test_importing_takes_less_than_half_a_second():
    def seconds():
        report = run("-X", "importtime", "-c", "import hubscout").stderr
        return int(re.search(r"\|\s*(\d+) \| hubscout$", report, re.MULTILINE).group(1)) / 1e6

    # The best of three: other work on the machine must not decide.
    assert min(seconds() for _ in range(3)) < 0.5


def test_public_names_are_there():
    for name in hubscout.__all__:
        assert getattr(hubscout, name) is not None
        assert name in dir(hubscout)
    with pytest.raises(AttributeError, match="no attribute 'logmee'"):
        _ = hubscout.logmee


def test_every_error_is_ours_and_a_bad_argument_is_a_value_error():
    ours = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(ours) > 10
    assert all(issubclass(item, EvidenceWarning if issubclass(item, Warning) else HubscoutError) for item in ours)
    assert issubclass(InputError, ValueError)
    assert issubclass(MissingDependencyError, ImportError)


def test_an_unknown_name_offers_the_nearest_and_lists_the_rest():
    error = UnknownMetricError("logmee", ["nce", "logme"], context="for regression")
    assert str(error) == "Unknown metric 'logmee'. Did you mean 'logme'? Available for regression: logme, nce."
    assert error.available == ("logme", "nce")
    assert "Available: none." in str(UnknownNameError("a", []))


def test_a_registry():
    registry: Registry[int] = Registry("number", UnknownNameError)
    registry.add("one", 1)
    assert registry.register("two")(2) == 2
    assert (registry["one"], list(registry), "two" in registry, "three" in registry) == (1, ["one", "two"], True, False)
    with pytest.raises(ValueError, match="registered twice"):
        registry.add("one", 3)
    with pytest.raises(UnknownNameError, match="Did you mean 'two'"):
        _ = registry["twoo"]


def test_a_plug_in_may_register_itself(tmp_path, monkeypatch):
    """A module that uses the decorator enters more than the object that its entry point names."""
    registry: Registry[object] = Registry("number", UnknownNameError, group="hubscout.numbers")
    (tmp_path / "extra-1.dist-info").mkdir()
    (tmp_path / "extra-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1\n")
    (tmp_path / "extra-1.dist-info" / "entry_points.txt").write_text(
        "[hubscout.numbers]\nthree = extra_numbers:three\none = extra_numbers:three\n"
    )
    code = "import numbers_under_test as t\ndef three(): pass\nt.registry.add('three', 3)\n"
    (tmp_path / "extra_numbers.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "numbers_under_test", SimpleNamespace(registry=registry))
    registry.add("one", 1)
    assert (registry["three"], registry["one"]) == (3, 1)


def test_a_missing_package_says_what_installs_it():
    with pytest.raises(MissingDependencyError, match=r"Drawing needs .* pip install 'hubscout\[report\]'"):
        require("hubscout_has_no_such_module", extra="report", purpose="Drawing")


SOURCE = Path(hubscout.__file__).parent
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "starlette": "fastapi"}
"""Packages that are imported by another name than they are installed by, apart from hyphens, or come with another."""


def requirements():
    """What the package needs, and what each extra adds, by the names that packages are installed by."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    plain = {name: set() for name in project["optional-dependencies"]}

    def distributions(lines):
        for line in lines:
            name, extras = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", line).groups()
            if name == "hubscout":
                for extra in extras.split(","):
                    yield from distributions(project["optional-dependencies"][extra])
            else:
                yield name.lower().replace("_", "-")

    for extra, lines in project["optional-dependencies"].items():
        plain[extra].update(distributions(lines))
    return set(distributions(project["dependencies"])), plain


def distribution(module):
    package = module.partition(".")[0]
    return DISTRIBUTIONS.get(package, package.lower().replace("_", "-"))


@cache
def syntax_trees():
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SOURCE.rglob("*.py"))]


def test_every_extra_that_an_error_names_exists_and_brings_the_package():
    _, extras = requirements()
    found = 0
    for path, tree in syntax_trees():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "require":
                named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
                module = ast.literal_eval(call.args[0])
                assert named["extra"] in extras, f"{path}:{call.lineno} names an extra that there is not"
                assert distribution(module) in extras[named["extra"]], f"{path}:{call.lineno}: {module}"
                found += 1
    assert found > 20


def test_every_package_that_is_imported_is_a_dependency_or_in_an_extra():
    always, extras = requirements()
    users = always.union(*(added for extra, added in extras.items() if extra not in ("dev", "docs")))
    known = set(sys.stdlib_module_names) | {"hubscout"}
    for path, tree in syntax_trees():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                if name.partition(".")[0] not in known:
                    assert distribution(name) in users, f"{path}:{node.lineno} imports {name}"


def test_no_exported_name_is_also_a_module():
    """A lazily exported function would be hidden by its module as soon as somebody imports that."""
    import importlib
    import pkgutil

    import hubscout

    packages = [m.name for m in pkgutil.walk_packages(hubscout.__path__, "hubscout.") if m.ispkg]
    for name in ["hubscout", *packages]:
        package = importlib.import_module(name)
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        assert not modules & set(getattr(package, "__all__", ())), name


def test_ranking_an_image_model_imports_nothing_that_it_does_not_use(pictures):
    """Not by time: which libraries are there after a vision model was ranked from files, and which are not."""
    code = f"""
import sys
import hubscout
from hubscout.runs.events import Started
def hear(event):
    if isinstance(event, Started):
        before.extend({{name.partition(".")[0] for name in sys.modules}})
before = []
model = "timm/test_efficientnet?pretrained=false&input_size=32"
ranking = hubscout.rank({str(pictures)!r}, [model], cache=False, measure_latency=False, observer=hear)
assert len(ranking) == 1, ranking.failures
print(*before)
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    before, after = (line.split() for line in run("-c", code).stdout.splitlines()[-2:])
    assert {"torch", "timm"} <= set(before)
    unused = {"transformers", "sklearn", "pandas", "pyarrow", "accelerate", "datasets", "onnx", "onnxruntime", "ray"}
    assert not (unused | {"loky", "psutil", "matplotlib", "sentence_transformers"}) & set(after)


def test_ranking_a_text_model_imports_nothing_that_it_does_not_use(tmp_path):
    """In torch; transformers itself imports torchvision, torch's compiler, SciPy and accelerate with every network."""
    model = save_bert(tmp_path)
    code = f"""
import sys
import numpy as np
import hubscout
task = hubscout.Task.from_arrays(np.array(["good film", "bad book"] * 8), ["a", "b"] * 8)
ranking = hubscout.rank(task, [{model!r}], cache=False, measure_latency=False, accelerate="off")
assert len(ranking) == 1, ranking.failures
print(*{{name.partition(".")[0] for name in sys.modules}})
"""
    after = set(run("-c", code).stdout.splitlines()[-1].split())
    assert {"torch", "transformers", "tokenizers"} <= after
    unused = {"timm", "sklearn", "pandas", "pyarrow", "datasets", "onnx", "onnxruntime", "ray", "sentence_transformers"}
    assert not (unused | {"loky", "matplotlib", "peft"}) & after


def test_garbage_collection_is_off_while_libraries_are_imported_and_on_again_after_it():
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ModuleNotFoundError), uncollected():
        importlib.import_module("no_such_library")
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.fixture
def nothing_frozen():
    """As in a process of a user; the objects of the suite are frozen."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_what_libraries_make_while_they_are_imported_is_not_looked_through_at_the_next_collection():
    with uncollected(imports_alone=True):
        made = [[]]
    assert any(old is made for old in gc.get_objects(generation=2))
    assert gc.get_freeze_count() == 0  # it can still be collected
    with uncollected():
        network = [[]]
    assert not any(old is network for old in gc.get_objects(generation=2))


@pytest.mark.usefixtures("nothing_frozen")
def test_what_a_user_has_frozen_stays_frozen():
    gc.freeze()
    try:
        with uncollected(imports_alone=True):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


AHEAD = """
import sys, threading
from hubscout.optional import torch_ahead
names = lambda: [thread.name for thread in threading.enumerate()]
"""


@pytest.mark.parametrize("block", ["assert 'hubscout-import' in names()", "raise KeyboardInterrupt"])
def test_torch_is_imported_while_data_are_opened(block: str) -> None:
    """The thread ends with the block, also by an error."""
    code = (
        f"try:\n    with torch_ahead('.'):\n        {block}\nexcept KeyboardInterrupt:\n    pass\n"
        "assert 'hubscout-import' not in names() and 'torch' in sys.modules\n"
        "import torch; torch.zeros(2) @ torch.zeros(2)"
    )
    subprocess.run([sys.executable, "-c", AHEAD + code], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what the system tells of a process")
def test_the_libraries_of_torch_are_loaded_while_other_threads_go_on() -> None:
    code = """
import time
from hubscout.optional import _load_libraries_of_torch
ticks = []

def tick():
    while not ticks or ticks[-1] is not None:
        ticks.append(len(ticks))
        time.sleep(0.001)

thread = threading.Thread(target=tick)
thread.start()
before = len(ticks)
_load_libraries_of_torch()
between = len(ticks) - before
ticks.append(None)
thread.join()
assert "torch" not in sys.modules
assert "libtorch_python" in open("/proc/self/maps").read()
assert between > 2, between
import torch; torch.zeros(2) @ torch.zeros(2)
"""
    subprocess.run([sys.executable, "-c", AHEAD + code], check=True)


@pytest.mark.parametrize("data", ["'not-there'", "'x' * 5000", "([[1.0]], ['a'])", "None"])
def test_what_is_no_file_waits_for_no_import(data: str) -> None:
    code = f"with torch_ahead({data}):\n    assert 'hubscout-import' not in names()\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", AHEAD + code], check=True)
