"""Which files of a repository a model needs: its settings, its vocabulary and one set of weights.

Weights are taken as safetensors. Pickles, and code, are fetched only where the user said so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hubscout.errors import CheckpointError, InputError, ModelError, UnsafeCheckpointError
from hubscout.hubs.failures import absent, with_option
from hubscout.hubs.repository import Repository

PLACE_OPTIONS = ("revision", "trust_remote_code", "pickle")
"""The options that say what is taken from a repository, beside its name."""
_SETTINGS = frozenset({".json", ".txt", ".model", ".jinja", ".spm", ".bpe", ".vocab", ".codes", ".tiktoken"})
_SAFE = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
_LISTED = 8


def is_allowed(options: Mapping[str, Any], name: str) -> bool:
    """Whether a switch among the options is on. Only `true` is: nothing is allowed by a slip of the pen."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {value!r}.")
    return value


def fetch_model(repository: Repository, options: Mapping[str, Any], folders: Sequence[str] = ("",)) -> Path:
    """The local folder with what the model in `folders` of the repository needs. The first one has the weights."""
    code, pickle = is_allowed(options, "trust_remote_code"), is_allowed(options, "pickle")
    return repository.fetch(_needed(repository, folders, code=code, pickle=pickle))


def read_json(repository: Repository, name: str) -> Any:
    """A file of settings of a repository; an empty dictionary where there is none."""
    return read_settings(repository.path(name)) if name in repository.sizes else {}


def read_settings(path: Path) -> Any:
    """A file of settings."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def pick_weights(repository: Repository, names: Sequence[str], *, pickle: bool) -> str:
    """The first of `names` that the repository has; a pickle only if it is allowed."""
    there = [name for name in names if name in repository.sizes]
    safe = [name for name in there if name.endswith(".safetensors")]
    if safe:
        return safe[0]
    if not there:
        raise _no_weights(repository)
    if not pickle:
        raise _only_pickled(repository, there)
    return there[0]


def _needed(repository: Repository, folders: Sequence[str], *, code: bool, pickle: bool) -> list[str]:
    needed: list[str] = []
    for place, folder in enumerate(folders):
        inside = [name for name in repository.sizes if _folder_of(name) == folder]
        needed += [name for name in inside if PurePosixPath(name).suffix in _SETTINGS]
        safe, pickled = _matching(inside, _SAFE), _matching(inside, _PICKLED)
        if safe:
            needed += safe
        elif pickled and not pickle:
            raise _only_pickled(repository, pickled)
        elif pickled:
            needed += pickled
        elif place == 0:
            raise _no_weights(repository)
    if code:
        needed += [name for name in repository.sizes if name.endswith(".py")]
    return sorted(dict.fromkeys(needed), key=lambda name: repository.sizes[name] or 0)


def _matching(names: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """The one file of weights, or else all parts of them."""
    found = [name for name in names if pattern.fullmatch(PurePosixPath(name).name)]
    whole = [name for name in found if "-of-" not in name]
    return whole or found


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _only_pickled(repository: Repository, names: Sequence[str]) -> UnsafeCheckpointError:
    return UnsafeCheckpointError(
        f"{repository.identifier} has its weights only as a pickle ({', '.join(names[:_LISTED])}), a format that can "
        "run code when it is opened; it was not fetched. Ask its author for safetensors, or write "
        f"'{with_option(repository.identifier, 'pickle=true')}': it is then read as bare numbers, and refused if it "
        "holds more."
    )


def _no_weights(repository: Repository) -> ModelError:
    if repository.silence is not None:
        why = f"only a part of it was fetched ({', '.join(sorted(repository.sizes)[:_LISTED])}); {repository.silence}"
        return absent(repository.identifier, why)
    others = [name for name, size in repository.sizes.items() if PurePosixPath(name).suffix not in _SETTINGS]
    there = ", ".join(sorted(others, key=lambda name: -(repository.sizes[name] or 0))[:_LISTED]) or "none"
    return ModelError(
        f"{repository.identifier}: {repository.name} has no weights that can be opened here (model.safetensors). Its "
        f"other files: {there}."
    )
