"""Numbers in words, and names of models short enough for a table or an axis; saved runs have whole identifiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from hubscout.credentials import strip_credentials

if TYPE_CHECKING:
    from hubscout.runs.row import Row


def human_count(value: float | None) -> str:
    """A number of parameters or operations in three figures.

    >>> human_count(25_557_032), human_count(4.1e9), human_count(412), human_count(None)
    ('25.6M', '4.1G', '412', '–')
    """
    if value is None:
        return "–"
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def human_bytes(size: float | None) -> str:
    """A size on disk.

    >>> human_bytes(18_800_000), human_bytes(412), human_bytes(None)
    ('18.8 MB', '412 B', '–')
    """
    words = human_count(size)
    return words if size is None else f"{words[:-1]} {words[-1]}B" if words[-1].isalpha() else f"{words} B"


def human_seconds(seconds: float | None) -> str:
    """A time in three figures or so.

    >>> human_seconds(0.0042), human_seconds(8.26), human_seconds(91), human_seconds(4000), human_seconds(None)
    ('4.2 ms', '8.3 s', '1 min 31 s', '1 h 6 min', '–')
    >>> human_seconds(180), human_seconds(7200)
    ('3 min', '2 h')
    """
    if seconds is None:
        return "–"
    if seconds < 0.9995:  # what rounds to the next unit is written in it
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    large, small, units = (minutes, rest, ("min", "s")) if minutes < 60 else (*divmod(minutes, 60), ("h", "min"))
    return f"{large} {units[0]}" + (f" {small} {units[1]}" if small else "")


def rounded_seconds(seconds: float) -> str:
    """A time in a sentence, where two figures are enough.

    >>> rounded_seconds(0), rounded_seconds(0.312), rounded_seconds(4.0), rounded_seconds(33.8), rounded_seconds(100)
    ('0 s', '0.31 s', '4 s', '34 s', '1 min 40 s')
    """
    return f"{seconds:.2g} s" if seconds < 59.5 else human_seconds(seconds)


def counted(count: int, one: str) -> str:
    """A number of things.

    >>> counted(1, "step"), counted(1200, "step"), counted(0, "step")
    ('1 step', '1,200 steps', '0 steps')
    """
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def latency_text(row: Row) -> str:
    """The time of one sample; with ~ before it where the machine was busy."""
    return f"{'~' if row.latency_busy else ''}{human_seconds(row.latency_seconds)}"


def human_probability(probability: float | None) -> str:
    """A probability in per cent that is never shown as surer than it was drawn.

    >>> [human_probability(p) for p in (None, 0.0, 0.004, 0.5, 0.999, 1.0)]
    ['–', '<1%', '<1%', '50%', '>99%', '>99%']
    """
    if probability is None:
        return "–"
    if probability < 0.01:
        return "<1%"
    if probability > 0.99:
        return ">99%"
    return f"{probability:.0%}"


LONGEST_LABEL = 30


def _forms(identifier: str) -> tuple[str, ...]:
    """What an identifier may be called, the shortest first and the whole of it last."""
    path, _, query = identifier.partition("?")
    options = dict(parse_qsl(query))
    if path.startswith("python:"):
        # A function that builds a whole zoo is told the model as an option; its own name says nothing.
        told = next((key for key in ("name", "model") if options.get(key)), "")
        name = options.pop(told, "") or path.rpartition(":")[2]
        others = "&".join(f"{key}={value}" for key, value in options.items())
        file = f"{path.removeprefix('python:').rpartition('/')[2]}{f'?{query}' if query else ''}"
        return (name, f"{name}?{others}" if others else name, file, identifier) if name else (identifier,)
    if path.startswith(("onnx:", "file:")):
        path = path.partition(":")[2]
    folder, _, name = path.rstrip("/").rpartition("/")
    if not name:
        return (identifier,)
    with_options = f"{name}?{query}" if query else name
    with_folder = f"{folder.rpartition('/')[2]}/{with_options}" if folder else with_options
    return name, with_options, with_folder, identifier


def short_names(identifiers: Sequence[str]) -> list[str]:
    """What is left of identifiers without hub, folder and options, as far as that still tells them apart.

    >>> short_names(["timm/resnet50.a1_in1k", "hf/facebook/dinov2-small", "python:zoo:build?name=vgg"])
    ['resnet50.a1_in1k', 'dinov2-small', 'vgg']
    >>> short_names(["timm/resnet18", "torchvision/resnet18"])
    ['timm/resnet18', 'torchvision/resnet18']
    >>> short_names(["hf/bert?pooling=cls", "hf/bert?pooling=mean", "hf/roberta"])
    ['bert?pooling=cls', 'bert?pooling=mean', 'roberta']
    >>> short_names([f"python:/home/ann/zoo.py:build?name=vgg&pixels={pixels}" for pixels in (96, 128)])
    ['vgg?pixels=96', 'vgg?pixels=128']
    """
    forms = [_forms(identifier) for identifier in identifiers]
    chosen = [0] * len(forms)

    def names() -> list[str]:
        return [form[place] for form, place in zip(forms, chosen, strict=True)]

    while True:
        counts = Counter(names())
        longer = [
            index for index, name in enumerate(names()) if counts[name] > 1 and chosen[index] + 1 < len(forms[index])
        ]
        if not longer:
            return names()
        for index in longer:
            chosen[index] += 1


def short_name(identifier: str) -> str:
    """What a model is called by itself."""
    return short_names([identifier])[0]


LONGEST_IN_A_LINE = 48
"""Of a name in a line of progress."""


def names_by_model(identifiers: Iterable[str], *, room: int = 0) -> dict[str, str]:
    """The short name of each model among these; or whole names, where there is room for the longest.

    >>> names_by_model(["hf/a/x", "hf/b/x", "hf/a/x"])
    {'hf/a/x': 'a/x', 'hf/b/x': 'b/x'}
    >>> names_by_model(["hf/a/x", "hf/b/y"], room=LONGEST_IN_A_LINE)
    {'hf/a/x': 'hf/a/x', 'hf/b/y': 'hf/b/y'}
    """
    names = {identifier: strip_credentials(identifier) for identifier in identifiers}
    if any(len(name) > room for name in names.values()):
        names = dict(zip(names, short_names(list(names.values())), strict=True))
    return names


def shorten(name: str, longest: int = LONGEST_LABEL) -> str:
    """Cut out the middle of a long name: models of one family differ at their ends.

    >>> shorten("mobilenetv2_coral_inat_insect", 20)
    'mobilenetv…at_insect'
    """
    if len(name) <= longest:
        return name
    head = longest // 2
    return f"{name[:head]}…{name[-(longest - head - 1) :]}"


def listing(names: Sequence[object], most: int | None = None) -> str:
    """Names as one says them; of more than `most` the rest are counted.

    >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"]), listing("abcde", most=3)
    ('a', 'a and b', 'a, b and c', 'a, b, c and 2 more')
    """
    words = [str(name) for name in names]
    if most is not None and len(words) > most + 1:
        words = [*words[:most], f"{len(words) - most} more"]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
