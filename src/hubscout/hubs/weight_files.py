"""Weights from files as data: pickles, too, give arrays and tensors alone, and what would run code is refused."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import CheckpointError, ModelNotFoundError, UnsafeCheckpointError, first_line, shortened

if TYPE_CHECKING:
    from torch import Tensor, nn

State = dict[str, "Tensor"]
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "module")
_MAKERS_OF_TENSORS = frozenset({"torch", "numpy", "collections", "_codecs"})
_PICKLES_IN_OLD_FILES = 5
"""Torch files before the zip format: a magic number, a version, the system, the object, the keys of its tensors."""
_ARRAY_PARTS = {"_reconstruct": np.empty(0).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}


def read_state(path: Path) -> State:
    """The tensors of a checkpoint by name: safetensors (also sharded, by its index file), or a torch file.

    A torch file is read with `weights_only=True`. One that holds anything but data raises `UnsafeCheckpointError`;
    nothing in it is run.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"No checkpoint at {path}.")
    if path.name.endswith(".index.json"):
        return _read_sharded(path)
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)


def find_weights(folder: Path) -> Path:
    """The weight file of a model folder: safetensors before anything else."""
    safe = ("model.safetensors", "model.safetensors.index.json", "*.safetensors")
    for pattern in (*safe, "pytorch_model.bin", "pytorch_model.bin.index.json", "*.pth", "*.pt", "*.bin"):
        found = [path for path in sorted(folder.glob(pattern)) if path.name != "head.safetensors"]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise CheckpointError(f"{folder} holds several weight files ({names}): name one of them.")
    raise ModelNotFoundError(f"No weights (model.safetensors, *.safetensors, *.bin, *.pth) in {folder}.")


def _read_safetensors(path: Path) -> State:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from error


def _read_sharded(index: Path) -> State:
    try:
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index} is not an index of a sharded checkpoint: {error}") from error
    state: State = {}
    for shard in shards:
        if Path(shard).name != shard:
            raise UnsafeCheckpointError(f"{index} names a shard outside its own folder: {shard!r}.")
        if not (index.parent / shard).is_file():
            raise CheckpointError(f"{index} names the shard {shard!r}, which is missing.")
        state.update(read_state(index.parent / shard))
    return state


def _read_torch(path: Path) -> State:
    import torch

    if _is_script(path):
        raise UnsafeCheckpointError(
            f"{path} is a TorchScript archive, which holds code; it was not opened. "
            "Save its state_dict() as safetensors instead."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError, AttributeError) as error:
        raise _unsafe_or_broken(path, error) from error
    return _unwrap(path, content)


def _is_script(path: Path) -> bool:
    """Whether torch would take the file for a program rather than for tensors."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _unsafe_or_broken(path: Path, error: Exception) -> CheckpointError:
    called = names_called(path) or re.findall(r"GLOBAL ([\w.]+)", str(error))
    _, unsupported, what = str(error).partition("Unsupported")
    if called or unsupported:
        what = f"it would call {shortened(called, 8)}" if called else unsupported + what.strip().partition("\n")[0]
        return UnsafeCheckpointError(
            f"{path} holds more than tensors and was refused; nothing in it was run ({what}). If you trust its author, "
            "open it there and save its state_dict() as safetensors."
        )
    return CheckpointError(f"{path} is not a checkpoint that torch can read: {first_line(error)}")


def _unwrap(path: Path, content: Any) -> State:
    """The state dict inside what a training script saved; averaged weights before raw ones."""
    import torch

    for _ in range(3):
        if isinstance(content, Mapping):
            content = next((content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), content)
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a state dict.")
    state = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if not state:
        raise CheckpointError(f"{path} holds no tensors by name; its keys are {shortened(map(str, content), 8)}.")
    # DistributedDataParallel and torch.compile put their own name before every key.
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def without_attribute(state: State) -> State:
    """Weights without the attribute that a class of a training script, such as Lightning's, has its network in.

    >>> list(without_attribute({"model.conv.weight": 1, "model.conv.bias": 2})), list(without_attribute({"fc.bias": 1}))
    (['conv.weight', 'conv.bias'], ['fc.bias'])
    """
    for prefix in ("model.", "net.", "network.", "backbone."):
        if all(name.startswith(prefix) for name in state):
            return {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def fit_state(module: nn.Module, state: State, *, source: str) -> None:
    """Load weights into a module, in float32. Every parameter must be there with its shape, or all faults are listed.

    Running counters that a file leaves out (`num_batches_tracked`) keep their value; they do not enter any output.
    """
    import torch

    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    counters = {name for name in expected.keys() | state.keys() if name.endswith("num_batches_tracked")}
    faults = {
        "shapes differ": [
            f"{name} is {tuple(state[name].shape)} in the file and {shape} in the model"
            for name, shape in expected.items()
            if name in state and tuple(state[name].shape) != shape
        ],
        "parameters are missing": sorted(expected.keys() - state.keys() - counters),
        "do not belong": sorted(state.keys() - expected.keys() - counters),
    }
    if any(faults.values()):
        listed = "; ".join(f"{len(names)} {what}: {shortened(names, 8)}" for what, names in faults.items() if names)
        raise CheckpointError(f"The weights of {source} do not fit {type(module).__name__}. {listed}.")
    known = {name: value for name, value in state.items() if name in expected}
    with torch.no_grad():  # copied into the module's own tensors, whose type is float32
        module.load_state_dict(known, strict=False)


def names_called(path: Path) -> list[str]:
    """What a pickle, or a torch file of any age, would import to call: `os.system`. The makers of tensors are left out.

    Nothing is imported or called. What cannot be read ends the search.
    """
    names: list[str] = []
    with contextlib.suppress(Exception):  # damage of every kind; what stands before it counts
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    if member.endswith(".pkl"):
                        _NameListing(io.BytesIO(archive.read(member)), names).load()
        else:
            with path.open("rb") as file:
                for _ in range(_PICKLES_IN_OLD_FILES):
                    _NameListing(file, names).load()
    return [name for name in dict.fromkeys(names) if name.partition(".")[0] not in _MAKERS_OF_TENSORS]


class _StandIn(dict[Any, Any]):
    """Takes the place of whatever a pickle asks for: keeps what it is given, and does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> _StandIn:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)


class _NameListing(pickle.Unpickler):
    """Writes down what a pickle asks for, and hands out stand-ins."""

    def __init__(self, file: IO[bytes], names: list[str]) -> None:
        super().__init__(file)
        self._names = names

    def find_class(self, module: str, name: str) -> Any:
        self._names.append(_public(module, name))
        return _StandIn

    def persistent_load(self, key: Any) -> Any:
        return _StandIn()


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


class _ScriptUnpickler(pickle.Unpickler):
    """Builds the tensors and the nesting of a TorchScript module, and none of its methods."""

    def __init__(self, content: bytes, read_storage: Callable[[str], bytes]) -> None:
        super().__init__(io.BytesIO(content))
        self._read_storage = read_storage

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__"):
            return _StandIn  # with the attributes of a module, and none of its methods
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


def _rebuild_tensor(storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any) -> Tensor:
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
        if isinstance(value, _StandIn):
            yield from _walk(value, f"{prefix}{name}.")
        elif hasattr(value, "untyped_storage"):
            yield f"{prefix}{name}", value
