"""Damages run folders: every field of every file may become anything, every file anything else."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HUGE_BYTES = 3 << 30


def deep(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    -(10**30),
    10**18,
    10**400,
    0.5,
    -0.0,
    1e308,
    -1e308,
    1e-308,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "text",
    "1",
    "nan",
    "\udcff",
    "a\x00b",
    "<script>alert(1)</script>",
    "é" * 300,
    "x" * 100_000,
    "../..",
    [],
    {},
    [None],
    [1, "a", None],
    ["a", "a"],
    [[1, 2], [3]],
    {"a": 1},
    {"": None},
    {"value": "x"},
    {"\udcff": "\udcff"},
    [math.nan],
    {"test": {"accuracy": {"value": math.nan}}},
    deep(60),
    deep(400),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def damage(document: Any, rng: random.Random) -> tuple[Any, str]:
    """A document with one place changed, and what was done."""
    found = [path for path in places(document) if path]
    # First how deep, then where: lists of numbers would otherwise take all the chances.
    depth = rng.choice(sorted({len(path) for path in found}))
    path = rng.choice([path for path in found if len(path) == depth])
    changed = copy.deepcopy(document)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    way, key = rng.random(), path[-1]
    if way < 0.1:
        del parent[key]
        return changed, f"no {path}"
    if way < 0.15 and isinstance(parent, dict):
        parent["more"] = rng.choice(VALUES)
        return changed, f"more in {path[:-1]}"
    if way < 0.2 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[key]))
        return changed, f"{path} twice"
    if way < 0.25:
        other = rng.choice(found)
        value = document
        for step in other:
            value = value[step]
        parent[key] = copy.deepcopy(value)
        return changed, f"{path} = {other}"
    value = rng.choice(VALUES)
    parent[key] = copy.deepcopy(value)
    return changed, f"{path} = {value!r:.60}"


def spoil_json(path: Path, rng: random.Random) -> str:
    document, said = damage(json.loads(path.read_text()), rng)
    path.write_text(json.dumps(document))
    return said


def spoil_lines(path: Path, rng: random.Random) -> str:
    lines = path.read_text().splitlines()
    place = rng.randrange(len(lines))
    document, said = damage(json.loads(lines[place]), rng)
    lines[place] = json.dumps(document)
    path.write_text("\n".join(lines) + rng.choice(["\n", ""]))
    return f"line {place}: {said}"


def _cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 10, 100])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)


def _instead(path: Path, make: Callable[[], object]) -> None:
    path.unlink()
    make()


def _huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.write(b'{"format": "hubscout-ranking", "version": 2, "rows": [')
        file.truncate(HUGE_BYTES)


FILES: dict[str, Callable[[Path, random.Random], object]] = {
    "cut": _cut,
    "bytes flipped": _flip,
    "empty": lambda path, rng: path.write_bytes(b""),
    "not UTF-8": lambda path, rng: path.write_bytes(path.read_bytes().replace(b"e", b"\xff", 3)),
    "UTF-16": lambda path, rng: path.write_bytes(path.read_text().encode("utf-16")),
    "zeros": lambda path, rng: path.write_bytes(b"\0" * 5000),
    "a list": lambda path, rng: path.write_text("[1, 2]"),
    "null": lambda path, rng: path.write_text("null"),
    "brackets": lambda path, rng: path.write_text("[" * 200_000),
    "nested": lambda path, rng: path.write_text('{"a":' * 90_000 + "1" + "}" * 90_000),
    "a long number": lambda path, rng: path.write_text('{"seed": ' + "9" * 50_000 + "}"),
    "gone": lambda path, rng: path.unlink(),
    "huge": lambda path, rng: _huge(path),
    "a folder": lambda path, rng: _instead(path, path.mkdir),
    "a link to itself": lambda path, rng: _instead(path, lambda: path.symlink_to(path.name)),
    "a link to the folder": lambda path, rng: _instead(path, lambda: path.symlink_to(path.parent)),
    "a link to nothing": lambda path, rng: _instead(path, lambda: path.symlink_to("/nowhere")),
    "a pipe": lambda path, rng: _instead(path, lambda: os.mkfifo(path)),
}


def poison(sound: Path, folder: Path, seed: int) -> str:
    """Copy a sound run folder to `folder` with one damage, chosen by the seed; returns what was done."""
    rng = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sound, folder)
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in (".json", ".jsonl", ".csv")
    ]
    path = rng.choice(files)
    name = path.relative_to(folder)
    if path.suffix == ".csv" or rng.random() < 0.12:
        way = rng.choice(sorted(FILES))
        FILES[way](path, rng)
        return f"{name}: {way}"
    said = (spoil_lines if path.suffix == ".jsonl" else spoil_json)(path, rng)
    return f"{name}: {said}"
