"""Data that is an object in memory already: pairs, data frames, the data sets of `datasets` and of torch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hubscout.errors import TaskError, shortened
from hubscout.tasks.array_tasks import from_arrays
from hubscout.tasks.images import as_array, is_array, is_pillow
from hubscout.tasks.sequences import Mapped, Rows, take
from hubscout.tasks.splitting import canonical_split, check_split
from hubscout.tasks.task import Task

_INPUT_KEYS = ("image", "img", "pixel_values", "text", "sentence", "audio", "tokens", "input", "inputs", "x")
_LABEL_KEYS = ("label", "labels", "target", "targets", "y")


def constructor_of_object(source: Any, options: Mapping[str, Any]) -> str | None:
    """The constructor for an object; None for a path or a name."""
    from hubscout.tasks.tables import is_frame

    if isinstance(source, str | Path) and "labels" not in options:
        return None
    if _is_of("datasets", source):
        return "from_hf"
    if is_frame(source):
        return "from_table"
    if _is_torch_dataset(source):
        return "from_torch_dataset"
    if isinstance(source, Mapping):
        if len(source) > 1 and not any(map(canonical_split, source)):
            raise TaskError(
                f"The mapping has {shortened(map(repr, source), most=5)}, which are no splits: for columns give "
                "pandas.DataFrame(mapping)."
            )
        for name in source:
            check_split(name)
        if not source:
            raise TaskError("The mapping from splits to data is empty.")
        first = next(iter(source.values()))
        if _is_of("datasets", first):
            return "from_hf"
        return "from_torch_dataset" if _is_torch_dataset(first) or _is_pair(first) else "from_table"
    if "labels" in options or _is_pair(source):
        return "from_pair"
    if _is_of("polars", source):
        raise TaskError(f"A {type(source).__name__} of polars holds no data yet: give what its collect() gives.")
    if hasattr(source, "shape"):
        raise TaskError(f"An array of shape {tuple(source.shape)} has no labels: give (inputs, labels).")
    if isinstance(source, list | tuple) and source and isinstance(source[0], Mapping):
        raise TaskError("A list of mappings is a table: give pandas.DataFrame(rows).")
    if isinstance(source, list) and source and isinstance(source[0], tuple) and len(source[0]) == 2:
        raise TaskError("A list of pairs: give all inputs and all labels apart, as in tuple(map(list, zip(*pairs))).")
    raise TaskError(
        f"This cannot be read as data: {type(source).__name__} {source!r:.80}. Give a path, (inputs, labels), a "
        "data frame, a data set of `datasets`, or a Dataset or DataLoader of torch."
    )


def from_pair(source: Any, *, labels: Any = None, **options: Any) -> Task:
    """A task out of `(inputs, labels)`, or out of inputs with `labels` beside them; see `from_arrays`."""
    inputs, found = source if labels is None else (source, labels)
    return from_arrays(inputs, found, **options)


def from_torch_dataset(source: Any, *, target_names: Sequence[str] | None = None, **options: Any) -> Task:
    """A task out of a torch `Dataset` or `DataLoader`, or a mapping from splits to those or to `(inputs, labels)`.

    Args:
        source: gives pairs of an input and a label, or dictionaries of them. A `transform` of torchvision's kind is
            left out, because every model prepares images in its own way; so are the batches of a loader.
        target_names: names of the classes, where labels are numbers; by default the `classes` of the data set.
        options: of `from_arrays`.

    Returns:
        The task. Images are read when they are asked for.

    Raises:
        TaskError: a data set without a length, or whose items are not pairs.

    """
    parts = source if isinstance(source, Mapping) else {"train": source}
    pairs: dict[str, Any] = {}
    notes: list[str] = []
    for name, part in parts.items():
        pairs[check_split(name)] = part if _is_pair(part) else _pair_of(part, notes)
        classes = None if _is_pair(part) else getattr(_innermost(part), "classes", None)
        if target_names is None and isinstance(classes, list | tuple) and classes:
            target_names = [str(name) for name in classes]
    if "train" not in pairs:
        raise TaskError(f"There is no train split; there are {', '.join(pairs)}. Models are ranked on train.")
    if target_names is not None and not all(isinstance(label, int | np.integer) for label in pairs["train"][1]):
        target_names = None
    inputs, labels = pairs.pop("train")
    return from_arrays(inputs, labels, target_names=target_names, notes=tuple(dict.fromkeys(notes)), **pairs, **options)


def _pair_of(source: Any, notes: list[str]) -> tuple[Any, Any]:
    """Inputs and labels of a data set or loader."""
    dataset, rows = _rows_of_loader(source, notes)
    if not hasattr(dataset, "__len__"):
        raise TaskError(
            f"{type(dataset).__name__} is a stream without a length. Read it into a list first, and give "
            "(inputs, labels)."
        )
    if not len(dataset):
        raise TaskError(f"The {type(dataset).__name__} is empty: it has no samples.")
    dataset = _without_transform(dataset, notes)
    tensors = getattr(dataset, "tensors", None)
    files = getattr(dataset, "samples", None)
    found: Any
    if isinstance(tensors, tuple) and len(tensors) == 2:
        found = tuple(as_array(tensor) for tensor in tensors)
    elif isinstance(files, list) and isinstance(files[0], tuple) and hasattr(dataset, "class_to_idx"):
        found = [Path(path) for path, _ in files], [label for _, label in files]
    else:
        found = _read_pairs(dataset)
    return found if rows is None else (Rows(found[0], rows), take(found[1], rows))


def _read_pairs(dataset: Any) -> tuple[Any, list[Any]]:
    first = dataset[0]
    if isinstance(first, Mapping):
        keys = [[key for key in names if key in first] for names in (_INPUT_KEYS, _LABEL_KEYS)]
        if not all(keys):
            raise TaskError(
                f"An item of {type(dataset).__name__} has the keys {', '.join(map(str, first))}; one of "
                f"{', '.join(_INPUT_KEYS)} and one of {', '.join(_LABEL_KEYS)} were expected."
            )
        places: tuple[Any, Any] = keys[0][0], keys[1][0]
    elif isinstance(first, tuple | list) and len(first) == 2:
        places = (0, 1)
    else:
        raise TaskError(
            f"An item of {type(dataset).__name__} must be a pair of an input and a label; it is "
            f"{type(first).__name__} {first!r:.60}."
        )
    known = getattr(dataset, "targets", None)
    if known is None or len(known) != len(dataset) or getattr(dataset, "target_transform", None) is not None:
        known = [dataset[row][places[1]] for row in range(len(dataset))]
    inputs = Mapped(dataset, partial(_input_at, places[0]))
    is_image = is_pillow(inputs[0]) or is_array(inputs[0])
    return inputs if is_image else list(inputs), [_plain(label) for label in known]


def _input_at(place: Any, item: Any) -> Any:
    """The input of an item; a tensor as a NumPy array."""
    return as_array(item[place]) if is_array(item[place]) else item[place]


def _rows_of_loader(source: Any, notes: list[str]) -> tuple[Any, Sequence[int] | None]:
    """The data set of a loader, and the rows that its sampler chooses; a data set as it is."""
    if not _is_loader(source):
        return source, None
    notes.append("the batches, the order and the collate function of the DataLoader are not used")
    chosen = getattr(source.sampler, "indices", None)
    return source.dataset, None if chosen is None else sorted(int(row) for row in chosen)


def _without_transform(dataset: Any, notes: list[str]) -> Any:
    """The data set, and those that it is made of, without the transform of their inputs; the user's stay as it is."""
    changed: dict[str, Any] = {}
    for name in ("dataset", "datasets"):
        inner = getattr(dataset, name, None)
        if isinstance(inner, list):
            changed[name] = [_without_transform(one, notes) for one in inner]
        elif _is_torch_dataset(inner):
            changed[name] = _without_transform(inner, notes)
    if getattr(dataset, "transform", None) is not None and hasattr(dataset, "target_transform"):
        changed |= {"transform": None, "transforms": None}
        notes.append("the transform of the data set is left out: every model prepares its inputs in its own way")
    if not changed:
        return dataset
    copied = copy.copy(dataset)
    for name, value in changed.items():
        setattr(copied, name, value)
    return copied


def _innermost(source: Any) -> Any:
    """The data set behind loaders and subsets."""
    while True:
        inner = getattr(source, "dataset", None) or next(iter(getattr(source, "datasets", None) or ()), None)
        if not _is_torch_dataset(inner):
            return source
        source = inner


def _plain(label: Any) -> Any:
    """A label without its tensor: a number, or a row of them."""
    if not is_array(label):
        return label
    array = as_array(label)
    return array.item() if array.size == 1 else array.tolist()


def _is_of(package: str, value: Any, *names: str) -> bool:
    kinds = (kind for kind in type(value).__mro__ if kind.__module__.partition(".")[0] == package)
    return any(not names or kind.__name__ in names for kind in kinds)


def _is_loader(value: Any) -> bool:
    return any(kind.__name__ == "DataLoader" for kind in type(value).__mro__)


def _is_torch_dataset(value: Any) -> bool:
    return _is_loader(value) or _is_of("torch", value, "Dataset")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], str | Path)
