"""Tasks out of token files: one word and its tags per line, a blank line after each sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hubscout.errors import TaskError, check_choice
from hubscout.tasks.assembly import assemble, opened_by
from hubscout.tasks.image_folders import name_of
from hubscout.tasks.labels import encode_tags
from hubscout.tasks.reading import read_text
from hubscout.tasks.tables import files_by_split
from hubscout.tasks.task import Split, Task

ENDINGS = (".txt", ".conll", ".conll2003", ".iob", ".iob2", ".bio", ".bioes", ".tags")
SCHEMES = ("iob2", "keep", "types")

Sentence = tuple[list[str], list[str]]


def from_conll(
    source: str | Path | Mapping[str, Any],
    *,
    column: int = -1,
    scheme: str = "iob2",
    encoding: str = "utf-8",
    name: str | None = None,
    validation_size: float = 0.1,
    test_size: float = 0.2,
    seed: int = 0,
) -> Task:
    """Tagging from CoNLL files: one file, a folder with one file per split, or a mapping from splits to files.

    `-DOCSTART-` lines and lines that start with `# ` are skipped.

    Args:
        source: the file, the folder, or the mapping.
        column: the column of the tags, the last by default; 1 is the part of speech in CoNLL-2003. Words are in the
            first column.
        scheme: what becomes of entity tags. `iob2` turns IOB1 (where B- stands only between neighbours of one type)
            into IOB2 and leaves other tags alone, `keep` leaves all as they are, `types` drops the prefixes.
        encoding: of the files.
        name: what to call the task; the name of the file by default.
        validation_size: the fraction of the sentences that is split off, where there is no validation split.
        test_size: the same for test.
        seed: of these splits.

    Returns:
        The task.

    Raises:
        TaskError: a file that is missing or has a line without its tags, or an unknown column or scheme.

    Example:
        >>> from_conll({"train": "eng.train", "test": "eng.testb"}).kind  # doctest: +SKIP
        'tagging'

    """
    arguments = dict(locals())
    check_choice("scheme", scheme, SCHEMES, TaskError)
    if isinstance(column, bool) or not isinstance(column, int):
        raise TaskError(f"column must be the number of a column, from 0, or negative from the end; it was {column!r}.")
    found = files_by_split(source, _token_files, f"token files ({', '.join(ENDINGS)})")
    files = {split or "train": paths for split, paths in found.items()}
    name = name or (not isinstance(source, Mapping) and name_of(source)) or "conll"
    notes: list[str] = []
    sentences = {
        split: [one for path in paths for one in read_sentences(path, column=column, encoding=encoding)]
        for split, paths in files.items()
    }
    if scheme == "iob2" and is_iob1(tags for part in sentences.values() for _, tags in part):
        sentences = {split: [(words, to_iob2(tags)) for words, tags in part] for split, part in sentences.items()}
        notes.append("tags were IOB1 and are IOB2 here: every entity starts with B- (scheme='keep' leaves them)")
    if scheme == "types":
        sentences = {split: [(words, to_types(tags)) for words, tags in part] for split, part in sentences.items()}
    if sum(map(len, sentences.values())) == 1:
        raise TaskError(
            f"{name} is read as one word and its tags per line, with a blank line after each sentence, and so has only "
            "one sentence. Texts with labels go into a CSV file with the columns text and label."
        )
    target_names, targets = encode_tags({split: [tags for _, tags in part] for split, part in sentences.items()})
    return assemble(
        name=name,
        kind="tagging",
        modality="tokens",
        target_names=target_names,
        splits={split: Split([words for words, _ in part], targets[split]) for split, part in sentences.items()},
        notes=notes,
        source=opened_by(
            "from_conll",
            arguments,
            source={split: [str(path) for path in paths] for split, paths in files.items()},
            name=name,
        ),
        validation_size=validation_size,
        test_size=test_size,
        seed=seed,
    )


def is_conll_name(path: Path) -> bool:
    """Whether a file's ending is one of token files."""
    return path.name.lower().removesuffix(".gz").endswith(ENDINGS)


def _token_files(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_file() and is_conll_name(entry)]


def read_sentences(path: Path, *, column: int = -1, encoding: str = "utf-8") -> list[Sentence]:
    """The sentences of one file. Columns are separated by tabs if the first line has one, else by blanks."""
    sentences: list[Sentence] = [([], [])]
    tabs, width = False, 0
    for number, line in enumerate(read_text(path, encoding).split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip() or line.startswith("-DOCSTART-"):
            sentences.append(([], []))
            continue
        if line.startswith("# "):
            continue
        if line.startswith("__label__"):
            raise TaskError(
                f"{str(path)!r} has whole texts with labels, as fastText reads them, and a file of this ending is read "
                "as one word and its tags per line. Write it as a CSV file with the columns text and label."
            )
        tabs = tabs if width else "\t" in line
        cells = [cell.strip() for cell in line.split("\t")] if tabs else line.split()
        if not width:
            width = len(cells)
            if width < 2:
                raise TaskError(f"{str(path)!r}, line {number}: expected a word and its tags, found only {line!r:.60}.")
            if not -width <= column < width or column % width == 0:
                raise TaskError(f"column={column} holds no tags: {str(path)!r} has {width} columns, and 0 the words.")
        if len(cells) != width or not all(cells):
            raise TaskError(
                f"{str(path)!r}, line {number}: expected {width} columns as in the lines before, found {line!r:.60}. "
                "Every word needs all its tags, and sentences are separated by blank lines."
            )
        words, tags = sentences[-1]
        words.append(cells[0])
        tags.append(cells[column])
    if not width:
        raise TaskError(f"{str(path)!r} has no sentences.")
    return [sentence for sentence in sentences if sentence[0]]


def is_iob1(rows: Iterable[Sequence[str]]) -> bool:
    """Whether the tags are IOB1: entities that stand alone start with I-.

    The majority decides, for real files (CoNLL-2003 is one) have a few entities that start the other way.

    >>> is_iob1([["I-PER", "B-PER", "O"]]), is_iob1([["B-PER", "I-PER", "O"]]), is_iob1([["NN", "VB"]])
    (True, False, False)
    """
    starts = {"B": 0, "I": 0}
    for tags in rows:
        before = ""
        for tag in tags:
            prefix, dash, kind = tag.partition("-")
            if tag != "O" and (not dash or prefix not in starts):
                return False
            if dash and before != kind:
                starts[prefix] += 1
            before = kind
    return starts["I"] > starts["B"]


def to_iob2(tags: Sequence[str]) -> list[str]:
    """IOB1 as IOB2.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC']
    """
    turned = []
    before = "O"
    for tag in tags:
        kind = tag.partition("-")[2]
        starts = tag.startswith("I-") and before.partition("-")[2] != kind
        turned.append(f"B-{kind}" if starts else tag)
        before = tag
    return turned


def to_types(tags: Sequence[str]) -> list[str]:
    """Tags without their B-, I-, E-, S-, L- or U-.

    >>> to_types(["B-PER", "O", "NN"])
    ['PER', 'O', 'NN']
    """
    return [tag[2:] if tag[:2] in {"B-", "I-", "E-", "S-", "L-", "U-"} else tag for tag in tags]
