"""`open_repository`: a model repository of the Hugging Face Hub, there or in the local cache, and what a model needs
of its files.

This is the one door to the Hub for weights: it decides whether to ask, pins a commit, fetches files, and compares them
with the hashes they are stored under. Libraries then open a folder and need no network. Weights are taken as
safetensors; pickles, and code, are fetched only where the user said so.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from hubscout.errors import CheckpointError, InputError, ModelError, UnsafeCheckpointError
from hubscout.hubs.connection import (
    absent,
    explain_hub_failure,
    hub_silence,
    in_one_line,
    is_lost_connection,
    is_timeout,
    note_silence,
    seconds_to_wait,
    status_of,
    with_option,
)
from hubscout.hubs.downloading import Download, tell
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.saving import DESCRIPTION, lineage, read_settings
from hubscout.optional import require

PLACE_OPTIONS = ("revision", "trust_remote_code", "pickle")
"""The options that say what is taken from a repository, beside its name."""
_SETTINGS = frozenset({".json", ".txt", ".model", ".jinja", ".spm", ".bpe", ".vocab", ".codes", ".tiktoken"})
_SAFE = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")
_LISTED = 8
_SECONDS_FOR_AN_ANSWER = 10.0
_PAUSES = (1.0, 3.0)
_LONGEST_PAUSE = 30.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Repository:
    """A repository at one commit. `sizes` has the bytes of each of its files, or of those in the local cache."""

    name: str
    identifier: str
    commit: str
    sizes: Mapping[str, int | None]
    silence: str | None = None
    """Why the Hub was not asked: this is what the local cache has."""
    downloads: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What a model's card says of where it came from."""
        described = lineage(self.read_json(DESCRIPTION), f"{DESCRIPTION} of {self.identifier}")
        return {"downloads": self.downloads, "commit": self.commit, **described}

    def fetch(self, names: Iterable[str], *, quietly: bool = False) -> Path:
        """The local folder with these files, each as the Hub announced it. Small ones come without a word."""
        folder, wanted = _cache_of(self.name) / "snapshots" / self.commit, list(names)
        missing = {name for name in wanted if not (folder / name).exists()}
        download = Download(0 if quietly else sum(self.sizes[name] or 0 for name in missing))
        for name in wanted:
            path = self._download(download, name) if name in missing else folder / name
            if not is_intact(path) and self.silence is None and name not in missing:
                _remove(path)
                tell(f"{name} in the local cache is not what the hub has; it is fetched again")
                self._download(Download(self.sizes[name] or 0), name)
            if is_intact(path):
                continue
            remedy = f"Remove {path} and connect once."
            if self.silence is None:
                _remove(path)
                remedy = "Nothing of it was kept: try again."
            raise CheckpointError(
                f"{name} of {self.identifier} is not what the hub announced: its bytes have another hash. {remedy}"
            )
        return folder

    def read_json(self, name: str) -> Any:
        """A file of settings; an empty dictionary where there is none."""
        return read_settings(self.fetch([name], quietly=True) / name) if name in self.sizes else {}

    def _download(self, download: Download, name: str) -> Path:
        try:
            return download.fetch(self.name, name, self.commit)
        except Exception as error:
            _note_if_silent(error)
            raise explain_hub_failure(error, self.identifier, self.name, self.commit) from error


def open_repository(name: str, identifier: Identifier) -> Repository:
    """The repository at the revision that the identifier's option names, or at its newest.

    Where the Hub cannot be asked, or has trouble, it is what the local cache has.

    Raises:
        ModelNotFoundError: there is none, or it is not here and the Hub cannot be asked.
        ModelError: the Hub has trouble, and it is not here.

    """
    require("huggingface_hub", extra="hf", purpose="Models of the Hugging Face Hub")
    wanted = identifier.options.get("revision")
    revision = None if wanted is None else str(wanted)
    if revision is not None and (not revision or ".." in revision or revision.startswith("/")):
        raise InputError(f"revision must be a branch, a tag or a commit, got {revision!r}.")
    if (silence := hub_silence()) is not None:
        if (local := _local(name, identifier, revision, silence)) is None:
            raise absent(str(identifier), silence)
        return local
    try:
        info = _ask(name, revision)
    except Exception as error:
        _note_if_silent(error)
        reason = explain_hub_failure(error, str(identifier), name, revision)
        if (local := _local(name, identifier, revision, str(reason))) is None:
            raise reason from error
        tell(f"taken from the local cache: {reason}")
        return local
    _remember_revision(name, revision or "main", info.sha)
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or ()}
    return Repository(name, str(identifier), info.sha, sizes, downloads=info.downloads)


def _ask(name: str, revision: str | None) -> Any:
    """What the Hub knows of a repository. A passing fault is worth a second and a third request."""
    from huggingface_hub import model_info

    pauses = iter(_PAUSES)
    while True:
        try:
            return model_info(name, revision=revision, files_metadata=True, timeout=_SECONDS_FOR_AN_ANSWER)
        except Exception as error:
            status, pause = status_of(error), next(pauses, None)
            wait = pause and (seconds_to_wait(error) or pause)
            if wait is None or status not in _PASSING or wait > _LONGEST_PAUSE:
                raise
            tell(f"the hub answers with the status {status}; asking again in {wait:.0f} s")
            time.sleep(wait)


def _note_if_silent(error: BaseException) -> None:
    if is_timeout(error) or is_lost_connection(error):
        note_silence(f"the hub cannot be reached ({in_one_line(error)})")


def _local(name: str, identifier: Identifier, revision: str | None, silence: str) -> Repository | None:
    """The repository as the local cache has it."""
    cache = _cache_of(name)
    reference = cache / "refs" / (revision or "main")
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision or ""
    folder = cache / "snapshots" / commit
    if not commit or not folder.is_dir():
        return None
    files = [path for path in folder.rglob("*") if path.is_file()]
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    return Repository(name, str(identifier), commit, sizes, silence)


def _cache_of(name: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"


def _remember_revision(name: str, revision: str, commit: str) -> None:
    """Write down, as the Hub's library does, which commit a branch was at: it is looked up without a network."""
    reference = _cache_of(name) / "refs" / revision
    if revision == commit or (reference.is_file() and reference.read_text(encoding="utf-8") == commit):
        return
    try:
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(commit, encoding="utf-8")
    except OSError:
        return  # a cache that is only read


def is_intact(path: Path) -> bool:
    """Whether a file of the cache has the hash it is stored under; true where that hash is not known."""
    if not path.is_symlink():
        return True
    status = path.stat()
    return _has_hash(path, os.path.basename(os.readlink(path)), status.st_size, status.st_mtime_ns)


@functools.cache
def _has_hash(path: Path, expected: str, size: int, modified: int) -> bool:
    """Compared once per process and version of a file. Large files are known by SHA-256, small ones as git does."""
    from huggingface_hub.utils.sha import git_hash, sha_fileobj

    if re.fullmatch(r"[0-9a-f]{64}", expected):
        with path.open("rb") as file:
            return sha_fileobj(file).hex() == expected
    return git_hash(path.read_bytes()) == expected if re.fullmatch(r"[0-9a-f]{40}", expected) else True


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.resolve().unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def is_allowed(options: Mapping[str, Any], name: str) -> bool:
    """Whether a switch among the options is on. Only `true` is: nothing is allowed by a slip of the pen."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {value!r}.")
    return value


def fetch_model(repository: Repository, options: Mapping[str, Any], folders: Sequence[str] = ("",)) -> Path:
    """The local folder with what the model in `folders` of the repository needs. The first one has the weights."""
    code, pickle = is_allowed(options, "trust_remote_code"), is_allowed(options, "pickle")
    needed = [name for name in repository.sizes if code and name.endswith(".py")]
    for folder in folders:
        inside = [name for name in repository.sizes if name.rpartition("/")[0] == folder]
        needed += [name for name in inside if PurePosixPath(name).suffix in _SETTINGS]
        weights = _matching(inside, _SAFE)
        if not weights and (weights := _matching(inside, _PICKLED)) and not pickle:
            raise _only_pickled(repository, weights)
        if not weights and folder == folders[0]:
            raise _no_weights(repository)
        needed += weights
    return repository.fetch(sorted(dict.fromkeys(needed), key=lambda name: repository.sizes[name] or 0))


def pick_weights(repository: Repository, names: Sequence[str], *, pickle: bool) -> str:
    """The first of `names` that the repository has; a pickle only if it is allowed."""
    there = [name for name in names if name in repository.sizes]
    if not there:
        raise _no_weights(repository)
    safe = [name for name in there if name.endswith(".safetensors")]
    if not safe and not pickle:
        raise _only_pickled(repository, there)
    return (safe or there)[0]


def _matching(names: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """The one file of weights, or else all parts of them."""
    found = [name for name in names if pattern.fullmatch(PurePosixPath(name).name)]
    return [name for name in found if "-of-" not in name] or found


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
