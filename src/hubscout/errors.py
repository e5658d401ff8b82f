"""Every error that hubscout raises on purpose, in one tree, and every warning.

An error says which argument was wrong, what was allowed, what came, and what to do. Bad arguments are also
`ValueError`s, missing packages `ImportError`s, so that code which knows nothing of hubscout can catch them.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from hubscout.credentials import strip_credentials


def did_you_mean(name: str, names: Iterable[str], prefix: str = "") -> str:
    """The end of a message on an unknown name: the nearest of `names`, if one is near.

    >>> did_you_mean("resnet5", ["resnet50", "vit"], "timm/"), did_you_mean("bert", ["vit"])
    (" Did you mean 'timm/resnet50'?", '')
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" Did you mean {prefix + near[0]!r}?" if near else ""


def shortened(names: Iterable[str], most: int = 30) -> str:
    """Names for a message: a table may have many thousands.

    >>> shortened(["a", "b", "c"], most=2), shortened([])
    ('a, b and 1 more', 'none')
    """
    listed = list(names)
    rest = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + rest


def one_line(error: BaseException) -> str:
    """The whole message, line breaks taken out; the type of an error that says nothing.

    >>> one_line(ValueError("a\\n  b")), one_line(KeyError())
    ('a b', 'KeyError')
    """
    return " ".join(str(error).split()) or type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of a message, which libraries may go on from with pages; the type of an error without one."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class HubscoutError(Exception):
    """The root of the tree: `except HubscoutError` catches everything that hubscout raises on purpose.

    Messages are printed, logged and saved: credentials in URLs are taken out of them here.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(strip_credentials(arg) if isinstance(arg, str) else arg for arg in args))


class InputError(HubscoutError, ValueError):
    """An argument is not what the function can work with."""


def check_choice(name: str, value: object, allowed: Iterable[str], error: type[InputError] = InputError) -> None:
    """Raise for the value of an argument that is none of those allowed; the nearest is offered.

    >>> check_choice("colour", "read", ("red", "blue"))
    Traceback (most recent call last):
    hubscout.errors.InputError: colour must be one of red, blue; got 'read'. Did you mean 'red'?
    """
    if value not in (names := tuple(allowed)):
        raise error(f"{name} must be one of {', '.join(names)}; got {value!r}.{did_you_mean(str(value), names)}")


def check_least(name: str, value: float, least: float = 1) -> None:
    """Raise for a number that is too small.

    >>> check_least("workers", -1, 0)
    Traceback (most recent call last):
    hubscout.errors.InputError: workers must be at least 0; got -1.
    """
    if value < least:
        raise InputError(f"{name} must be at least {least}; got {value!r}.")


class UnknownNameError(InputError):
    """A name that is in no registry. The message offers the nearest one and lists what there is."""

    what = "name"

    def __init__(self, name: str, available: Iterable[str], *, context: str = "") -> None:
        names = sorted(available)
        hint = did_you_mean(str(name), names)
        scope = f" {context}" if context else ""
        super().__init__(f"Unknown {self.what} {name!r}.{hint} Available{scope}: {', '.join(names) or 'none'}.")
        self.name = name
        self.available = tuple(names)


def keywords(function: Callable[..., Any]) -> set[str]:
    """The names of a function's arguments, without that of the mapping which takes all others.

    >>> sorted(keywords(check_least))
    ['least', 'name', 'value']
    """
    return {name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD}


def check_keywords(given: Iterable[str], known: Iterable[str], *, context: str = "") -> None:
    """Raise for the first keyword that is not known; the nearest is offered.

    >>> check_keywords(["colr"], ["colour", "size"])
    Traceback (most recent call last):
    hubscout.errors.UnknownNameError: Unknown name 'colr'. Did you mean 'colour'? Available: colour, size.
    """
    if unknown := sorted({*given} - {*known}):
        raise UnknownNameError(unknown[0], known, context=context)


class UnknownMetricError(UnknownNameError):
    """No metric of this name, or none that serves this kind of task."""

    what = "metric"


class UnknownSolverError(UnknownNameError):
    """No evidence solver of this name."""

    what = "solver"


class UnknownHubError(UnknownNameError):
    """No hub of this name."""

    what = "hub"


class UnknownMethodError(UnknownNameError):
    """No tuning method of this name."""

    what = "method"


class UnknownEngineError(UnknownNameError):
    """No engine of this name."""

    what = "engine"


class TaskError(InputError):
    """Data that cannot be read as a task: a missing folder or column, a broken file, labels of a wrong kind."""


class NothingReadableError(TaskError):
    """Of the samples that were asked for, none could be read."""


class ModelError(HubscoutError):
    """A model cannot be loaded or run. One such model does not end a ranking: it becomes a row with this reason."""


class AccelerationError(ModelError):
    """A model that cannot run accelerated, or would give other features so. It runs in torch instead."""


class ModalityError(ModelError, InputError):
    """A model that does not read the inputs of the task: images, text, arrays."""


class OverLimitError(ModelError):
    """A model that costs more than was allowed: parameters, operations or time. It is not run."""


class ModelNotFoundError(ModelError):
    """The hub has no such model, or it is not on this machine and the hub cannot be reached."""


class CheckpointError(ModelError):
    """Weights that do not fit the architecture, or a file that is no checkpoint."""


class UnsafeCheckpointError(CheckpointError):
    """A checkpoint that would run code when opened. It was not opened."""


class CodeNotAllowedError(ModelError):
    """A file names a model that would run code, and nobody allowed that for this file. Nothing was run."""


class MissingDependencyError(HubscoutError, ImportError):
    """A package that an optional part of hubscout needs is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'hubscout[{extra}]'"
        )
        self.package = package
        self.extra = extra


class CacheError(HubscoutError):
    """The feature cache cannot be read or written."""


class CorruptCacheError(CacheError):
    """A cache file is cut short or altered: its hash is not the one that was written."""


class TuningError(HubscoutError):
    """Tuning cannot start or go on."""


class DivergedError(TuningError):
    """The loss became NaN or infinite, or far larger than that of a model that says nothing."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what} {advice}".strip())
        self.what = what


class EngineError(HubscoutError):
    """The engine that runs the work cannot be started, or lost a job for good."""


class RunError(HubscoutError):
    """A saved run cannot be read: missing files, another version, or another kind of run."""


class OtherRunError(CheckpointError, RunError, InputError):
    """A folder holds another run than the one that was asked for, which is left as it is."""


class InterruptedRunError(HubscoutError):
    """Ctrl-C: what was finished is kept, and this says where."""


class EvidenceWarning(UserWarning):
    """A score stands, but does not say what a score says. What is wrong with it is in `Evidence.notes` too."""


class UnboundedEvidenceWarning(EvidenceWarning):
    """The features fit a target without noise: its evidence has no maximum, and its score is as good as infinite."""


class RoundingWarning(EvidenceWarning):
    """More of a score than it should be is rounding. `Evidence.rounding` says how much."""
