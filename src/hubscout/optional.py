"""Imports of packages that only some parts of hubscout need, and of large ones."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from hubscout.errors import MissingDependencyError

_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_PYTHON = tuple(os.path.join(os.path.dirname(path), "") for path in (os.__file__, os.path.realpath(os.__file__)))
_TELEMETRY = {"openvino": "openvino_telemetry"}
"""By package: what would tell its makers, over the network and unasked, that it was imported."""


def is_installed(file: str | os.PathLike[str]) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    path = os.fspath(file)
    return path.startswith(_PYTHON) or _PACKAGES.search(path) is not None


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import `module` without its telemetry, or say which extra installs it.

    >>> require("json", extra="none", purpose="This example").__name__
    'json'
    """
    if module in _TELEMETRY and module not in sys.modules:
        sys.modules.setdefault(_TELEMETRY[module], None)  # type: ignore[arg-type]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise MissingDependencyError(package, extra, purpose) from error


def require_onnx() -> tuple[ModuleType, ModuleType]:
    """The packages `onnx` and `onnxruntime`: one writes a file, the other runs it for the check against torch."""
    return (
        require("onnx", extra="onnx", purpose="ONNX export"),
        require("onnxruntime", extra="onnx", purpose="The check of the ONNX export"),
    )


@contextmanager
def uncollected(*, imports_alone: bool = False) -> Iterator[None]:
    """No garbage collection while large libraries are imported: they make objects by the hundred thousand, none of them
    garbage, and looking through them again and again takes a quarter of the time.

    Where the block imports and does nothing else, what it made counts as old afterwards, as what survives some
    collections does. A network that was opened there as well would stay in memory for long after its last use.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if imports_alone and not gc.get_freeze_count():  # what the user has frozen stays so
            gc.freeze()
            gc.unfreeze()  # all of it into the oldest generation
        if was_on:
            gc.enable()


@contextmanager
def torch_ahead(data: Any, then: Callable[[], object] | None = None) -> Iterator[None]:
    """Import torch in a thread while the block opens `data`, which is mostly waiting for files, as importing is.

    `then` is done right after it, in the same thread. Leaving the block waits for both. Without a thread where the data
    are no files, or not there: who has mistyped a name is told at once. What goes wrong is for the next import to say.
    """
    thread = None
    with suppress(OSError, TypeError):  # too long for a name, or none
        if "torch" not in sys.modules and Path(os.path.expanduser(data)).exists():
            thread = threading.Thread(target=_import_torch, args=(then,), name="hubscout-import")
            thread.start()
    try:
        yield
    finally:
        if thread is not None:
            thread.join()


def _import_torch(then: Callable[[], object] | None) -> None:
    with suppress(Exception):
        scores = threading.Thread(target=_import_for_scores, name="hubscout-import-scipy")
        scores.start()
        _load_libraries_of_torch()
        scores.join()
        with uncollected(imports_alone=True):
            importlib.import_module("torch")
        if then is not None:
            then()


def _import_for_scores() -> None:
    """What the first score needs of SciPy, while the system loads torch's libraries and Python has nothing to do."""
    with suppress(Exception):  # what goes wrong is for the next import to say
        for name in ("scipy.linalg", "scipy.special", "scipy.sparse"):
            importlib.import_module(name)


def _load_libraries_of_torch() -> None:
    """Have the system load them: a gigabyte for a GPU, while which an import would hold the interpreter.

    So would making a `ctypes.CDLL`; a function of one that is there leaves it to others.
    """
    found = importlib.util.find_spec("torch")
    if os.name != "posix" or found is None or found.origin is None:
        return
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    folder = Path(found.origin).parent / "lib"
    # As torch itself does: first what others need to find, then the rest.
    for name, mode in (("libtorch_global_deps.so", ctypes.RTLD_GLOBAL), ("libtorch_python.so", ctypes.DEFAULT_MODE)):
        dlopen(os.fsencode(folder / name), mode | os.RTLD_NOW)
