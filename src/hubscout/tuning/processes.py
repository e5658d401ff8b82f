"""Processes and devices, by accelerate: who am I among how many, and how results are shared."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hubscout.errors import InputError, UnknownNameError
from hubscout.optional import require
from hubscout.tuning.arguments import TuningArguments

if TYPE_CHECKING:
    from accelerate import Accelerator


def make_accelerator(arguments: TuningArguments, folder: Path | None) -> Accelerator:
    """An accelerator for a run. Settings of an earlier run in this process do not bind this one."""
    accelerate = require("accelerate", extra="tuning", purpose="Tuning")
    state = require("accelerate.state", extra="tuning", purpose="Tuning")
    utils = require("accelerate.utils", extra="tuning", purpose="Tuning")
    warn_if_alone(arguments.processes)
    check_trackers(arguments.trackers, folder)
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    state.AcceleratorState._reset_state(reset_partial_state=not distributed)
    state.GradientState._reset_state()
    on_cpu = arguments.device == "cpu" or (arguments.device == "auto" and not torch.cuda.is_available())
    precision = arguments.mixed_precision
    if precision == "auto":
        precision = "bf16" if not on_cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    accelerator = accelerate.Accelerator(
        cpu=on_cpu,
        mixed_precision=precision,
        log_with=list(arguments.trackers) or None,
        project_dir=str(folder) if folder is not None else None,
        # Norm statistics follow the main process, whose weights are the ones that are saved.
        kwargs_handlers=[utils.DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
    )
    if accelerator.num_processes > 1 and not distributed:
        atexit.register(accelerator.state.destroy_process_group)
    return accelerator


def check_trackers(names: Sequence[str], folder: Path | None) -> None:
    """Raise for a tracker that accelerate does not have, whose package is not there, or that has nowhere to write."""
    if not names:
        return
    tracking = require("accelerate.tracking", extra="tuning", purpose="Tuning")
    known = {str(name): tracker for name, tracker in tracking.LOGGER_TYPE_TO_CLASS.items()}
    installed = {str(name) for name in tracking.get_available_trackers()}
    for name in names:
        if name not in known:
            raise UnknownNameError(name, known, context="trackers")
        if name not in installed:
            raise InputError(f"trackers={name!r}: its package is not installed: pip install {name.replace('_', '-')}")
        if folder is None and known[name].requires_logging_directory:
            raise InputError(f"trackers={name!r} writes files into the folder of the run: give out.")


def start_trackers(accelerator: Accelerator, task: str, about: Mapping[str, Any]) -> None:
    """Open the trackers of a run, with what it was told as their configuration."""
    plain = {
        name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in about.items()
    }
    try:
        accelerator.init_trackers(f"hubscout-{task}", config=plain)
    except Exception as error:  # each tracker has errors of its own, for a server, a login, a package of another age
        raise InputError(f"The trackers could not be started: {type(error).__name__}: {error}") from error


def warn_if_alone(expected: int | None) -> None:
    """Say so where a run that was meant for several processes has another number of them."""
    running = int(os.environ.get("WORLD_SIZE", "1"))
    # accelerate's launcher leaves an address for processes to meet at, even where it then starts one alone.
    launched = {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= os.environ.keys() and "WORLD_SIZE" not in os.environ
    if expected is not None and expected != running:
        warnings.warn(
            f"processes={expected}, but {running} run: start them with torchrun --nproc-per-node {expected} -m "
            "hubscout tune … (on a CPU, accelerate launch starts one unless it is told --multi_gpu).",
            stacklevel=3,
        )
    elif launched:
        warnings.warn(
            "A launcher was asked for several processes, but this one runs alone (accelerate launch does so on a "
            "CPU unless it is told --multi_gpu). Use torchrun --nproc-per-node N -m hubscout tune …",
            stacklevel=3,
        )


def share_from_main(accelerator: Accelerator) -> Callable[[Callable[[], Any]], Any]:
    """A function that runs another on the main process and gives its result, or its error, to all of them."""
    if accelerator.num_processes == 1:
        return call
    utils = require("accelerate.utils", extra="tuning", purpose="Tuning")

    def shared(function: Callable[[], Any]) -> Any:
        outcome: list[Any] = [None, None]
        if accelerator.is_main_process:
            try:
                outcome = [function(), None]
            except Exception as error:
                outcome = [None, error]
        result, failure = utils.broadcast_object_list(outcome)
        if failure is not None:
            raise failure
        return result

    return shared


def gather_in_order(accelerator: Accelerator, part: Any) -> list[Any]:
    """Every process's part, in the order of the processes."""
    if accelerator.num_processes == 1:
        return [part]
    return require("accelerate.utils", extra="tuning", purpose="Tuning").gather_object([part])


def end_run(accelerator: Accelerator) -> None:
    """Wait until every process is done with the run, then end its trackers.

    The process group stays: a second one of the same launch would meet at the addresses of the first and wait for ever.
    """
    accelerator.wait_for_everyone()
    for tracker in accelerator.trackers:
        tracker.finish()
