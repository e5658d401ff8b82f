"""The folder of a run: what its files are called, who may write it, what it was made with.

Without either, the same call goes on with the run in its folder, or starts one where there is none; another run that is
there is refused. `resume` insists that there is a run to go on with. `overwrite` starts anew in its place.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hubscout.errors import InputError, RunError

RANKING = "ranking.json"
"""Everything that a ranking knows."""
PREVIOUS_RANKING = "ranking.previous.json"
"""The ranking that was overwritten last."""
SCORES = "scores.parquet"
"""The table of a ranking, for other tools."""
EVENTS = "events.jsonl"
"""What happened in a ranking, one event per line."""
TUNING = "tuning.json"
"""What a tuning was and how well the model does."""
CURVES = "metrics.jsonl"
"""Losses and validation metrics of a tuning, one event per line."""
CHECKPOINTS = "checkpoints"
"""The folder of the checkpoints of a tuning."""
TEACHING = "teaching"
"""The folder of what teachers have said in a tuning under a budget, until it is over."""
EVALUATION = "evaluation.json"
"""What a tuned model makes of its test samples: by class, and the samples that it predicts worst."""
TRIALS = "trials.jsonl"
"""Finished trials of a comparison of methods or of a search, one per line."""
FAILED_METHODS = "failed-methods.json"
"""Methods of a comparison that could not be run, and why."""
REFERENCE = "reference.csv"
"""What fine-tuning really gave."""
REFERENCES = (REFERENCE, "reference.json")
RACE = "race.json"
"""The outcome of a race."""
RACE_LINES = "race.jsonl"
"""What happened in a race, one event per line."""
RACE_EVIDENCE, RACE_WINNER, RACE_DEPLOYED = "evidence", "winner", "deployed"
"""Folders of a race: its ranking, the tuned winner, the model that the winners taught."""
GROWING = (EVENTS, CURVES, TRIALS, RACE_LINES)
"""The files that grow line by line while a run works."""


def check_folder(out: Path | str | None, *traces: str, resume: bool, overwrite: bool) -> None:
    """Refuse wishes that contradict each other or the folder.

    Args:
        out: the folder of the run.
        traces: patterns of files that a run of this sort leaves from its first result on.
        resume: whether there must be a run to go on with.
        overwrite: whether to start anew.

    Raises:
        InputError: both are wanted, or `resume` without a run in `out`; `out` is a file.

    """
    if out is not None and Path(out).is_file():
        raise InputError(f"out={str(out)!r} is a file: give a folder, which is made if it is missing.")
    if resume and overwrite:
        raise InputError("resume=True and overwrite=True exclude each other.")
    if resume and out is None:
        raise InputError("resume=True needs the folder of the run: give out=...")
    if resume and out is not None and not any(any(Path(out).glob(trace)) for trace in traces):
        raise InputError(f"resume=True: {out} holds no run to resume. Give its folder, or leave resume=True out.")


LOCK = ".lock"
NOTE = ".holder.json"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class FolderLock:
    """A lock of the operating system on a folder: it ends with its process, however that ends.

    On a folder that several machines share it holds between them where the file system passes locks on, as NFS does.
    A file system without locks is not guarded.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FileLock(folder / LOCK, thread_local=False)

    def take(self) -> None:
        """Take the folder, which is made if need be; a `RunError` says who has it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
            mine = {"pid": os.getpid(), "host": platform.node(), "since": datetime.now(UTC).isoformat("T", "seconds")}
            (self._folder / NOTE).write_text(json.dumps(mine), encoding="utf-8")
        except Timeout:
            raise RunError(
                f"{self._folder} is being written by {self._holder()}. Wait until it is done, stop it, or choose "
                "another folder."
            ) from None
        except NotImplementedError:
            return  # how filelock says that the file system has no locks
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise RunError(f"The run folder {self._folder} cannot be written: {error.strerror}.") from error

    def release(self) -> None:
        """Let the folder go, if it is held."""
        if self._lock.is_locked:
            (self._folder / NOTE).unlink(missing_ok=True)
            self._lock.release()

    def _holder(self) -> str:
        try:
            note = json.loads((self._folder / NOTE).read_text(encoding="utf-8"))
            return f"process {int(note['pid'])} on {note['host']}, since {note['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


PACKAGES = (
    "hubscout",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "sentence-transformers",
    "datasets",
    "onnxruntime",
    "openvino",
    "pandas",
    "pyarrow",
    "pillow",
    "ray",
)


def package_versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Versions of the installed ones among `names`, without importing any."""
    return {name: found for name in names if (found := _version(name)) is not None}


@cache  # every run of a race asks for all of them, which would be 10 ms of reading
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def processor() -> str:
    """The name of the processor, as the system tells it."""
    with suppress(OSError):
        if found := re.search(r"(?m)^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8")):
            return found[1].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_environment(*, device: str | None = None) -> dict[str, Any]:
    """Versions, hardware, command line and time. torch is asked how many GPUs there are if it is loaded already."""
    record: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[:],
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": usable_cores(),
        "packages": package_versions(),
    }
    if device is not None:
        record["device"] = device
    gpus = _gpus_by_driver()
    if (torch := sys.modules.get("torch")) is not None:
        record["threads"] = torch.get_num_threads()
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0  # it counts GPUs that cannot be started
        if count != len(gpus) or len(set(gpus)) > 1:  # torch has an order of its own, and waits for one that starts
            gpus = [torch.cuda.get_device_name(i) for i in range(count)]
    if gpus:
        record["accelerators"] = gpus
    return record


def _gpus_by_driver(folder: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """The names of NVIDIA's GPUs on Linux; none where the user lets processes see some of them alone."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return []
    with suppress(OSError):
        told = [(gpu / "information").read_text(encoding="utf-8") for gpu in sorted(folder.iterdir())]
        return re.findall(r"(?m)^Model:\s*(.+?)\s*$", "\n".join(told))
    return []
