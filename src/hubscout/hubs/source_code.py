"""A fingerprint of the user's own Python source: a file, and the files that it imports."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}
_NOT_OURS_TO_FOLLOW = sys.stdlib_module_names | {"hubscout"}


def code_fingerprint(file: Path) -> str:
    """A hash of a Python file and of all files that it imports, directly or not, wherever in it the imports stand.

    Nothing is run. Installed packages are left out, and so are paths and names: the same source in another place, or
    on another machine, has the same fingerprint. "" for a file that is part of an installed package.
    """
    file = file.resolve()
    if is_installed(file):
        return ""
    found: dict[Path, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        content = path.read_bytes()
        found[path] = hashlib.blake2b(content, digest_size=16).hexdigest()
        waiting += [other.resolve() for other in _imported(path, content, home=file.parent)]
    return hashlib.blake2b(" ".join([found.pop(file), *sorted(found.values())]).encode(), digest_size=16).hexdigest()


def is_installed(file: Path) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    return not _INSTALLED.isdisjoint(file.parts) or Path(ast.__file__).resolve().parent in file.parents


def _imported(path: Path, content: bytes, home: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return  # importing it says what is wrong
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _absolute(alias.name.split("."), home)
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                if node.level:
                    yield from _files_of([*parts, alias.name], path.parents[node.level - 1])
                else:
                    yield from _absolute([*parts, alias.name], home)


def _absolute(parts: list[str], home: Path) -> list[Path]:
    """The files of an import in the first place that has it: the folder of the user's file, then Python's path."""
    if parts[0] in _NOT_OURS_TO_FOLLOW:
        return []
    for root in (home, *map(Path, sys.path)):
        if files := _files_of(parts, root):
            return [] if is_installed(files[0].resolve()) else files
    return []


def _files_of(parts: list[str], root: Path) -> list[Path]:
    """The files of a module and of the packages around it; the last of `parts` may be a name within a module."""
    files = []
    place = root
    for part in parts:
        place = place / part
        if not place.is_dir():
            if (file := place.with_suffix(".py")).is_file():
                files.append(file)
            break
        if (file := place / "__init__.py").is_file():
            files.append(file)
    return files
