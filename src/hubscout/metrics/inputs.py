"""Checks of what the metrics are given. Each returns a float64 or integer copy-on-need; no input is ever changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.errors import InputError


def real_matrix(value: Any, argument: str) -> np.ndarray:
    """A finite float64 matrix of at least one row and column."""
    array = to_numpy(value, argument)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{argument} must be real numbers; got an array of dtype {array.dtype}.")
    if array.ndim != 2:
        raise InputError(f"{argument} must have two axes, samples and columns; got shape {array.shape}.")
    if 0 in array.shape:
        raise InputError(f"{argument} is empty: its shape is {array.shape}.")
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        raise InputError(
            f"{argument} must be finite; {argument}[{bad[0]}, {bad[1]}] is {array[bad[0], bad[1]]} "
            f"({int((~np.isfinite(array)).sum())} such values)."
        )
    return array


def class_ids(targets: Any, rows: int, argument: str = "features") -> tuple[np.ndarray, int]:
    """Class ids 0..C-1 of the classes that are present, and C. Absent classes leave no trace; one class is an error.

    >>> class_ids(["cat", "dog", "cat"], 3)
    (array([0, 1, 0]), 2)
    """
    array = to_numpy(targets, "targets")
    if array.ndim != 1:
        raise InputError(f"targets of a classification task must have one axis; got shape {array.shape}.")
    if array.dtype.kind not in "iubUS":
        raise InputError(
            f"targets of a classification task must be integer ids or strings; got dtype {array.dtype}. "
            "For real targets use kind='regression'."
        )
    _check_rows(len(array), rows, argument)
    classes, ids = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"targets must have at least two classes; all {len(array)} are {classes[0]!r}.")
    return ids, len(classes)


def label_matrix(targets: Any, rows: int, argument: str = "features") -> np.ndarray:
    """A float64 matrix of 0 and 1, one column a label."""
    array = real_matrix(targets, "targets")
    _check_rows(len(array), rows, argument)
    if not np.isin(array, (0, 1)).all():
        strange = array[~np.isin(array, (0, 1))][0]
        raise InputError(f"targets of a multilabel task must be 0 or 1; got {strange}.")
    if not varying(array).any():
        raise InputError("targets must vary: every label is the same for all samples.")
    return array


def real_columns(targets: Any, rows: int, argument: str = "features") -> np.ndarray:
    """A float64 matrix, one column a target; a vector becomes one column."""
    array = to_numpy(targets, "targets")
    array = real_matrix(array[:, None] if array.ndim == 1 else array, "targets")
    _check_rows(len(array), rows, argument)
    if not varying(array).any():
        raise InputError("targets must vary: every column is constant.")
    return array


def varying(columns: np.ndarray) -> np.ndarray:
    """Which columns are not constant."""
    return np.ptp(columns, axis=0) > 0


def to_numpy(value: Any, argument: str) -> np.ndarray:
    """A NumPy view of an array, a list or a torch tensor on any device."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError(f"{argument} is not an array: {error}.") from error


def _check_rows(found: int, expected: int, argument: str) -> None:
    if found != expected:
        raise InputError(f"targets has {found} rows, {argument} has {expected}: they must be of equal length.")
