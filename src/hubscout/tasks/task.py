"""`Task`: one labelled data set, split, with a fingerprint of its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hubscout.amounts import parse_limit
from hubscout.errors import TaskError
from hubscout.tasks.kinds import Kind, Targets, kind_of
from hubscout.tasks.sequences import Rows, content_digest, derived_fingerprint, take
from hubscout.tasks.splitting import stratified_sample

Modality = Literal["image", "text", "text-pair", "tokens", "audio", "array"]


@dataclass(frozen=True, eq=False)
class Split:
    """One part of a task: inputs that are read when they are asked for, and their targets.

    `inputs[i]` is, by modality: an RGB Pillow image; a string; a pair of strings; a list of words; a dictionary of
    `array` and `sampling_rate`; a NumPy array.

    Example:
        >>> split = Split(["a cat", "a dog"], np.array([0, 1]))
        >>> split.take([1]).inputs[0]
        'a dog'

    """

    inputs: Sequence[Any]
    targets: Targets
    fingerprint: str = ""
    """Of the inputs alone, whatever their targets; "" where nobody took it."""
    groups: np.ndarray | None = None
    """An integer per row: rows of one group, such as a patient, are never divided between splits; None: no groups."""

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: Sequence[int] | np.ndarray) -> Split:
        """The rows of these numbers, in this order; inputs are still read only when asked for.

        Args:
            rows: numbers of rows, in any order.

        Returns:
            The new split.

        """
        chosen = np.asarray(rows, dtype=np.int64)
        fingerprint = self.fingerprint and derived_fingerprint(self.fingerprint, rows=content_digest(chosen).hex())
        groups = None if self.groups is None else self.groups[chosen]
        return Split(Rows(self.inputs, chosen), take(self.targets, chosen), fingerprint, groups)

    def __repr__(self) -> str:
        return f"Split({len(self)} rows)"


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """A labelled data set.

    `target_names` are the class names (classification, multilabel, tagging) or the names of the columns
    (regression). `notes` are the guesses that were made while reading, to be said aloud. `source` is what the task
    can be opened from again, on this machine or on another that sees the same files; None for data in memory.

    Two tasks are equal when their contents are: their fingerprints.

    Example:
        >>> task = Task.from_arrays([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "a", "b"])
        >>> task.kind, task.target_names
        ('classification', ('a', 'b'))

    """

    name: str
    """Of the data."""
    kind: Kind
    """"classification", "multilabel", "regression" or "tagging"."""
    modality: Modality
    """Such as "image" or "text"."""
    target_names: tuple[str, ...]
    splits: Mapping[str, Split]
    """`train`, `validation` and `test`, some of which may be empty or missing."""
    fingerprint: str
    """A hash of inputs and labels."""
    notes: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def train(self) -> Split:
        """The split that models are ranked on and tuned with."""
        return self.splits["train"]

    @property
    def validation(self) -> Split:
        """The split that hyper-parameters are chosen on."""
        return self.splits.get("validation") or self.train.take([])

    @property
    def test(self) -> Split:
        """The split that is only ever reported."""
        return self.splits.get("test") or self.train.take([])

    @classmethod
    def from_image_folder(cls, folder: str | Path, **options: Any) -> Task:
        """A folder per class, or those inside `train`, `validation` and `test`.

        Args:
            folder: the folder of the classes, or of the splits.
            options: those of `hubscout.tasks.image_folders.from_image_folder`.

        Returns:
            The task; what was guessed or left out is in its `notes`.

        Raises:
            TaskError: there is no such folder, it has no images in class folders, or only one class.

        Example:
            >>> Task.from_image_folder("flowers/").kind  # doctest: +SKIP
            'classification'

        """
        from hubscout.tasks.opening import construct

        return construct("from_image_folder", options, folder)

    @classmethod
    def from_table(cls, source: Any, **options: Any) -> Task:
        """A table (CSV, TSV, JSONL, Parquet, or a data frame), or one table per split.

        Args:
            source: a file, a folder with one file per split, a data frame, or a mapping from splits to those.
            options: the columns by role, and how to read them: those of `hubscout.tasks.tables.from_table`.

        Returns:
            The task; what was guessed or left out is in its `notes`.

        Raises:
            TaskError: a file that cannot be read, a column that is not there, or labels of a wrong kind.

        Example:
            >>> Task.from_table("reviews.csv", text="review", label="stars").modality  # doctest: +SKIP
            'text'

        """
        from hubscout.tasks.opening import construct

        return construct("from_table", options, source)

    @classmethod
    def from_hf(cls, source: Any, **options: Any) -> Task:
        """A data set of Hugging Face `datasets`.

        Args:
            source: an id of the hub, a folder that `save_to_disk` wrote, or a `Dataset` or `DatasetDict`.
            options: `config`, `revision`, and those of `from_table`, as in `hubscout.tasks.hf.from_hf`.

        Returns:
            The task; what was guessed or left out is in its `notes`.

        Raises:
            TaskError: a data set that cannot be loaded, that is streamed, or that has no train split.
            MissingDependencyError: the package datasets is not installed.

        Example:
            >>> Task.from_hf("stanfordnlp/imdb").target_names  # doctest: +SKIP
            ('neg', 'pos')

        """
        from hubscout.tasks.opening import construct

        return construct("from_hf", options, source)

    @classmethod
    def from_conll(cls, source: Any, **options: Any) -> Task:
        """Tagging from token files: one word and its tags per line, a blank line after each sentence.

        Args:
            source: the file, a folder with one file per split, or a mapping from splits to files.
            options: `column`, `scheme`, `encoding` and more, as in `hubscout.tasks.conll.from_conll`.

        Returns:
            The task.

        Raises:
            TaskError: a file that is missing or has a line without its tags, or an unknown column or scheme.

        Example:
            >>> Task.from_conll("ner/").kind  # doctest: +SKIP
            'tagging'

        """
        from hubscout.tasks.opening import construct

        return construct("from_conll", options, source)

    @classmethod
    def from_arrays(cls, inputs: Any, labels: Any, **options: Any) -> Task:
        """Inputs and labels in memory.

        Args:
            inputs: one per sample: an array, texts, pairs of texts, lists of words, images or sounds.
            labels: one per sample: classes, lists of labels, numbers, or a list of tags for each list of words.
            options: other splits, the kind and more: those of `hubscout.tasks.array_tasks.from_arrays`.

        Returns:
            The task.

        Raises:
            TaskError: inputs and labels of different lengths, or of a wrong kind.

        Example:
            >>> Task.from_arrays(np.eye(10), ["cat", "dog"] * 5).target_names
            ('cat', 'dog')

        """
        from hubscout.tasks.opening import construct

        return construct("from_arrays", options, inputs, labels)

    @classmethod
    def reopen(cls, source: Mapping[str, Any]) -> Task:
        """Open a task again.

        Args:
            source: that of the task.

        Returns:
            The task, with the same content.

        Raises:
            TaskError: the content is no longer the same, or this is not the source of a task.

        """
        from hubscout.tasks.opening import reopen

        return reopen(source)

    def subset(self, n: int | str, seed: int = 0) -> Task:
        """The task with fewer rows of train; validation and test stay whole.

        Classes keep their proportions, and each has a row if `n` allows. With one seed a smaller subset is part of a
        larger one.

        Args:
            n: how many rows (sentences, for tagging), such as 2000 or "2k".
            seed: of the choice.

        Returns:
            The task, or itself where it has no more rows than that.

        Raises:
            TaskError: `n` is not a whole number of at least 1.

        Example:
            >>> task = Task.from_arrays(np.eye(100), ["cat", "dog"] * 50)
            >>> len(task.train), len(task.subset(20).train)
            (70, 20)

        """
        if isinstance(n, str):
            n = parse_limit(n, "n", least=1)
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise TaskError(f"subset: n must be a whole number of rows, 1 or more; it was {n!r}.")
        if n >= len(self.train):
            return self
        rows = stratified_sample(kind_of(self.kind).strata(self.train.targets), int(n), seed)
        fingerprint = derived_fingerprint(self.fingerprint, subset=int(n), seed=seed)
        source = None
        if self.source is not None:
            steps = [*self.source.get("subsets", ()), {"n": int(n), "seed": seed}]
            source = {**self.source, "subsets": steps, "fingerprint": fingerprint}
        return replace(
            self,
            splits={**self.splits, "train": self.train.take(rows)},
            fingerprint=fingerprint,
            notes=(*self.notes, f"train cut to {n:,} of {len(self.train):,} rows (stratified, seed {seed})"),
            source=source,
        )

    def summary(self) -> dict[str, Any]:
        """What a record of a run needs to know of its data, in plain values.

        Returns:
            Name → value.

        """
        return {
            "name": self.name,
            "kind": self.kind,
            "modality": self.modality,
            "rows": {split: len(part) for split, part in self.splits.items()},
            "target_names": list(self.target_names),
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
            "source": None if self.source is None else dict(self.source),
        }

    def describe(self) -> str:
        """A few lines for a person: what it is, how large, and what was guessed.

        Returns:
            The text.

        """
        sizes = ", ".join(f"{split} {len(part):,}" for split, part in self.splits.items())
        shown = ", ".join(self.target_names[:8]) + (", …" if len(self.target_names) > 8 else "")
        lines = [
            f"{self.name}: {self.modality} {self.kind}",
            f"rows: {sizes}",
            f"{self._what_targets}: {shown}",
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)

    @property
    def _what_targets(self) -> str:
        return kind_of(self.kind).count_targets(len(self.target_names))

    def __repr__(self) -> str:
        sizes = "/".join(str(len(part)) for part in self.splits.values())
        return (
            f"Task({self.name!r}: {self.modality} {self.kind}, {self._what_targets}, {sizes}, {self.fingerprint[:8]})"
        )

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Task) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)
