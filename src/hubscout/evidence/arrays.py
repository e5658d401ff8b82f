"""One way to hold arrays: NumPy on the host, torch on an accelerator, and the same lines of mathematics for both.

A torch tensor on the CPU is looked at as a NumPy array without a copy, because NumPy's symmetric product and SciPy's
divide-and-conquer eigensolver are the fastest there; a tensor on an accelerator stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import array_api_compat
import numpy as np

from hubscout.errors import InputError

Array = Any
"""A NumPy array, or a torch tensor on any device."""

HOST_TENSORS_AS_NUMPY = True
"""Off only in tests, to run the tensor code on a machine without an accelerator."""

CHUNK_BYTES = 1 << 25
"""How much is promoted to float64 at a time."""


def is_torch(array: object) -> bool:
    """Whether this is a torch tensor. Never imports torch."""
    return array_api_compat.is_torch_array(array)


def namespace(array: Array) -> Any:
    """The array-API namespace that this array belongs to."""
    return array_api_compat.array_namespace(array)


def as_native(value: object, name: str) -> Array:
    """A NumPy array or a tensor on an accelerator, without copying what is one already; real numbers, or strings.

    >>> as_native([[1, 2], [3, 4]], "features").shape
    (2, 2)
    """
    if is_torch(value):
        return _native_tensor(value, name)
    if isinstance(value, np.ndarray):
        array: np.ndarray = np.asarray(value)
    else:
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise InputError(f"{name} must be an array or a nested list of numbers: {error}.") from error
    if array.dtype.kind == "c":
        raise InputError(f"{name} must hold real numbers; got complex ones ({array.dtype}).")
    if array.dtype.kind not in "biufUSO":
        raise InputError(f"{name} must hold numbers or strings; got the data type {array.dtype}.")
    return array


def _native_tensor(tensor: Any, name: str) -> Array:
    import torch

    if tensor.is_complex():
        raise InputError(f"{name} must hold real numbers; got complex ones ({tensor.dtype}).")
    if tensor.layout != torch.strided:
        raise InputError(f"{name} must be a dense tensor; got the layout {tensor.layout}: call .to_dense() first.")
    tensor = tensor.detach()
    if tensor.device.type == "mps":  # no float64 on this device
        tensor = tensor.cpu()
    if tensor.device.type != "cpu" or not HOST_TENSORS_AS_NUMPY:
        return tensor
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def to_host(array: Array) -> np.ndarray:
    """The same numbers as a NumPy array."""
    if is_torch(array):
        tensor = array.detach().cpu()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return np.asarray(array)


def to_device_of(array: Array, reference: Array) -> Array:
    """The same numbers in the namespace and on the device of `reference`."""
    if not is_torch(reference):
        return to_host(array)
    import torch

    return torch.as_tensor(array, device=reference.device)


def to_float64(array: Array) -> Array:
    """The same numbers as float64; a copy only where the type changes."""
    if is_torch(array):
        return array.double()
    return np.asarray(array, dtype=np.float64)


def zeros_like_device(reference: Array, *shape: int) -> Array:
    """Float64 zeros in the namespace and on the device of `reference`."""
    if is_torch(reference):
        import torch

        return torch.zeros(shape, dtype=torch.float64, device=reference.device)
    return np.zeros(shape)


def chunks(length: int, width: int) -> Iterator[slice]:
    """Slices of `length` rows of `width` numbers, each about `CHUNK_BYTES` as float64, all about the same size."""
    rows = max(CHUNK_BYTES // (8 * max(width, 1)), 256)
    count = -(-length // rows)
    for index in range(count):
        yield slice(index * length // count, (index + 1) * length // count)


def symmetric_product(rows: Array) -> Array:
    """rowsᵀ · rows. NumPy recognises the pattern and computes one triangle only."""
    return rows.T @ rows


def sums_by_id(rows: Array, ids: Array, count: int) -> Array:
    """Sum the rows of each id, without a one-hot matrix: (count, D).

    >>> sums_by_id(np.array([[1.0], [2.0], [4.0]]), np.array([1, 0, 1]), 3).ravel()
    array([2., 5., 0.])
    """
    if is_torch(rows):
        import torch

        # Sorted segments, not atomic additions: the order of the sum, and so the last digit, is the same every time.
        order = torch.argsort(ids, stable=True)
        lengths = torch.bincount(ids, minlength=count)
        return torch.segment_reduce(rows[order], "sum", lengths=lengths, axis=0, initial=0.0)
    from scipy.sparse import csr_array

    size = len(ids)
    membership = csr_array((np.ones(size), (ids, np.arange(size))), shape=(count, size))
    return membership @ rows


def squared_norms_are_finite(squares: Array) -> bool:
    """Whether sums of squares are all finite: a NaN or an infinity anywhere in a column shows up here for free."""
    xp = namespace(squares)
    return bool(xp.all(xp.isfinite(squares)))
