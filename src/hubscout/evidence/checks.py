"""What may come in: features, and targets of each kind. Everything else is an error that says what came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from hubscout.errors import InputError, check_choice
from hubscout.evidence.array_backend import Array, as_native, is_torch, namespace, sum_of_squares, to_float64, to_host

SMALLEST_NORM, LARGEST_NORM = 1e-75, 1e75
"""Of features and of real targets: within, α, β and all that leads to them have room in float64."""

Kind = Literal["classification", "multilabel", "regression"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Targets:
    """Labels made ready: class ids (n,) for classification, else a matrix (n, C); one name a column."""

    kind: Kind
    names: tuple[str, ...]
    values: Array


def check_kind(kind: str) -> None:
    """Raise unless `kind` is one of the three."""
    check_choice("kind", kind, KINDS)


def default_center(kind: str, *, predicting: bool = False) -> bool:
    """Whether means are taken away where nobody says: one rule for `logme`, the estimators and `rank`.

    For regression always: numbers far from zero would otherwise favour whichever features are far from zero too. For
    classes and labels not, as in the paper; but a model that is to predict them (`LogMEClassifier`) has an intercept.
    """
    return kind == "regression" or predicting


def check_features(features: object, name: str = "features", *, feature_dim: int | None = None) -> Array:
    """A matrix of real numbers with at least one row and one column. Finiteness is checked where squares are summed."""
    array = as_native(features, name)
    shape = tuple(array.shape)
    if not is_torch(array) and array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers; got the data type {array.dtype}.")
    if len(shape) != 2:
        raise InputError(f"{name} must be a matrix (samples, dimensions); got an array of shape {shape}.")
    if 0 in shape:
        raise InputError(f"{name} is empty: its shape is {shape}. At least one sample and one dimension are needed.")
    if feature_dim is not None and shape[1] != feature_dim:
        raise InputError(f"{name} must have {feature_dim} columns, as before; got shape {shape}.")
    return array


def check_finite(features: Array, name: str = "features") -> None:
    """Raise if a value is not finite, or if squares leave the range of float64; say which and where."""
    if SMALLEST_NORM**2 <= sum_of_squares(features) <= LARGEST_NORM**2:
        return
    host = to_host(features)
    bad = np.argwhere(~np.isfinite(host))
    if len(bad):
        where = tuple(int(index) for index in bad[0])
        raise InputError(
            f"{name} must be finite; {len(bad)} of {host.size} values are not, the first is {host[where]} at {where}."
        )
    largest = float(np.abs(to_float64(host)).max())
    if largest > 0:
        raise InputError(
            f"{name} reach {largest:.3g}: products of their squares leave the range of float64. Rescale them to "
            f"between {SMALLEST_NORM:g} and {LARGEST_NORM:g} (the score does not depend on the scale)."
        )


def check_weights(weights: object, n: int) -> np.ndarray:
    """How often each of n rows counts, (n,), in float64."""
    found = np.asarray(to_host(as_native(weights, "weights")), dtype=np.float64)
    if found.shape != (n,):
        raise InputError(f"weights must have one number per row, {n}; got an array of shape {found.shape}.")
    for bad in np.flatnonzero(~(np.isfinite(found) & (found >= 0))):
        raise InputError(f"weights must be finite and not negative; number {bad} is {found[bad]}.")
    return found


def check_targets(
    targets: object,
    n: int,
    *,
    kind: str = "auto",
    classes: Sequence[object] | None = None,
    target_names: Sequence[str] | None = None,
) -> Targets:
    """Labels as they come from a user, made ready. `logme` documents the rules of `kind="auto"`."""
    array = as_native(targets, "targets")
    shape = tuple(array.shape)
    if len(shape) not in (1, 2) or 0 in shape:
        raise InputError(f"targets must be a vector or a matrix with a row per sample; got an array of shape {shape}.")
    check_rows(n, shape[0])
    if kind == "auto":
        kind = guess_kind(array)
    check_kind(kind)
    if classes is not None and kind != "classification":
        raise InputError(f"classes is only for classification; this is {kind} (name the columns with target_names).")
    if kind == "classification":
        return _class_targets(array, classes, target_names)
    matrix = check_target_matrix(array, kind)
    check_target_scale(matrix, kind)
    columns = 1 if len(shape) == 1 else shape[1]
    return Targets(kind, _names(target_names, columns), matrix)  # type: ignore[arg-type]


def guess_kind(targets: Array) -> str:
    """Integers, booleans and strings in a vector are classes, a 0/1 matrix is multi-label, floats are regression."""
    letter = _dtype_letter(targets)
    if letter == "f":
        return "regression"
    if len(targets.shape) == 1:
        return "classification"
    if letter in "biu" and bool(namespace(targets).all((targets == 0) | (targets == 1))):
        return "multilabel"
    raise InputError(
        f"targets of shape {tuple(targets.shape)} and type {targets.dtype} are ambiguous. Say kind='regression' for "
        "columns of numbers, or pass a matrix of 0 and 1 for several labels per sample, or a vector of classes."
    )


def check_rows(features: int, targets: int) -> None:
    """Features and targets have as many rows."""
    if features != targets:
        raise InputError(f"features have {features} rows but targets have {targets}.")


def check_target_matrix(targets: Array, kind: str, *, columns: int | None = None) -> Array:
    """A matrix (n, C) of real numbers (regression) or of 0 and 1 (multi-label); a vector is one regression column."""
    letter = _dtype_letter(targets)
    if letter not in "biuf" or (letter == "b" and kind == "regression"):
        raise InputError(f"targets for {kind} must hold numbers; got the data type {targets.dtype}.")
    shape = tuple(targets.shape)
    if len(shape) == 1 and kind == "regression" and columns in (None, 1):
        targets = targets[:, None]
    if len(targets.shape) != 2 or (columns is not None and targets.shape[1] != columns):
        wanted = "(n, C)" if columns is None else f"(n, {columns})"
        raise InputError(f"targets for {kind} must have shape {wanted}; got {shape}.")
    xp = namespace(targets)
    if letter == "f" and not bool(xp.all(xp.isfinite(targets))):
        raise InputError("targets must be finite; they hold NaN or infinite values.")
    if kind == "multilabel" and letter != "b" and not bool(xp.all((targets == 0) | (targets == 1))):
        raise InputError("targets for multilabel must hold only 0 and 1; other values came.")
    return targets


def check_target_scale(targets: Array, kind: str, *, whole: bool = True) -> None:
    """Raise if the squares of a regression column leave the range of float64. Of a part, small ones are no matter."""
    if kind != "regression":
        return
    columns = abs(to_float64(targets))
    for index, largest in enumerate(to_host(namespace(columns).max(columns, axis=0)).tolist()):
        if largest > LARGEST_NORM or (whole and 0 < largest < SMALLEST_NORM):
            raise InputError(scale_message(f"the column {index}", f"reaches {largest:.3g}"))


def scale_message(column: str, what: str) -> str:
    """What to do about a target column of such a size."""
    return (
        f"targets: {column} {what}: products of its squares leave the range of float64. Rescale it to between "
        f"{SMALLEST_NORM:g} and {LARGEST_NORM:g} (the gain does not depend on the scale)."
    )


def check_class_ids(ids: object, n: int, count: int) -> np.ndarray:
    """A vector of whole numbers from 0 to `count` - 1, on the host."""
    array = to_host(as_native(ids, "targets"))
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise InputError(
            f"targets must be a vector of class ids (whole numbers); got {array.dtype} of shape {array.shape}."
        )
    check_rows(n, len(array))
    if n and (array.min() < 0 or array.max() >= count):
        raise InputError(
            f"class ids must lie between 0 and {count - 1} (there are {count} target names); "
            f"got values from {array.min()} to {array.max()}."
        )
    return array.astype(np.int64)


def _class_targets(array: Array, classes: Sequence[object] | None, target_names: Sequence[str] | None) -> Targets:
    labels = to_host(array)
    if labels.ndim != 1:
        raise InputError(
            f"targets for classification must be a vector with one class per sample; got shape {labels.shape}. "
            "Pass targets[:, 0] for a single column, or kind='multilabel' for several labels per sample."
        )
    if labels.dtype.kind == "O":
        labels = _strings(labels)
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise InputError("targets must be finite; they hold NaN or infinite values.")
        if (labels != np.round(labels)).any():
            raise InputError("targets for classification must be classes; got numbers with fractions (regression?).")
    present, ids = np.unique(labels, return_inverse=True)
    if len(present) < 2:
        raise InputError(f"targets hold one class only ({present[0]!r}); at least two are needed to compare features.")
    values = list(present)
    if classes is not None:
        values = [str(value) if labels.dtype.kind in "US" else value for value in classes]
        place = {value: index for index, value in enumerate(values)}
        if len(place) != len(values):
            raise InputError("classes holds the same class twice.")
        unknown = [value for value in present.tolist() if value not in place]
        if unknown:
            raise InputError(f"targets hold classes that are not in classes: {unknown[:5]}.")
        ids = np.array([place[value] for value in present.tolist()])[ids]
    names = target_names
    if names is None:
        names = [str(int(value)) if isinstance(value, float) else str(value) for value in values]
    return Targets("classification", _names(names, len(values)), ids.astype(np.int64))


def _strings(labels: np.ndarray) -> np.ndarray:
    kinds = {type(value) for value in labels.tolist()}
    if kinds <= {str}:
        return labels.astype(str)
    if kinds <= {bool, int}:
        fits = all(abs(value) < 2**63 for value in labels.tolist())
        return labels.astype(np.int64) if fits else labels
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise InputError(f"targets of data type object must hold only strings or only whole numbers; they hold {names}.")


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(index) for index in range(count))
    if len(names) != count:
        raise InputError(f"target_names must name {count} targets; got {len(names)} names.")
    return tuple(str(name) for name in names)


def _dtype_letter(array: Array) -> str:
    if not is_torch(array):
        return array.dtype.kind
    if array.dtype.is_floating_point:
        return "f"
    return "b" if str(array.dtype) == "torch.bool" else "i"
