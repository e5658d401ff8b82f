"""Tasks out of NumPy's `.npz` files: arrays of inputs and of labels under their usual names."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hubscout.errors import TaskError, did_you_mean, first_line, shortened
from hubscout.tasks.array_tasks import from_arrays
from hubscout.tasks.assembly import opened_by
from hubscout.tasks.image_folders import existing_path, name_of
from hubscout.tasks.reading import too_large, unpacked_limit_bytes
from hubscout.tasks.splitting import split_in_name
from hubscout.tasks.task import Task

_INPUT_NAMES = ("x", "image", "images", "text", "texts", "input", "inputs", "data", "features")
_LABEL_NAMES = ("y", "label", "labels", "target", "targets", "class", "classes")


def from_npz(
    source: str | Path,
    *,
    image: str | None = None,
    text: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    target_names: Sequence[str] | None = None,
    name: str | None = None,
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
) -> Task:
    """A task out of the arrays of an `.npz` file, as `from_arrays` makes one of arrays in memory.

    Inputs are called `x`, `images`, `texts`, `inputs` or `data`, labels `y`, `labels` or `targets`, in any case; a word
    of a name may say the split: `x_train`, `y_test`, `val_images`. Nothing in the file is executed: arrays of Python
    objects are refused.

    Args:
        source: the file.
        image: the array of images, where its name is another, or where arrays of floats are images.
        text: the array of texts, where its name is another.
        label: the array of labels, where its name is another.
        kind: classification, multilabel, regression or tagging; guessed from the labels if not given.
        target_names: with them, whole-number labels are places in this list.
        name: what to call the task; the name of the file by default.
        validation_size: the fraction of the rows that is split off, where there is no validation split.
        test_size: the same for test.
        seed: of these splits.

    Returns:
        The task.

    Raises:
        TaskError: a file that cannot be read, or that has no arrays of these names.

    Example:
        >>> from_npz("digits.npz", label="digit").target_names  # doctest: +SKIP
        ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')

    """
    arguments = dict(locals())
    path = existing_path(source)
    if image is not None and text is not None:
        raise TaskError("Say one of image= and text=; both were given.")
    arrays = _read(path)
    inputs = _by_split(path, arrays, image or text, _INPUT_NAMES, "inputs")
    labels = _by_split(path, arrays, label, _LABEL_NAMES, "labels")
    for split in {*inputs} ^ {*labels}:
        there, missing = ("inputs", "labels") if split in inputs else ("labels", "inputs")
        raise TaskError(f"{str(path)!r} has {there} for {split}, and no {missing}: {_listed(arrays)}.")
    if "train" not in inputs:
        raise TaskError(f"{str(path)!r} has no arrays to train on: {_listed(arrays)}.")
    others = {split: (arrays[inputs[split]], arrays[labels[split]]) for split in inputs if split != "train"}
    task = from_arrays(
        arrays[inputs["train"]],
        arrays[labels["train"]],
        **others,
        kind=kind,
        modality="image" if image is not None else "text" if text is not None else None,
        target_names=target_names,
        name=name or name_of(path),
        validation_size=validation_size,
        test_size=test_size,
        seed=seed,
        notes=[f"array {inputs['train']!r} holds the inputs, {labels['train']!r} the labels"],
    )
    origin = opened_by("from_npz", arguments, source=str(path))
    told = [note.replace('modality="image"', f"image={inputs['train']!r}") for note in task.notes]
    return replace(task, source={**origin, "fingerprint": task.fingerprint}, notes=tuple(told))


def is_npz_name(path: Path) -> bool:
    """Whether a file's ending is that of NumPy's archives."""
    return path.name.lower().endswith(".npz")


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name; what they unpack to is limited."""
    try:
        packed = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > (limit := unpacked_limit_bytes(packed)):
            raise too_large(path, packed, limit)
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, TaskError):
            raise
        objects = "allow_pickle" in str(error)
        reason = "it holds Python objects, which could run code" if objects else first_line(error)
        raise TaskError(
            f"{str(path)!r} cannot be read as arrays: {reason}. "
            "Save plain arrays: np.savez(path, x=inputs, y=labels), texts as an array of strings."
        ) from error


def _by_split(
    path: Path, arrays: Mapping[str, np.ndarray], asked: str | None, usual: Sequence[str], what: str
) -> dict[str, str]:
    """Split → the name of the array that holds the inputs or the labels of it."""
    if asked is not None and asked in arrays and split_in_name(asked) is None:
        return {"train": asked}
    wanted = usual if asked is None else (_without_split(asked),)
    found: dict[str, str] = {}
    for name in arrays:
        if _without_split(name) not in wanted:
            continue
        split = split_in_name(name) or "train"
        if split in found:
            told = f"{str(path)!r} has two arrays of {what} for {split}: {found[split]!r} and {name!r}"
            raise TaskError(f"{told}. Say {'label=' if what == 'labels' else 'image= or text='} one of them.")
        found[split] = name
    if found:
        return found
    if asked is not None:
        raise TaskError(f"{str(path)!r} has no array {asked!r}.{did_you_mean(asked, arrays)} {_listed(arrays)}.")
    raise TaskError(
        f"{str(path)!r} has no array of {what} under a usual name ({', '.join(usual)}). {_listed(arrays)}: say "
        f"{'label=' if what == 'labels' else 'image= or text='} the name of one."
    )


def _without_split(name: str) -> str:
    """The name of an array in small letters, without the word for the split.

    >>> _without_split("X_train"), _without_split("val_images"), _without_split("Labels")
    ('x', 'images', 'labels')
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and split_in_name(word) is None]
    return "_".join(words)


def _listed(arrays: Mapping[str, np.ndarray]) -> str:
    """The arrays with their shapes, for a message."""
    return f"It has {shortened(f'{name} {array.shape}' for name, array in arrays.items())}"
