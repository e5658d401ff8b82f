"""Tasks out of Hugging Face `datasets`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from hubscout.errors import TaskError, first_line
from hubscout.optional import require
from hubscout.tasks.assembly import opened_by
from hubscout.tasks.labels import named_classes
from hubscout.tasks.reading import Table
from hubscout.tasks.sequences import Mapped
from hubscout.tasks.splitting import canonical_split, known_split_names
from hubscout.tasks.table_rows import TABLE_OPTIONS, task_from_tables
from hubscout.tasks.task import Task


def from_hf(
    source: Any,
    *,
    config: str | None = None,
    revision: str | None = None,
    image: str | None = None,
    text: str | Sequence[str] | None = None,
    audio: str | None = None,
    tokens: str | None = None,
    label: str | Sequence[str] | None = None,
    kind: str | None = None,
    split: str | bool | None = None,
    group: str | None = None,
    separator: str | None = None,
    name: str | None = None,
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
) -> Task:
    """A task out of a `datasets` id, a folder that `save_to_disk` wrote, or a `Dataset` or `DatasetDict`.

    Class labels get their names from the features; images and sounds stay encoded until they are asked for. A split
    whose labels are all -1 or missing, as in the test sets of benchmarks, is left out and said.

    Args:
        source: the id, the folder or the object.
        config: the configuration of a data set that has several.
        revision: the version of a data set on the Hugging Face Hub.
        image: the column of images; this and what follows as in `from_table`, and found in the same way if not given.
        text: the column of texts, or two columns for pairs of texts.
        audio: the column of sounds.
        tokens: the column of lists of words.
        label: the column of labels.
        kind: classification, multilabel, regression or tagging.
        split: the column that says which row is in which split; False ignores such a column.
        group: the column that says which rows come from one source, such as a patient: rows of one value are not
            divided where rows are split off.
        separator: between the labels of a multi-label column.
        name: what to call the task; the id by default.
        validation_size: the fraction of the rows that is split off, where there is no validation split.
        test_size: the same for test.
        seed: of these splits.

    Returns:
        The task.

    Raises:
        TaskError: a data set that cannot be loaded, that is streamed, or that has no train split.
        MissingDependencyError: the package datasets is not installed.

    Example:
        >>> from_hf("stanfordnlp/imdb", text="text", label="label").target_names  # doctest: +SKIP
        ('neg', 'pos')

    """
    arguments = dict(locals())
    require("datasets", extra="hf", purpose="Reading Hugging Face data sets")
    loaded = _load(source, config, revision) if isinstance(source, (str, Path)) else source
    notes: list[str] = []
    parts = _parts(loaded, notes)
    tables = {part: [dataset_table(dataset, part or "the data set")] for part, dataset in parts.items()}
    if not tables:
        raise TaskError("The data set has no rows in any split.")
    origin, shown = None, "dataset"
    if isinstance(source, (str, Path)):
        local = Path(os.path.expanduser(source))
        place, shown = (str(local.absolute()), local.name) if local.is_dir() else (str(source), str(source))
        origin = opened_by("from_hf", arguments, source=place)
    options = {option: arguments[option] for option in TABLE_OPTIONS}
    return task_from_tables(tables, name=name or shown, source=origin, notes=notes, **options)


def is_saved_dataset(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    one_split = all((folder / name).is_file() for name in ("state.json", "dataset_info.json"))
    return one_split or (folder / "dataset_dict.json").is_file()


def _load(source: str | Path, config: str | None, revision: str | None) -> Any:
    datasets = require("datasets", extra="hf", purpose="Reading Hugging Face data sets")
    folder = Path(os.path.expanduser(source))
    try:
        if folder.is_dir() and is_saved_dataset(folder):
            return datasets.load_from_disk(str(folder))
        return datasets.load_dataset(str(source), config, revision=revision)
    except MemoryError:
        raise
    except Exception as error:
        # datasets raises its own errors, those of the hub client, of Arrow, and plain ones.
        raise TaskError(
            f"The data set {str(source)!r} cannot be loaded ({type(error).__name__}: {first_line(error)}). Check the "
            "id and config=, or that the hub can be reached; a folder must be one that save_to_disk wrote."
        ) from error


def _parts(loaded: Any, notes: list[str]) -> dict[str | None, Any]:
    if not isinstance(loaded, Mapping):
        if not hasattr(loaded, "features") or not hasattr(loaded, "__len__"):
            raise TaskError(
                f"from_hf takes an id, a folder, a Dataset or a DatasetDict; {type(loaded).__name__} came. "
                "Streaming data sets have no length: load it without streaming=True."
            )
        return {None: loaded}
    if len(loaded) == 1:
        name, dataset = next(iter(loaded.items()))
        if canonical_split(name) != "train":
            notes.append(f"the only split is {str(name)!r}; it is divided into train, validation and test")
        return {None: dataset}
    parts: dict[str | None, Any] = {}
    unknown = []
    for name, dataset in loaded.items():
        split = canonical_split(name)
        if split is None:
            unknown.append(str(name))
        elif split in parts:
            raise TaskError(f"The data set has two splits that mean {split!r}; {name!r} is the second.")
        elif len(dataset):
            parts[split] = dataset
    if "train" not in parts:
        raise TaskError(
            f"The data set has no train split; it has {', '.join(map(str, loaded))}. "
            f"Known names: {known_split_names()}."
        )
    if unknown:
        notes.append(f"splits of unknown names are left out: {', '.join(map(repr, unknown))}")
    return parts


def dataset_table(dataset: Any, origin: str) -> Table:
    """The columns of a `Dataset`: class labels by name, images and sounds encoded, the rest as Python values."""
    datasets = require("datasets", extra="hf", purpose="Reading Hugging Face data sets")
    if not len(dataset):
        raise TaskError(f"{origin} has no rows.")
    dataset = dataset.with_format(None)
    for name, feature in dataset.features.items():
        if isinstance(feature, (datasets.Image, datasets.Audio)):
            dataset = dataset.cast_column(name, type(feature)(decode=False))
    columns: dict[str, Sequence[Any]] = {}
    modalities: dict[str, str] = {}
    for name, feature in dataset.features.items():
        if isinstance(feature, (datasets.Image, datasets.Audio)):
            modalities[name] = "image" if isinstance(feature, datasets.Image) else "audio"
            columns[name] = Mapped(dataset.select_columns([name]), itemgetter(name))
            continue
        values = dataset.select_columns([name]).with_format("arrow")[:][name].to_pylist()
        one = feature[0] if isinstance(feature, list) and len(feature) == 1 else getattr(feature, "feature", feature)
        columns[name] = named_classes(values, one.names) if isinstance(one, datasets.ClassLabel) else values
    return Table(columns, len(dataset), None, origin, modalities)
