"""One way to hold arrays: NumPy on the host, torch on an accelerator, and the same lines of mathematics for both.

A torch tensor on the CPU is looked at as a NumPy array without a copy, because NumPy's symmetric product and SciPy's
divide-and-conquer eigensolver are the fastest there; a tensor on an accelerator stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import array_api_compat
import numpy as np

from hubscout.errors import InputError

Array = Any
"""A NumPy array, or a torch tensor on any device."""

EPSILON = float(np.finfo(np.float64).eps)

HOST_TENSORS_AS_NUMPY = True
"""Off only in tests, to run the tensor code on a machine without an accelerator."""

STRIP, PART = 128, 1 << 13
"""Columns of a triangle that are packed together, and packed numbers that are added up together: fewer than the 10,000
from which on OpenBLAS wakes its threads for a product of two vectors, which costs more than the product."""

CHUNK_BYTES, ACCELERATED_BYTES = 1 << 25, 1 << 27
"""How much is promoted to float64 at a time, by a processor and by an accelerator."""


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
    try:
        array: np.ndarray = np.asarray(value)
        if array is not value and array.dtype.kind == "f" and array.size and np.abs(array).max() >= 2**63:
            # NumPy makes floats of integers that no integer type holds, and different ones may become equal.
            objects = np.asarray(value, dtype=object)
            array = objects if all(isinstance(one, int) for one in objects.flat) else array
    except (ValueError, TypeError, OverflowError) as error:
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
    return tensor if tensor.device.type != "cpu" or not HOST_TENSORS_AS_NUMPY else to_host(tensor)


def to_host(array: Array) -> np.ndarray:
    """The same numbers as a NumPy array."""
    if is_torch(array):
        tensor = array.detach().cpu()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return np.asarray(array)


def fetched(*arrays: Array) -> list[np.ndarray]:
    """Float64 arrays as NumPy arrays; those of an accelerator come together, so that it is waited for once."""
    if not is_torch(arrays[0]):
        return [np.asarray(array) for array in arrays]
    import torch

    flat = to_host(torch.cat([array.reshape(-1) for array in arrays]))
    parts = np.split(flat, np.cumsum([array.numel() for array in arrays])[:-1])
    return [part.reshape(tuple(array.shape)) for part, array in zip(parts, arrays, strict=True)]


def to_device_of(array: Array, reference: Array) -> Array:
    """The same numbers in the namespace and on the device of `reference`."""
    if not is_torch(reference):
        return to_host(array)
    import torch

    return torch.as_tensor(array, device=reference.device)


def to_float64(array: Array) -> Array:
    """The same numbers as float64; a copy only where the type changes."""
    return array.double() if is_torch(array) else np.asarray(array, dtype=np.float64)


def zeros_like_device(reference: Array, *shape: int) -> Array:
    """Float64 zeros in the namespace and on the device of `reference`."""
    if is_torch(reference):
        import torch

        return torch.zeros(shape, dtype=torch.float64, device=reference.device)
    return np.zeros(shape)


def chunks(length: int, width: int, *, accelerated: bool = False) -> Iterator[slice]:
    """Slices of `length` rows of `width` numbers, each about `CHUNK_BYTES` as float64, all about the same size."""
    rows = max((ACCELERATED_BYTES if accelerated else CHUNK_BYTES) // (8 * max(width, 1)), 256)
    count = -(-length // rows)
    for index in range(count):
        yield slice(index * length // count, (index + 1) * length // count)


def add_product(upper: Array, rows: Array) -> Array:
    """The upper triangle of upper + rowsᵀ·rows, in place where it can be; what is below means nothing."""
    if is_torch(rows):
        return upper.addmm_(rows.T, rows)
    from scipy.linalg.blas import dsyrk, ssyrk

    # Half the work of a full product, and no second matrix of its size: this is where the time of a pass goes.
    product = ssyrk if upper.dtype == np.float32 else dsyrk
    if rows.flags.c_contiguous:
        return product(1.0, rows.T, beta=1.0, c=upper, overwrite_c=True)
    return product(1.0, np.asfortranarray(rows), beta=1.0, c=upper, overwrite_c=True, trans=True)


def add_upper(upper: Array, other: Array) -> None:
    """Add the upper triangle of another matrix, in place."""
    if is_torch(upper):
        upper += other
        return
    for start in range(0, len(upper), 256):
        stop = start + 256
        upper[:stop, start:stop] += other[:stop, start:stop]


def packed_upper(upper: np.ndarray) -> np.ndarray:
    """The upper triangle in float32, strip by strip of columns, in about half the memory that a matrix takes."""
    size = len(upper)
    strips = [(start, min(start + STRIP, size)) for start in range(0, size, STRIP)]
    packed, place = np.empty(sum(stop * (stop - start) for start, stop in strips), np.float32), 0
    for start, stop in strips:
        count = stop * (stop - start)
        packed[place : place + count].reshape(stop - start, stop)[:] = upper[:stop, start:stop].T
        place += count
    return packed


def add_outer(upper: Array, first: Array, second: Array) -> Array:
    """The upper triangle of upper + first·secondᵀ + second·firstᵀ, in place where it can be."""
    if is_torch(upper):
        return upper.addr_(first, second).addr_(second, first)
    from scipy.linalg.blas import dsyr2

    return dsyr2(1.0, first, second, a=upper, overwrite_a=True)


def upper_times(upper: Array, vector: Array) -> Array:
    """The product of a symmetric matrix, given by its upper triangle, and a vector."""
    if is_torch(upper):
        return mirrored(upper) @ vector
    from scipy.linalg.blas import dsymv

    return dsymv(1.0, upper, vector)


def less(rows: Array, shift: Array) -> Array:
    """Rows less a vector, as float64: one pass over them, whatever their type."""
    if is_torch(rows):
        return rows.double() - shift
    return np.subtract(rows, shift, dtype=np.float64, casting="same_kind")


def upper_zeros(reference: Array, size: int) -> Array:
    """Zeros for `add_product` to fill, in the memory order that lets it work in place."""
    if is_torch(reference):
        return zeros_like_device(reference, size, size)
    return np.zeros((size, size), order="F")


def upper_inners(first: Array, others: Iterable[Array]) -> list[Array]:
    """Σ first·other over all entries of symmetric matrices that are given by their upper triangles: a scalar each.

    Below the diagonal the first must hold zeros, and the others may hold anything finite.

    >>> float(upper_inners(np.array([[1.0, 2.0], [0.0, 3.0]]), [np.array([[1.0, 1.0], [9.0, 1.0]])])[0])
    8.0
    """
    if is_torch(first):
        both = 2 * first
        both.diagonal().copy_(first.diagonal())
        return [both.reshape(-1) @ other.reshape(-1) for other in others]
    # Transposed, because the arrays of `add_product` are contiguous that way.
    return [2 * np.vdot(first.T, other.T) - first.diagonal() @ other.diagonal() for other in others]


def packed_inners(first: np.ndarray, others: Iterable[np.ndarray]) -> list[float]:
    """The same of one matrix, which is overwritten, and of others that are `packed_upper`."""
    diagonal = first.diagonal().copy()
    first *= 2
    np.fill_diagonal(first, diagonal)
    packed = packed_upper(first)
    return [long_inner(packed, other) for other in others]


def long_inner(first: np.ndarray, second: np.ndarray) -> float:
    """Σ first·second over all entries, (n,), where either is in float32.

    In parts, which are added as float64: a long sum would cost float32 half of its digits. A part is in the cache,
    where it costs next to nothing to be made float64.
    """
    parts = (slice(start, start + PART) for start in range(0, len(first), PART))
    return sum(float(np.vdot(first[part], second[part])) for part in parts)


def mirrored(upper: Array) -> Array:
    """The symmetric matrix whose upper triangle this is."""
    xp = namespace(upper)
    return xp.triu(upper) + xp.triu(upper, k=1).T


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


def sum_of_squares(rows: Array) -> float:
    """Of all numbers. A NaN, an infinity or a number too large or too small to square shows up in it."""
    if is_torch(rows):
        import torch

        floats = rows if rows.dtype.is_floating_point else rows.double()
        return float(torch.linalg.vector_norm(floats, dtype=torch.float64)) ** 2
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for part in chunks(*rows.shape):
            flat = to_float64(rows[part]).ravel(order="K")
            total += float(np.vdot(flat, flat))
    return total
