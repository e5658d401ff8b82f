"""Pickles read as data: arrays and tensors come out, every other class becomes a bag of attributes, no code runs."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import CheckpointError, UnsafeCheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_MAKERS_OF_TENSORS = frozenset({"torch", "numpy", "collections", "_codecs"})
_PICKLES_IN_OLD_FILES = 5
"""Torch files before the zip format: a magic number, a version, the system, the object, the keys of its tensors."""
_ARRAY_PARTS: dict[str, Any] = {
    "_reconstruct": np.empty(0).__reduce__()[0],
    "ndarray": np.ndarray,
    "dtype": np.dtype,
}


def names_called(path: Path) -> list[str]:
    """What a pickle, or a torch file of any age, would import to call: `os.system`. The makers of tensors are left out.

    The instructions are read and none is carried out. What cannot be read ends the search.
    """
    found: list[str] = []
    with contextlib.suppress(Exception):  # damage of every kind; what stands before it counts
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".pkl"):
                        found.extend(_imports(io.BytesIO(archive.read(name))))
        else:
            with path.open("rb") as file:
                for _ in range(_PICKLES_IN_OLD_FILES):
                    found.extend(_imports(file))
    return [name for name in dict.fromkeys(found) if name.partition(".")[0] not in _MAKERS_OF_TENSORS]


def _imports(file: IO[bytes]) -> Iterator[str]:
    """The names that one pickle asks for, in order, by following the strings that it puts on its stack."""
    strings: list[str] = []
    memo: dict[int, str] = {}
    for code, argument, _ in pickletools.genops(file):
        if code.name in ("GLOBAL", "INST"):
            yield _public(*str(argument).split(" ", 1))
        elif code.name == "STACK_GLOBAL" and len(strings) > 1:
            yield _public(*strings[-2:])
        elif "UNICODE" in code.name or "STRING" in code.name:
            strings.append(str(argument))
        elif code.name == "MEMOIZE":
            memo[len(memo)] = strings[-1] if strings else ""
        elif code.name.endswith("PUT"):
            memo[int(argument or 0)] = strings[-1] if strings else ""
        elif code.name.endswith("GET"):
            strings.append(memo.get(int(argument or 0), ""))


def _public(module: str, name: str) -> str:
    """The name that people know a function by."""
    known = {"posix": "os", "nt": "os", "__builtin__": "builtins"}
    return f"{known.get(module, module)}.{name}"


class _ArrayUnpickler(pickle.Unpickler):
    """Builds NumPy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] != "numpy" or name not in _ARRAY_PARTS:
            raise UnsafeCheckpointError(
                f"The pickle would call {_public(module, name)}, and only NumPy arrays are read from it."
            )
        return _ARRAY_PARTS[name]


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """Nested dictionaries of NumPy arrays; a pickle of anything else is refused."""
    with path.open("rb") as file:
        try:
            return _ArrayUnpickler(file).load()
        except (pickle.UnpicklingError, EOFError) as error:
            raise CheckpointError(f"{path} is not a pickle of arrays: {error}") from error


class _Attributes:
    """Stands in for a class of a TorchScript program: keeps the attributes and does nothing."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _ScriptUnpickler(pickle.Unpickler):
    """Builds the tensors and the nesting of a TorchScript module, and none of its methods."""

    def __init__(self, content: bytes, read_storage: Callable[[str], bytes]) -> None:
        super().__init__(io.BytesIO(content))
        self._read_storage = read_storage

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__"):
            return _Attributes
        allowed: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch", "FloatStorage"): "FloatStorage",
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch.jit._pickle", "build_intlist"): list,
        }
        if (module, name) not in allowed:
            raise UnsafeCheckpointError(
                f"The archive would call {_public(module, name)}, and only tensors are read from it."
            )
        return allowed[module, name]

    def persistent_load(self, key: Any) -> np.ndarray:
        kind, storage_type, name, _location, count = key
        if kind != "storage" or storage_type != "FloatStorage":
            raise CheckpointError(f"The archive holds a {storage_type} storage, and only float32 is read.")
        return np.frombuffer(self._read_storage(name), dtype=np.float32, count=count)


def _rebuild_tensor(
    storage: np.ndarray, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> Tensor:
    import torch

    return torch.as_strided(torch.from_numpy(storage.copy()), size, stride, offset)


def read_script_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a TorchScript archive by dotted name, in the order of the module; its code stays unread."""
    try:
        with zipfile.ZipFile(path) as archive:
            (data,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            root = data.removesuffix("data.pkl")
            module = _ScriptUnpickler(archive.read(data), lambda name: archive.read(f"{root}data/{name}")).load()
    except (zipfile.BadZipFile, KeyError, ValueError, pickle.UnpicklingError, EOFError) as error:
        raise CheckpointError(f"{path} is not a TorchScript archive that can be read: {error}") from error
    return dict(_walk(module, ""))


def _walk(part: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in vars(part).items():
        if isinstance(value, _Attributes):
            yield from _walk(value, f"{prefix}{name}.")
        elif hasattr(value, "untyped_storage"):
            yield f"{prefix}{name}", value
