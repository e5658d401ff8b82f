"""What can be refused of a tuning before data are read and torch is imported, which can take long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
ALL = ("fine-tune", "kd", "zoo", "b-tuning")
"""Those that `compare` compares."""
FOLLOWS_LABELS = "b-tuning"
"""The one that has something to follow where nobody teaches."""
_DISTIL_ANSWERS = ("distill-weighted", "logit-kd")
_MIX_ANSWERS = ("b-tuning", *_DISTIL_ANSWERS)
_FOLLOW_TEACHERS = (*_MIX_ANSWERS, "kd")
HEEDED_BY = {
    "feature_trade_off": _MIX_ANSWERS,
    "kd_temperature": _DISTIL_ANSWERS,
    "label_share": ("b-tuning",),
    "posterior_folds": ("b-tuning",),
    "teacher_targets": _FOLLOW_TEACHERS,
    "teacher_views": _FOLLOW_TEACHERS,
    "teacher_weights": _MIX_ANSWERS,
    "temperature": _MIX_ANSWERS,
    "trade_off": _FOLLOW_TEACHERS,
    "zoo_lite": ("zoo",),
    "zoo_start": ("zoo",),
}
"""Of the methods of hubscout those that heed an argument; all of them heed what is not here."""
HEEDED_WITHOUT_TEACHERS = ("posterior_folds", "trade_off")
"""Of those arguments the ones that say something where nobody teaches."""
HEEDED_BESIDE = {"teacher_views": ("teacher_targets", "views"), "temperature": ("teacher_weights", "softmax")}
"""Arguments that say something only where another one has this value."""

NOT_HEEDED = "Not heeded by"


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


def unheeded(arguments: TuningArguments, method: str, teachers: Any) -> dict[str, Any]:
    """The arguments that were given and that a run by this method, with these teachers, does not heed.

    >>> from hubscout.tuning import TuningArguments
    >>> unheeded(TuningArguments(label_share=0.2, trade_off=3.0, epochs=5), "kd", ["timm/a"])
    {'label_share': 0.2}
    """
    if method not in USES_TEACHERS:
        return {}  # a plug-in heeds what it likes

    def is_heeded(name: str) -> bool:
        other, value = HEEDED_BESIDE.get(name, ("", None))
        beside = not other or getattr(arguments, other) == value
        return beside and method in HEEDED_BY[name] and (bool(teachers) or name in HEEDED_WITHOUT_TEACHERS)

    given = {name: getattr(arguments, name) for name in HEEDED_BY}
    default = type(arguments)
    return {name: value for name, value in given.items() if value != getattr(default, name) and not is_heeded(name)}


def check_heeded(arguments: TuningArguments, method: str | Sequence[str] | None, teachers: Any) -> None:
    """Refuse arguments that nothing would heed, whatever the data are.

    Where nobody asks for a method, the data may decide for one that heeds less: the run says so in a note.

    Args:
        arguments: of the run.
        method: that was asked for, or several that are compared; None where nobody asked for one.
        teachers: that were given.

    Raises:
        InputError: an argument that none of the methods heeds, or none without teachers.

    """
    methods = [method or FOLLOWS_LABELS] if method is None or isinstance(method, str) else list(method)
    first, *others = (unheeded(arguments, one, teachers) for one in methods)
    for name, value in first.items():
        if not all(name in other for other in others):
            continue
        told, by = f"{name}={value!r}", HEEDED_BY[name]
        if not {*by} & {*methods}:
            raise InputError(f"{told} is for method {' or '.join(map(repr, by))}: leave it out.")
        if not teachers and name not in HEEDED_WITHOUT_TEACHERS:
            raise InputError(f"{told} is for runs with teachers: give teachers=..., or leave it out.")
        other, wanted = HEEDED_BESIDE[name]
        raise InputError(f"{told} is for {other}={wanted!r}: leave it out.")


def unheeded_note(arguments: TuningArguments, method: str, teachers: Any) -> str:
    """What the user should know where the data or the time decided for a run that does not heed all; else empty.

    >>> from hubscout.tuning import TuningArguments
    >>> unheeded_note(TuningArguments(label_share=0.2, trade_off=3.0), "fine-tune", ())
    'Not heeded by fine-tune without teachers: label_share=0.2, trade_off=3.0.'
    """
    found = unheeded(arguments, method, teachers)
    for name, value in (("posterior_folds", 1), ("trade_off", 0)):  # no folds, no such term: it has neither
        if found.get(name) == value:
            del found[name]
    told = ", ".join(f"{name}={value!r}" for name, value in found.items())
    return f"{NOT_HEEDED} {method}{'' if teachers else ' without teachers'}: {told}." if told else ""


def heeded(options: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Of the options of several methods those that this one heeds.

    >>> heeded({"label_share": 0.0, "zoo_lite": True, "epochs": 3}, "zoo")
    {'zoo_lite': True, 'epochs': 3}
    """
    known = method in USES_TEACHERS
    return {name: value for name, value in options.items() if not known or method in HEEDED_BY.get(name, (method,))}


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
