"""Names of models short enough for a table or an axis; saved runs and JSON have the whole identifiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import parse_qsl

LONGEST_LABEL = 30


def _forms(identifier: str) -> tuple[str, ...]:
    """What an identifier may be called, the shortest first and the whole of it last."""
    path, _, query = identifier.partition("?")
    options = dict(parse_qsl(query))
    if path.startswith("python:"):
        # A function that builds a whole zoo is told the model as an option; its own name says nothing.
        name = options.get("name") or options.get("model") or path.rpartition(":")[2]
        return name or identifier, identifier
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
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
