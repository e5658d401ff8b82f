"""Names and numbers short enough for an axis; the long ones stay in tables and tooltips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import parse_qsl

LONGEST_LABEL = 30


def _short(identifier: str) -> str:
    path, _, query = identifier.partition("?")
    options = dict(parse_qsl(query))
    if path.startswith("python:"):
        # A function that builds a whole zoo is told the model as an option; its own name says nothing.
        return options.get("name") or options.get("model") or path.rpartition(":")[2] or identifier
    if path.startswith(("onnx:", "file:")):
        path = path.partition(":")[2]
    return path.rstrip("/").rpartition("/")[2] or identifier


def short_names(identifiers: Sequence[str]) -> list[str]:
    """What is left of identifiers without the hub, as long as that still tells them apart.

    >>> short_names(["timm/resnet50.a1_in1k", "hf/facebook/dinov2-small", "python:zoo:build?name=vgg"])
    ['resnet50.a1_in1k', 'dinov2-small', 'vgg']
    >>> short_names(["timm/resnet18", "torchvision/resnet18"])
    ['timm/resnet18', 'torchvision/resnet18']
    """
    short = [_short(identifier) for identifier in identifiers]
    counts = Counter(short)
    return [name if counts[name] == 1 else identifier for name, identifier in zip(short, identifiers, strict=True)]


def shorten(name: str, longest: int = LONGEST_LABEL) -> str:
    """Cut out the middle of a long name: models of one family differ at their ends.

    >>> shorten("mobilenetv2_coral_inat_insect", 20)
    'mobilenetv…at_insect'
    """
    if len(name) <= longest:
        return name
    head = longest // 2
    return f"{name[:head]}…{name[-(longest - head - 1) :]}"


def significant(value: float | None, figures: int = 3) -> str:
    """A number with so many figures, never in powers of ten between a thousandth and a million.

    >>> significant(0.123456), significant(1234.5), significant(2.5e9), significant(0.0), significant(None)
    ('0.123', '1230', '2.5e+09', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{figures}g}")
    if 1e-3 <= abs(rounded) < 1e6:
        return f"{rounded:.10f}".rstrip("0").rstrip(".")
    return f"{value:.{figures}g}"


def listing(names: Sequence[object]) -> str:
    """Names as one says them.

    >>> listing(["a"]), listing(["a", "b"]), listing(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    words = [str(name) for name in names]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
