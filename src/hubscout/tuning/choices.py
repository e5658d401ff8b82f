"""What can be refused of a tuning before data are read and torch is imported, which can take long."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import InputError, UnknownMethodError
from hubscout.features.precision import check_device
from hubscout.hubs.hub_registry import check_identifier
from hubscout.registry import Registry
from hubscout.runs.run_folder import CHECKPOINTS, check_folder

if TYPE_CHECKING:
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.methods.method import Method

METHODS: Registry[type[Method]] = Registry("method", UnknownMethodError, group="hubscout.methods")
"""Filled when `hubscout.tuning.methods` is imported."""

USES_TEACHERS = {
    "b-tuning": True,
    "distill-weighted": True,
    "fine-tune": False,
    "kd": True,
    "logit-kd": True,
    "zoo": True,
}
"""The methods of hubscout itself, known without importing them."""
FOLLOWS_LABELS = "b-tuning"
"""The one that has something to follow where nobody teaches."""


def check_choices(
    model: Any,
    teachers: Any,
    method: str,
    arguments: TuningArguments,
    folder: Path | None,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Refuse what can be refused before data are read, which can take long."""
    uses_teachers = _uses_teachers(method)
    if uses_teachers and not teachers and method != FOLLOWS_LABELS:
        raise InputError(
            f"method={method!r} learns from teachers: give at least one, or method='fine-tune', or for classes "
            f"method={FOLLOWS_LABELS!r}, which need none."
        )
    if teachers and not uses_teachers:
        raise InputError(f"method={method!r} has no teachers: leave teachers=... out, or choose another method.")
    if isinstance(model, str):
        check_identifier(model)
    check_device(arguments.device)
    check_folder(folder, f"{CHECKPOINTS}/step-*.pt", resume=resume, overwrite=overwrite)


def _uses_teachers(method: str) -> bool:
    if method in USES_TEACHERS:
        return USES_TEACHERS[method]
    if method not in METHODS:
        raise UnknownMethodError(method, {*USES_TEACHERS, *METHODS})
    return METHODS[method].uses_teachers


def check_souped(models: Any) -> None:
    """Refuse fewer than two models to average, and one that is given twice."""
    if isinstance(models, str | Path) or not hasattr(models, "__len__") or len(models) < 2:
        raise InputError("A soup needs at least two tuned models: give a list of them, or of their folders.")
    folders = [Path(model).resolve() for model in models if isinstance(model, str | Path)]
    if again := [folder for folder, count in Counter(folders).items() if count > 1]:
        raise InputError(f"{again[0]} is given twice: a soup averages different runs.")
