"""Weights from files, safely: a checkpoint is data, and a file that would run code is refused unopened."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, ModelNotFoundError, UnsafeCheckpointError
from hubscout.hubs.inert_pickle import names_called

if TYPE_CHECKING:
    from torch import Tensor, nn

State = dict[str, "Tensor"]

_INDEX_SUFFIX = ".index.json"
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "module")
_LISTED = 8


def read_state(path: Path) -> State:
    """The tensors of a checkpoint by name: safetensors (also sharded, by its index file), or a torch file.

    A torch file is read with `weights_only=True`. One that holds anything but data raises `UnsafeCheckpointError`;
    nothing in it is run.
    """
    if not path.is_file():
        raise ModelNotFoundError(f"No checkpoint at {path}.")
    if path.name.endswith(_INDEX_SUFFIX):
        return _read_sharded(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    return _read_torch(path)


def find_weights(folder: Path) -> Path:
    """The weight file of a model folder: safetensors before anything else."""
    for name in ("model.safetensors", "model.safetensors.index.json"):
        if (folder / name).is_file():
            return folder / name
    for pattern in ("*.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json", "*.pth", "*.pt", "*.bin"):
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
    if called or "Unsupported" in str(error):
        what = f"it would call {_some(called)}" if called else _first_line(str(error)[str(error).find("Unsupported") :])
        return UnsafeCheckpointError(
            f"{path} holds more than tensors and was refused; nothing in it was run ({what}). If you trust its author, "
            "open it there and save its state_dict() as safetensors."
        )
    return CheckpointError(f"{path} is not a checkpoint that torch can read: {_first_line(error)}")


def _unwrap(path: Path, content: Any) -> State:
    """The state dict inside what a training script saved; averaged weights before raw ones."""
    import torch

    for _ in range(3):
        if not isinstance(content, Mapping):
            break
        inner = next((content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a state dict.")
    state = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if not state:
        raise CheckpointError(f"{path} holds no tensors by name; its keys are {_some(map(str, content))}.")
    # DistributedDataParallel and torch.compile put their own name before every key.
    for prefix in ("module.", "_orig_mod."):
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def fit_state(module: nn.Module, state: State, *, source: str) -> None:
    """Load weights into a module, in float32. Every parameter must be there with its shape, or all faults are listed.

    Running counters that a file leaves out (`num_batches_tracked`) keep their value; they do not enter any output.
    """
    import torch

    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    optional = {name for name in expected if name.endswith("num_batches_tracked")}
    missing = sorted(expected.keys() - state.keys() - optional)
    unexpected = sorted(name for name in state.keys() - expected.keys() if not name.endswith("num_batches_tracked"))
    mismatched = [
        f"{name} is {tuple(state[name].shape)} in the file and {shape} in the model"
        for name, shape in expected.items()
        if name in state and tuple(state[name].shape) != shape
    ]
    faults = []
    if mismatched:
        faults.append(f"{len(mismatched)} shapes differ: {_some(mismatched)}")
    if missing:
        faults.append(f"{len(missing)} parameters are missing: {_some(missing)}")
    if unexpected:
        faults.append(f"{len(unexpected)} do not belong: {_some(unexpected)}")
    if faults:
        raise CheckpointError(f"The weights of {source} do not fit {type(module).__name__}. {'; '.join(faults)}.")
    known = {name: value for name, value in state.items() if name in expected}
    known = {name: value.float() if value.is_floating_point() else value for name, value in known.items()}
    with torch.no_grad():
        module.load_state_dict(known, strict=False)


def fingerprint(module: nn.Module, *settings: object) -> str:
    """A hash of the weights (names, types, shapes, bytes) and of `settings` that change what a forward pass gives."""
    return fingerprint_state(module.state_dict(), *settings)


def fingerprint_state(state: Mapping[str, Tensor], *settings: object) -> str:
    """`fingerprint` of a state dict. Tensors are hashed in threads: hashing leaves the interpreter free."""
    names = sorted(state)
    with ThreadPoolExecutor() as pool:
        digests = pool.map(_digest, (state[name] for name in names))
        total = hashlib.blake2b(digest_size=16)
        for name, digest in zip(names, digests, strict=True):
            total.update(name.encode() + b"\0" + digest)
    for setting in settings:
        total.update(repr(setting).encode() + b"\0")
    return total.hexdigest()


def _digest(tensor: Tensor) -> bytes:
    import torch

    plain = tensor.detach().cpu().contiguous()
    header = f"{plain.dtype}{tuple(plain.shape)}".encode()
    data = memoryview(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""  # type: ignore[arg-type]
    return hashlib.blake2b(data, digest_size=16, key=header[:64]).digest()


def _some(names: Any) -> str:
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more


def _first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0]
