"""How a run goes on from the last checkpoint in its folder, or begins at its first step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.runs.run_folder import CHECKPOINTS
from hubscout.tasks.sequences import task_fingerprint
from hubscout.tuning.checkpoints import Checkpoints, TrainState
from hubscout.tuning.choices import METHODS
from hubscout.tuning.default_method import check_left_teachers
from hubscout.tuning.processes import start_trackers
from hubscout.tuning.rates import RateChoice

if TYPE_CHECKING:
    from hubscout.tuning.single_run import SingleRun


def checkpoints_of(run: SingleRun) -> Checkpoints | None:
    """Those in the folder of the run, with what they must have in common with it; None without a folder."""
    if run.folder is None:
        return None
    # The weights depend on these two splits alone: samples of test may come and go.
    decisive = {"train": run.task.train, "validation": run.task.validation}
    identity = {
        "task": task_fingerprint(run.task.kind, run.task.modality, run.task.target_names, decisive),
        "model": run.identities[0],
        "teachers": run.identities[1:],
        "method": METHODS[run.method_asked].name,
        **run.asked.decisive(),
    }
    return Checkpoints(run.folder / CHECKPOINTS, identity, run.arguments.keep_checkpoints, run.method_is_open)


def last_checkpoint(run: SingleRun, resume: bool) -> tuple[Path, dict[str, Any]] | None:
    """The last whole checkpoint with its state; None where there is none. A run from the start removes them."""
    checkpoints = checkpoints_of(run)
    if checkpoints is None:
        return None
    if not resume:
        if run.accelerator.is_main_process:
            checkpoints.clear()
        run.accelerator.wait_for_everyone()
    # Asked of the main process alone, which sets damaged ones aside: others may find the folder empty by then.
    latest, damaged = run.shared(checkpoints.last_whole)
    for path in damaged:
        run.note(
            f"The checkpoint {path} is damaged: its content is not what was written. It was set aside, and the "
            f"run goes on from {latest or 'the beginning'}."
        )
    if latest is None:
        return None
    state = checkpoints.read(latest)
    check_left_teachers(run, state["train_state"])
    return latest, state


def take_over(run: SingleRun, stood: Mapping[str, Any]) -> None:
    """Do as the run did that is resumed, by the state in its checkpoint, before the network is built."""
    run.spent = stood["seconds"]
    # Its own, whatever has become of the defaults since; where it has none, what runs had before there was one.
    own = {name: stood.get(name, getattr(TrainState, name)) for name in ("trade_off", "label_share")}
    run.arguments = run.arguments.replace(**{k: v for k, v in own.items() if getattr(run.asked, k) is None})
    if views := stood.get("teacher_views"):
        run.arguments = run.arguments.replace(teacher_views=views)
    taught_by = stood.get("taught_by")
    if taught_by is not None and taught_by != run.taught_by:  # whoever there may be time for now
        run.keep_teachers(taught_by)
    run.left_teachers = stood.get("left_teachers", False)
    if stood.get("method") == "fine-tune" != run.method.name:
        run.method = METHODS["fine-tune"]()


def start(run: SingleRun, found: tuple[Path, dict[str, Any]] | None) -> None:
    """From a checkpoint, or where there is none from the first step."""
    loop = run.loop
    if found is not None:
        latest, state = found
        loop.resume(state)
        run.restarts = tuple(state["restarts"])
        stood = loop.train_state
        run.take_rate(RateChoice(stood.rate, stood.rate_reason) if stood.rate is not None else None)
        run.notes[:0] = [*([stood.rate_reason] if stood.rate is not None else []), *run.restarts]
        loop.arguments = run.arguments
        run.note(f"Resumed after step {loop.train_state.step} from {latest}.")
    elif run.folder is not None and run.accelerator.is_main_process:
        run.folder.mkdir(parents=True, exist_ok=True)
        loop.journal.resume([])
        if run.rate is not None:
            run.keep_rate(run.rate)
        for reason in run.restarts:
            loop.journal.add("note", step=0, text=reason)
    loop.restarts = run.restarts
    run.keep_method()
    run.announce()
    if run.arguments.trackers:
        names = [teacher.card.identifier for teacher in run.teachers]
        about = {"model": run.model.card.identifier, "teachers": ", ".join(names), "method": run.method.name}
        start_trackers(run.accelerator, run.task.name, {**about, **run.arguments.decisive()})
