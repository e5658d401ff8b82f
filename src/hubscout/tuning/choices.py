"""What can be refused of a tuning before data are read and torch is imported, which can take long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
_DISTILS_ANSWERS = ("distill-weighted", "logit-kd")
HEEDED_BY = {
    "feature_trade_off": ("b-tuning", *_DISTILS_ANSWERS),
    "kd_temperature": _DISTILS_ANSWERS,
    "label_share": ("b-tuning",),
    "posterior_folds": ("b-tuning",),
    "zoo_lite": ("zoo",),
    "zoo_start": ("zoo",),
}
"""Arguments that only some of the methods of hubscout heed."""
FOR_TEACHERS = {*HEEDED_BY, "teacher_targets", "teacher_views", "teacher_weights", "temperature"} - {"posterior_folds"}
"""Arguments that say nothing where nobody teaches."""


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


def check_heeded(arguments: TuningArguments, method: str | None, teachers: Any) -> None:
    """Refuse arguments that this method, or a run without teachers, would not heed. None: the method is open."""
    if method is not None and method not in USES_TEACHERS:
        return  # a plug-in heeds what it likes
    for name in sorted(FOR_TEACHERS | HEEDED_BY.keys()):
        value = getattr(arguments, name)
        if value == getattr(type(arguments), name):
            continue
        methods = HEEDED_BY.get(name, USES_TEACHERS)
        if not teachers and name in FOR_TEACHERS:
            raise InputError(f"{name}={value!r} is for runs with teachers: give teachers=..., or leave it out.")
        if (method or FOLLOWS_LABELS) in USES_TEACHERS.keys() - {*methods}:
            raise InputError(f"{name}={value!r} is for method {' or '.join(map(repr, methods))}: leave it out.")


def heeded(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Of the options of several methods those that this one heeds.

    >>> heeded({"label_share": 0.0, "zoo_lite": True, "epochs": 3}, "zoo")
    {'zoo_lite': True, 'epochs': 3}
    """
    known = USES_TEACHERS.keys()
    alone = set() if USES_TEACHERS.get(method, True) else FOR_TEACHERS
    skipped = {name for name, methods in HEEDED_BY.items() if method in known - {*methods}} | alone
    return {name: value for name, value in options.items() if name not in skipped}


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
