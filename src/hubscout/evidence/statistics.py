"""Additive sufficient statistics: all that the evidence needs to know about features and labels.

They are summed batch by batch while a model runs, merged across processes and machines in any order, and take
O(D² + D·C) memory a block whatever the number of samples. Every sum is about a shift, the mean of the first rows that
came where they are far from zero, so that an offset of all features costs no digits; sums about different shifts are
merged about the first one's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import (
    Array,
    chunks,
    is_torch,
    less,
    sum_of_squares,
    to_device_of,
    to_float64,
    to_host,
    zeros_like_device,
)
from hubscout.evidence.block import ARRAYS, Block, whole_if_it_is
from hubscout.evidence.checks import (
    Kind,
    Targets,
    as_native,
    check_class_ids,
    check_features,
    check_finite,
    check_kind,
    check_rows,
    check_target_matrix,
    check_target_scale,
    check_weights,
)
from hubscout.evidence.offset import is_far

FORMAT = "hubscout-statistics-3"
FIRST_ROWS = 64
"""Of the first batch: enough to see where the features lie."""
SHIFT_FROM = 100
"""How many times their spread the features must be from zero to be shifted. Below, two digits of ε go."""
RUNNING_FROM = 256
"""Dimensions. From here on memory for a float64 Gram matrix per block costs more than the error bar is worth."""
SMALL_SQUARE = 1e-20
"""Sums of squares from here to its inverse leave products room in float32."""


@dataclass(frozen=True)
class KeptRows:
    """Rows of features with their targets and the sample that each belongs to: (m, D), (m,) or (m, C), and (m,)."""

    features: np.ndarray
    targets: np.ndarray
    samples: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[KeptRows]) -> KeptRows | None:
        """All of them, those of a sample together; None where there are none."""
        if not parts:
            return None
        names = ("features", "targets", "samples")
        whole = cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
        return whole.take(np.argsort(whole.samples, kind="stable"))

    def take(self, rows: np.ndarray) -> KeptRows:
        """Some of the rows, or all in another order."""
        return KeptRows(self.features[rows], self.targets[rows], self.samples[rows])

    def shuffled(self) -> KeptRows:
        """The same rows in another order, always the same one."""
        return self.take(np.random.default_rng(0).permutation(len(self.samples)))


class Statistics:
    """Sums over samples, kept by block so that a delete-one-block jackknife needs no second pass.

    Args:
        kind: what `update` takes as targets: class ids into `target_names` ("classification"), a 0/1 matrix with one
            column per name ("multilabel"), or real columns ("regression").
        target_names: of the classes, labels or numbers.
        feature_dim: the columns of the features; None takes those of the first batch.

    Raises:
        InputError: another kind, or no names.

    Example:
        >>> features, ids = np.eye(4), np.array([0, 1, 1, 0])
        >>> first = Statistics("classification", ["cat", "dog"]).update(features[:2], ids[:2])
        >>> second = Statistics("classification", ["cat", "dog"]).update(features[2:], ids[2:])
        >>> both = first + second
        >>> both.n, both.total().about_zero().cross.tolist()
        (4, [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]])

    """

    def __init__(self, kind: Kind, target_names: Sequence[str], *, feature_dim: int | None = None) -> None:
        check_kind(kind)
        if isinstance(target_names, str) or not len(target_names):
            raise InputError(f"target_names must be a list of at least one name; got {target_names!r}.")
        self.kind = kind
        self.target_names = tuple(str(name) for name in target_names)
        self.feature_dim = feature_dim
        self.blocks: dict[int, Block] = {}
        self.kept: list[KeptRows] = []
        """Rows that whoever made the sums wants to predict later. They are merged, and not saved."""

    @property
    def n(self) -> float:
        """How many samples went in; with weights, their sum."""
        return whole_if_it_is(sum(block.n for block in self.blocks.values()))

    def update(self, features: object, targets: object, *, block: int = 0, weights: object = None) -> Statistics:
        """Add a batch to a block. Nothing is kept of the batch, nothing is changed in it.

        Args:
            features: (n, D) array or tensor.
            targets: of the rows, as the kind says.
            block: which block of the jackknife the batch belongs to.
            weights: (n,): a row of weight 2 is the row twice, one of weight 0 is none.

        Returns:
            Itself.

        Raises:
            InputError: shapes that do not fit, values that are not finite, class ids without a name. The sums are then
                as before.

        """
        rows = check_features(features, feature_dim=self.feature_dim)
        n = int(rows.shape[0])
        count = len(self.target_names)
        values: Any
        if self.kind == "classification":
            values = to_device_of(check_class_ids(targets, n, count), rows)
        else:
            values = check_target_matrix(as_native(targets, "targets"), self.kind, columns=count)
            check_target_scale(values, self.kind, whole=False)
            check_rows(n, len(values))
            values = to_device_of(values, rows)
        counted = None if weights is None else check_weights(weights, n)
        check_finite(rows)  # before anything is added: a bad batch leaves the sums as they were
        if counted is None:
            self.add_checked(rows, values, block=block)
        elif (there := np.flatnonzero(counted)).size:
            chosen = to_device_of(there, rows)
            self.add_checked(rows[chosen], values[chosen], block=block, weights=to_device_of(counted[there], rows))
        return self

    def add_checked(self, rows: Array, values: Array, *, block: int, weights: Array | None = None) -> None:
        """Add a batch that `update` would accept, without looking at it again.

        Args:
            rows: (n, D) features.
            values: their targets, on the same device.
            block: which block of the jackknife they belong to.
            weights: (n,), all above 0; None is 1 for all.

        """
        n, dim = rows.shape
        self.feature_dim = int(dim)
        for part in chunks(n, dim, accelerated=is_torch(rows)):
            chunk, chosen = rows[part], values[part]
            if block not in self.blocks:
                self.blocks[int(block)] = Block.empty(*self._shifts(chunk, chosen))
            sums = self.blocks[int(block)]
            counted = None if weights is None else to_device_of(weights[part], sums.cross)
            sums.add_rows(to_device_of(chunk, sums.cross), chosen, self.kind, counted)

    def _shifts(self, rows: Array, values: Array) -> tuple[Array, Array]:
        """Those of the blocks that are there, or what the first rows ask for: the same rows give the same sums."""
        for first in self.blocks.values():
            return to_device_of(first.shift, rows), to_device_of(first.target_shift, rows)
        mean = _mean(rows[:FIRST_ROWS])
        spread = sum_of_squares(less(rows[:FIRST_ROWS], mean))
        if not is_far(mean @ mean, min(int(rows.shape[0]), FIRST_ROWS), spread, times=SHIFT_FROM):
            mean = 0 * mean
        if self.kind != "regression":  # sums of zeros and ones lose no digits
            return mean, zeros_like_device(rows, len(self.target_names))
        return mean, _mean(to_device_of(values, rows)[:FIRST_ROWS])

    def merge(self, other: Statistics) -> Statistics:
        """Add the sums of another set of samples, block by block. The other one is not changed.

        Args:
            other: statistics of the same kind, targets and dimensions.

        Returns:
            Itself.

        Raises:
            InputError: they are of another kind, of other targets or of another dimension.

        """
        mine = (self.kind, self.target_names, self.feature_dim or other.feature_dim)
        theirs = (other.kind, other.target_names, other.feature_dim or self.feature_dim)
        if mine != theirs:
            raise InputError(
                "Only statistics of one kind, one list of targets and one feature dimension can be merged; "
                f"got {_describe(self)} and {_describe(other)}."
            )
        self.feature_dim = mine[2]
        for index, block in other.blocks.items():
            if index not in self.blocks:
                like = next(iter(self.blocks.values()), block)
                shifts = (to_device_of(shift, block.cross) for shift in (like.shift, like.target_shift))
                self.blocks[index] = Block.empty(*shifts)
            self.blocks[index].add(block)
        self.kept += other.kept
        return self

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        return Statistics(self.kind, self.target_names).merge(self).merge(other)

    def total(self, *, without: int | None = None) -> Block:
        """The sums over all blocks, or over all others.

        Args:
            without: a block that is left out.

        Returns:
            The sums, in memory of their own.

        Raises:
            InputError: there are no samples.

        """
        ordered = [self.blocks[index] for index in sorted(self.blocks) if index != without]
        if not ordered:
            raise InputError("The statistics are empty: update them with at least one sample first.")
        whole = ordered[0].copy()
        for block in ordered[1:]:
            whole.add(block)
        return whole

    def save(self, path: str | PathLike[str]) -> None:
        """Write them to a safetensors file.

        Args:
            path: of the file.

        """
        from safetensors.numpy import save_file

        arrays = {
            f"{index}.{name}": np.ascontiguousarray(to_host(getattr(block, name)))
            for index, block in self.blocks.items()
            for name in ARRAYS
        }
        about = {
            "format": FORMAT,
            "kind": self.kind,
            "target_names": json.dumps(self.target_names),
            "feature_dim": json.dumps(self.feature_dim),
            "counts": json.dumps({str(index): [block.n, block.rows] for index, block in self.blocks.items()}),
        }
        save_file(arrays, path, metadata=about)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Statistics:
        """Read what `save` wrote.

        Args:
            path: of the file.

        Returns:
            The statistics, on the CPU.

        Raises:
            InputError: the file is damaged, or holds something else.

        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise InputError(f"{path} holds no hubscout statistics (format {about.get('format')!r}).")
                statistics = cls(
                    about["kind"], json.loads(about["target_names"]), feature_dim=json.loads(about["feature_dim"])
                )
                for index, (n, rows) in json.loads(about["counts"]).items():
                    arrays = {name: file.get_tensor(f"{index}.{name}") for name in ARRAYS}
                    statistics.blocks[int(index)] = Block(n=n, rows=rows, **arrays)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} is not a whole safetensors file: {error}.") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} holds no whole hubscout statistics: {error}.") from error
        return statistics

    def __repr__(self) -> str:
        return f"Statistics({_describe(self)}, n={self.n}, blocks={len(self.blocks)})"


def sums_of_rows(
    rows: Array, labels: Targets, block_of_row: np.ndarray, *, together: bool
) -> tuple[Statistics, list[Block]]:
    """The sums of every block of rows in memory; or of all samples `together`, with what they were after each block.

    The error bar needs some sum over every block that is linear in its Gram matrix, and a float64 Gram matrix per block
    is memory that takes longer to be handed out than all the rest of the error bar. One that is added to, with a copy
    in float32 after every block, does as well: the blocks are differences.
    """
    statistics, values = Statistics(labels.kind, labels.names), labels.values
    running: list[Block] = []
    count = int(block_of_row.max()) + 1
    if count == 1:
        statistics.add_checked(rows, values, block=0)
        return statistics, running
    if together:  # blocks of rows go through the same memory, since new memory is dear
        most = int(np.bincount(block_of_row).max())
        taken, wide = np.empty((most, rows.shape[1]), rows.dtype), np.empty((most, rows.shape[1]))
    for block in range(count):
        indices = np.flatnonzero(block_of_row == block)
        chosen = to_device_of(indices, rows)
        part = values[indices if isinstance(values, np.ndarray) else chosen]
        if not together:
            statistics.add_checked(rows[chosen], part, block=block)
            continue
        np.take(rows, indices, axis=0, out=taken[: len(indices)], mode="clip")
        wide[: len(indices)] = taken[: len(indices)]
        statistics.add_checked(wide[: len(indices)], part, block=0)
        running.append(statistics.blocks[0].rounded())
    return statistics, running


def may_be_rounded(rows: Array, labels: Targets) -> bool:
    """Whether it pays, and float32 holds the products of these arrays on the host and the inverses of the products."""
    if rows.shape[1] < RUNNING_FROM:
        return False
    arrays = (rows,) if labels.kind == "classification" else (rows, labels.values)
    return all(not is_torch(array) and SMALL_SQUARE < sum_of_squares(array) < 1 / SMALL_SQUARE for array in arrays)


def _mean(rows: Array) -> Array:
    """The mean of every column, as right as float64 can have it: a second pass adds what rounding left over."""
    first = to_float64(rows).mean(0)
    return first + less(rows, first).mean(0)


def _describe(statistics: Statistics) -> str:
    return f"{statistics.kind}, {len(statistics.target_names)} targets, {statistics.feature_dim} dimensions"
