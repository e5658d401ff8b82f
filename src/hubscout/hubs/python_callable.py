"""`python:module:function`: any callable that gives a network, from a module that can be imported or from a file.

What such code computes is known by a fingerprint of the user's own source: a file, and the files that it imports.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hubscout.errors import HubscoutError, InputError, ModelError, ModelNotFoundError, did_you_mean
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.image_preprocessing import ImageConfig
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelListing
from hubscout.hubs.torchvision_compat import prepare_torchvision
from hubscout.hubs.vision import HalvesBackbone, PlainBackbone
from hubscout.light_imports import before_user_code
from hubscout.optional import is_installed

if TYPE_CHECKING:
    from torch import nn

_NOT_OURS_TO_FOLLOW = sys.stdlib_module_names | {"hubscout"}


def load(identifier: Identifier) -> Backbone:
    """Call the function with the identifier's options and make a backbone of what it returns."""
    made = call(identifier)
    if isinstance(made, Backbone):
        made.card = replace(made.card, identifier=str(identifier))
    else:
        made = wrap(made, identifier)
    return with_code(made, identifier)


def list_models(pattern: str) -> ModelListing:
    """Nothing: functions are named, not listed."""
    return ModelListing(notes=("Functions are not listed; name one as python:module:function.",))


def with_code(backbone: Backbone, identifier: Identifier) -> Backbone:
    """The backbone that a function of the user's gave, with the fingerprint of that code on its card."""
    home = identifier.name.rpartition(":")[0]
    code = code_fingerprint(Path(home).expanduser()) if home.endswith(".py") else _code_of_module(sys.modules[home])
    backbone.card = replace(backbone.card, code_fingerprint=code)
    return backbone


@functools.cache
def _code_of_module(module: ModuleType) -> str:
    # Once: a module is imported once, so what is written to its file later is not what runs.
    if not (file := getattr(module, "__file__", None)):
        return ""
    try:
        return code_fingerprint(Path(file))
    except FileNotFoundError as error:
        raise ModelError(
            f"python:{module.__name__}: the module was imported, and its file {error.filename} is gone since. "
            "Start Python anew, or put the file back."
        ) from None


def call(identifier: Identifier) -> Any:
    """What the function returns: a torch module or a `Backbone`."""
    from torch import nn

    # The function may import timm or torchvision, and do what it likes with torch.
    prepare_torchvision()
    before_user_code()
    function = find_function(identifier.name)
    try:
        made = function(**identifier.options)
    except HubscoutError:
        raise
    except Exception as error:
        raise ModelError(f"{identifier} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, Backbone | nn.Module):
        raise ModelError(f"{identifier} must return a torch.nn.Module or a Backbone, got {type(made).__name__}.")
    return made


def find_function(name: str) -> Callable[..., Any]:
    """The callable behind `module:function` or `folder/file.py:function`."""
    home, colon, attribute = name.rpartition(":")
    if not colon or not home or not attribute:
        raise InputError(f"'python:{name}' must be python:module:function or python:path/to/file.py:function.")
    module = _import_file(Path(home)) if home.endswith(".py") else _import_module(home)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ModelNotFoundError(f"{home!r} has no function {part!r}.{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    if not callable(found):
        raise ModelError(f"'python:{name}' is a {type(found).__name__}, not a function.")
    inner = found
    while isinstance(inner, functools.partial):
        inner = inner.func
    maker = getattr(inner, "__module__", None) or "Python itself"
    if maker.partition(".")[0] != module.__name__.partition(".")[0]:  # something that the module happened to import
        raise ModelError(
            f"'python:{name}' is defined in {maker}, not in the module that is named. Name a function or a class where "
            "it is defined, or write a function that calls it."
        )
    return found


def _import_module(name: str) -> ModuleType:
    if name.partition(".")[0] in sys.stdlib_module_names:
        raise ModelError(f"'python:{name}' names a module of Python itself, and no model is made there.")
    if name not in sys.modules:
        _forget_neighbours(None)
    before, here = set(sys.modules), str(Path.cwd())
    if here not in sys.path and importlib.util.find_spec(name.partition(".")[0]) is None:
        sys.path.append(here)  # a command, unlike `python -m`, does not look into the folder that it is run from
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ModelError(f"Importing {name!r} needs the module {error.name!r}, which is missing.") from error
        raise ModelNotFoundError(f"There is no Python module {name!r} on the path or in {here}.") from error
    if module.__file__ is not None:
        _remember_neighbours(Path(module.__file__).parent, set(sys.modules) - before - {name})
    return module


def _import_file(path: Path) -> ModuleType:
    path = Path(os.path.expanduser(path)).resolve()
    if not path.is_file():
        raise ModelNotFoundError(f"No Python file at {path}.")
    # By content too: a file that was changed since, or that imports one that was, is run again.
    name = f"hubscout_user_{abs(hash((str(path), code_fingerprint(path))))}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    _forget_neighbours(path.parent)
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # its neighbours, as `python file.py` would find them
    # From source: compiled files are told apart by second and size, and a quick edit keeps both.
    without_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise ModelError(f"Importing {path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.dont_write_bytecode = without_bytecode
        sys.path.remove(str(path.parent))
        _remember_neighbours(path.parent, set(sys.modules) - before - {name})
    return module


_neighbours: dict[str, tuple[Path, bytes]] = {}
"""Modules that users' files brought with them: where each lies, and its source when it was imported."""


def _remember_neighbours(folder: Path, names: set[str]) -> None:
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if not file or name.partition(".")[0] == "hubscout":
            continue
        path = Path(file)
        if folder in path.parents and path.is_file() and not is_installed(path):
            _neighbours[name] = (path, path.read_bytes())


def _forget_neighbours(folder: Path | None) -> None:
    """Let them be imported again where one was changed since, or may have a namesake in another folder."""
    if all(
        folder in path.parents and path.is_file() and path.read_bytes() == source
        for path, source in _neighbours.values()
    ):
        return
    for name in _neighbours:
        sys.modules.pop(name, None)
    _neighbours.clear()
    importlib.invalidate_caches()


def wrap(module: nn.Module, identifier: Identifier, *, image_options: Mapping[str, Any] | None = None) -> Backbone:
    """A backbone out of any torch module.

    In order of what the module is: timm's two halves (`forward_features`, `forward_head`); a torchvision classifier,
    whose last layer is the source head; else its output is the features. `module.pretrained_cfg`, a dictionary in
    timm's names, says how images are prepared; without it a module is taken to want 224-pixel ImageNet images, unless
    it says `module.num_features` and so takes arrays.
    """
    import torch

    known = dict(getattr(module, "pretrained_cfg", None) or {})
    is_array = not known and hasattr(module, "num_features") and not hasattr(module, "forward_features")
    input_size = known.get("input_size")
    is_array = is_array or (input_size is not None and len(input_size) != 3)
    config = None if is_array else ImageConfig.from_pretrained_cfg(known).updated(image_options or {})
    common: dict[str, Any] = {
        "identifier": str(identifier),
        "architecture": known.get("architecture") or type(module).__name__,
        "config": config,
        "input_size": tuple(input_size) if input_size else None,
        "facts": {
            "source_data": known.get("source_data"),
            "source_accuracy": known.get("source_accuracy"),
            "licence": known.get("license") or known.get("licence"),
        },
    }
    if hasattr(module, "forward_features") and hasattr(module, "forward_head"):
        classes = getattr(module, "num_classes", None)
        if classes is None and config is not None:  # it does not say, but one pass shows
            two_halves: Any = module.eval()
            with torch.no_grad():
                maps = two_halves.forward_features(torch.zeros(1, *config.input_size))
                classes = two_halves.forward_head(maps).shape[-1]
        return HalvesBackbone(module, source_classes=classes or None, **common)
    if type(module).__module__.startswith("torchvision.models"):
        from hubscout.hubs.torchvision_hub import wrap_network

        return wrap_network(module, **common)
    try:
        return PlainBackbone(module, source_classes=None, **common)
    except HubscoutError:
        raise
    except Exception as error:
        size = config.input_size if config else input_size
        raise ModelError(
            f"{identifier}: {type(module).__name__} does not run on an input of {size}: {error}. "
            "Set module.pretrained_cfg = {'input_size': ..., 'mean': ..., 'std': ...} to say what it takes."
        ) from error


def code_fingerprint(file: Path) -> str:
    """A hash of a Python file and of all files that it imports, directly or not, wherever in it the imports stand.

    Nothing is run. Installed packages are left out, and so are paths and names: the same source in another place, or
    on another machine, has the same fingerprint. "" for a file that is part of an installed package.
    """
    file = file.resolve()
    if is_installed(file):
        return ""
    found: dict[Path, str] = {}
    waiting = [file]
    while waiting:
        if (path := waiting.pop()) not in found:
            content = path.read_bytes()
            found[path] = hashlib.blake2b(content, digest_size=16).hexdigest()
            waiting += [other.resolve() for other in _imported(path, content, home=file.parent)]
    return hashlib.blake2b(" ".join([found.pop(file), *sorted(found.values())]).encode(), digest_size=16).hexdigest()


def _imported(path: Path, content: bytes, home: Path) -> Iterator[Path]:
    for level, parts in _import_statements(content):
        yield from _files_of(parts, path.parents[level - 1]) if level else _absolute(parts, home)


@functools.lru_cache(maxsize=256)
def _import_statements(content: bytes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The level and the parts of each import. Kept: many models may come out of one file, which takes long to parse."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return ()  # importing it says what is wrong
    found: list[tuple[int, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            found += [(node.level, (*parts, alias.name)) for alias in node.names]
    return tuple(dict.fromkeys(found))


def _absolute(parts: Sequence[str], home: Path) -> list[Path]:
    """The files of an import in the first place that has it: the folder of the user's file, then Python's path."""
    if parts[0] in _NOT_OURS_TO_FOLLOW:
        return []
    known = getattr(sys.modules.get(parts[0]), "__file__", None)  # which spares hundreds of looks into folders
    for root in (home, *([] if known and is_installed(Path(known)) else map(Path, sys.path))):
        if files := _files_of(parts, root):
            return [] if is_installed(files[0].resolve()) else files
    return []


def _files_of(parts: Sequence[str], root: Path) -> list[Path]:
    """The files of a module and of the packages around it; the last of `parts` may be a name within a module."""
    files = []
    place = root
    for part in parts:
        place = place / part
        if not place.is_dir():
            if (file := place.with_suffix(".py")).is_file():
                files.append(file)
            break
        if (file := place / "__init__.py").is_file():
            files.append(file)
    return files
