"""Tasks out of data in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError, check_choice
from hubscout.tasks.assembly import MODALITIES, assemble, check_fit, unlabelled_rows
from hubscout.tasks.audio import AudioArrays
from hubscout.tasks.images import Images, as_array, has_image_shape, image_pixels, is_array, is_image_name, is_pillow
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.labels import guess_kind
from hubscout.tasks.sequences import take
from hubscout.tasks.splitting import group_numbers
from hubscout.tasks.task import Split, Task


def from_arrays(
    inputs: Any,
    labels: Any,
    *,
    groups: Any = None,
    validation: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    kind: str | None = None,
    modality: str | None = None,
    target_names: Sequence[str] | None = None,
    name: str = "arrays",
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> Task:
    """A task out of inputs and labels in memory.

    Args:
        inputs: an array with one row per sample, or a list of strings, of pairs of strings, of lists of words, of
            Pillow images, of image paths, or of `{"array", "sampling_rate"}`. Arrays of uint8 in the shape of images
            are images, channels last or first; floats (0 to 1, or 0 to 255) are so with `modality="image"`.
        labels: classes (text or numbers, or a matrix with a single 1 in each row), a 0/1 matrix or lists of labels,
            real numbers, or a list of tags for each list of words. A matrix of one column is a vector.
        groups: one value per input that says what it comes from, such as a patient: inputs of one value are not
            divided where rows are split off. One without a value (None, NaN, "") is by itself.
        validation: a pair of inputs and labels.
        test: a pair of inputs and labels.
        kind: classification, multilabel, regression or tagging; guessed from the labels if not given.
        modality: image, text, text-pair, tokens, audio or array; guessed from the inputs if not given.
        target_names: with them, whole-number labels are places in this list; without, labels are names themselves, and
            gaps between numbers are no classes.
        name: what to call the task.
        validation_size: the fraction of the rows that is split off, where no `validation` is given.
        test_size: the same for test.
        seed: of these splits.
        notes: put before those of the task.

    Returns:
        The task.

    Raises:
        TaskError: inputs, labels or groups of different lengths, inputs that are not of the modality, labels of a wrong
            kind.

    Example:
        >>> task = from_arrays(np.eye(10), ["a", "b"] * 5)
        >>> task.kind, task.modality, task.target_names, len(task.train)
        ('classification', 'array', ('a', 'b'), 7)

    """
    if modality is not None:
        check_choice("modality", modality, MODALITIES, TaskError)
    pairs = {"train": (inputs, labels), "validation": validation, "test": test}
    parts = {split: _check_pair(split, pair) for split, pair in pairs.items() if pair is not None}
    by_group = None if groups is None else _one_column(_as_sequence(groups))
    if by_group is not None and len(by_group) != len(parts["train"][0]):
        raise TaskError(f"groups has {len(by_group)} values for {len(parts['train'][0])} inputs: give one per input.")
    if kind is None or not kind_of(kind).has_label_sets:
        parts = {split: (rows, _one_column(labels)) for split, (rows, labels) in parts.items()}
    said = list(notes)
    train_inputs, train_labels = parts["train"]
    chosen_modality = modality or guess_modality(train_inputs)
    if modality is None:
        said += _modality_notes(train_inputs, chosen_modality)
    if kind is None:
        one_hot = all(is_one_hot(labels) for _, labels in parts.values())
        kind, why = _guess_kind(chosen_modality, train_labels, one_hot)
        said.append(f"kind guessed as {kind}: {why}")
    check_fit(kind, chosen_modality)
    if kind_of(kind).classes_of_samples:
        parts = {split: (rows, _places(labels)) for split, (rows, labels) in parts.items()}
    for split, rows in unlabelled_rows({split: pair[1] for split, pair in parts.items()}, kind, said).items():
        inputs, labels = parts.pop(split)
        if not rows.all():
            kept = np.flatnonzero(~rows)
            parts[split] = take(inputs, kept), take(labels, kept)
    by_split = {split: pair[1] for split, pair in parts.items()}
    chosen = kind_of(kind)
    names, encoded = chosen.encode(by_split) if target_names is None else chosen.encode_ids(by_split, target_names)
    numbers = {}
    if by_group is not None:  # of other splits nobody knows
        others = {split: [None] * len(pair[0]) for split, pair in parts.items() if split != "train"}
        numbers = group_numbers({"train": by_group, **others})
    splits = {
        split: Split(_wrap(rows, chosen_modality, split), encoded[split], groups=numbers.get(split))
        for split, (rows, _) in parts.items()
    }
    return assemble(
        name=name,
        kind=kind,
        modality=chosen_modality,
        target_names=names,
        splits=splits,
        notes=said,
        validation_size=validation_size,
        test_size=test_size,
        seed=seed,
    )


def guess_modality(inputs: Sequence[Any]) -> str:
    """What the inputs are, by the first of them."""
    first = inputs[0]
    if is_array(first) and str(first.dtype).endswith("uint8") and has_image_shape(first.shape):
        return "image"
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "biufc":
        return "array"
    if isinstance(first, str):
        named = all(isinstance(value, str) and is_image_name(value) for value in inputs[:100])
        return "image" if named and Path(first).is_file() else "text"
    if isinstance(first, Path) or is_pillow(first):
        return "image"
    if isinstance(first, Mapping) and "array" in first:
        return "audio"
    if isinstance(first, (list, tuple)) and all(isinstance(word, str) for word in first):
        return "text-pair" if isinstance(first, tuple) and len(first) == 2 else "tokens"
    if _numbers(first) is not None:
        return "array"
    raise TaskError(
        f"Cannot tell what the inputs are from the first: {type(first).__name__} {first!r:.60}. "
        f"Say modality= one of {', '.join(MODALITIES)}."
    )


def _modality_notes(inputs: Sequence[Any], modality: str) -> list[str]:
    """What was guessed of inputs that could also be something else."""
    first = inputs[0]
    if modality == "image" and isinstance(first, str):
        return ["the inputs are names of image files, and are read as images"]
    if modality == "array" and is_array(first) and has_image_shape(first.shape) and len(first.shape) == 3:
        return [
            f"arrays of the shape {tuple(first.shape)} are taken as plain numbers; if they are images, say "
            'modality="image"'
        ]
    return []


def _check_pair(split: str, pair: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TaskError(f"{split} must be a pair (inputs, labels); {type(pair).__name__} came.")
    inputs, labels = (_as_sequence(part) for part in pair)
    if len(inputs) != len(labels):
        raise TaskError(f"{split} has {len(inputs)} inputs but {len(labels)} labels: give one per input.")
    if not len(inputs):
        raise TaskError(f"{split} is empty: it has no inputs.")
    return inputs, labels


def _as_sequence(values: Any) -> Sequence[Any]:
    array: Any = list(values) if isinstance(values, tuple) else values
    if is_array(values):
        array = as_array(values)
    elif hasattr(values, "to_numpy"):
        array = values.to_numpy()
    elif hasattr(values, "toarray"):  # a sparse matrix of SciPy
        array = values.toarray()
    elif isinstance(values, (str, bytes, Mapping)) or not (
        hasattr(values, "__len__") and hasattr(values, "__getitem__")
    ):
        raise TaskError(f"Inputs, labels and groups must be arrays or lists; {type(values).__name__} came.")
    if isinstance(array, np.ndarray) and array.ndim == 0:
        raise TaskError("Inputs, labels and groups must have one row per sample; a single value came.")
    return array


def _one_column(labels: Sequence[Any]) -> Sequence[Any]:
    """A matrix of one column as a vector: Keras gives classes so, and MedMNIST."""
    return labels[:, 0] if isinstance(labels, np.ndarray) and labels.shape[1:] == (1,) else labels


def is_one_hot(labels: Sequence[Any]) -> bool:
    """Whether labels are a matrix of 0 and 1 with one 1 in each row."""
    matrix = isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "biuf"
    return matrix and bool(np.isin(labels, (0, 1)).all() and (np.asarray(labels).sum(axis=1) == 1).all())


def _places(labels: Sequence[Any]) -> Sequence[Any]:
    """Classes out of one-hot rows; other labels as they are."""
    return np.asarray(labels).argmax(axis=1) if is_one_hot(labels) else labels


def _guess_kind(modality: str, labels: Sequence[Any], one_hot: bool) -> tuple[str, str]:
    if one_hot:
        return "classification", "each row of the labels has a single 1"
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.dtype.kind in "biuf":
        if np.isin(labels, (0, 1)).all():
            return "multilabel", "the labels are a matrix of 0 and 1"
        return "regression", "the labels are a matrix of real numbers"
    if modality == "tokens":
        return "tagging", "the inputs are lists of words"
    return guess_kind(list(labels[:100_000]))


def _wrap(inputs: Sequence[Any], modality: str, split: str) -> Sequence[Any]:
    if modality == "image":
        return Images(image_pixels(inputs, split), origin=split)
    if modality == "audio":
        return AudioArrays(inputs)
    if modality == "array":
        return _check_array(inputs, split)
    values = list(inputs)
    for row, value in enumerate(values):
        if not _is_written(value, modality):
            raise TaskError(f"{split}, row {row} is not a {modality} input: {type(value).__name__} {value!r:.60}.")
    if modality == "text-pair":
        return [tuple(value) for value in values]
    return [list(value) for value in values] if modality == "tokens" else [str(value) for value in values]


def _is_written(value: Any, modality: str) -> bool:
    """Whether it is a text, a pair of texts, or a list of words."""
    if modality == "text":
        return isinstance(value, str)
    words = isinstance(value, (tuple, list, np.ndarray)) and all(isinstance(word, str) for word in value)
    return words and (modality == "tokens" or len(value) == 2)


def _check_array(inputs: Sequence[Any], split: str) -> Sequence[Any]:
    """Arrays of finite numbers; one array for all rows stays one array."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "biuf":
        finite = np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
        if not finite.all():
            raise TaskError(f"The inputs of {split} are not finite (NaN or infinite) in row {int(np.argmin(finite))}.")
        return inputs
    arrays = []
    for row, value in enumerate(inputs):
        array = _numbers(value)
        if array is None or not np.isfinite(array).all():
            raise TaskError(f"{split}, row {row} is not an array of finite numbers: {value!r:.60}.")
        arrays.append(array)
    return arrays


def _numbers(value: Any) -> np.ndarray | None:
    """An array of real numbers; None for what is not one."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array if array.dtype.kind in "biuf" else None
