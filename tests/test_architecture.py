"""Imports inside the package follow the table of docs/architecture.md, lazy ones included."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hubscout

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hubscout"
PAGE = ROOT / "docs" / "architecture.md"
FOR_ALL = {path.stem for path in SOURCE.glob("*.py")} | {"__version__"}
TORCH_FREE = ("engines", "evaluation", "metrics", "report", "runs", "serve", "tasks")

KNOWN = {
    ("ranking", "report"): "Ranking.report() and .plot() call the report themselves",
    ("tuning", "report"): "Tuned.plot() calls the report itself",
    (
        "report",
        "ranking",
    ): "the record of a ranking, its reading and the formats of its table are in ranking/, not in runs/",
    ("serve", "ranking"): "the record of a ranking, its journal and its reading are in ranking/, not in runs/",
    ("serve", "tasks"): "the page offers only data that the names of its files say can be opened",
}
"""Imports that the map does not allow yet. An entry that is no longer needed makes a test fail."""


@cache
def the_map() -> dict[str, set[str]]:
    """Folder → the folders it may import, from the page."""
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    folders = {folder for folder, _ in rows}
    return {name: folders if may == "everything" else set(re.findall(r"`(\w+)`", may)) for name, may in rows}


def imports(node: ast.AST) -> Iterator[str]:
    """The dotted names that a syntax tree imports when it runs."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports inside the package are absolute"
        # `from hubscout import rank` is an import of the folder where `rank` lives.
        homes = [hubscout._HOMES.get(alias.name, f"hubscout.{alias.name}") for alias in node.names]
        yield from homes if node.module == "hubscout" else [str(node.module)]
    elif isinstance(node, ast.Constant) and str(node.value).startswith(tuple(f"hubscout.{name}" for name in the_map())):
        yield str(node.value)  # for importlib
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


@cache
def crossings() -> dict[tuple[str, str], set[str]]:
    """(folder, what it imports outside itself) → the files that do so; `torch` is among what is imported."""
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted(SOURCE.glob("*/**/*.py")):
        folder = path.relative_to(SOURCE).parts[0]
        for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            package, _, rest = name.partition(".")
            there = rest.partition(".")[0] if package == "hubscout" else package
            if there != folder and package in ("hubscout", "torch"):
                found.setdefault((folder, there), set()).add(str(path.relative_to(SOURCE)))
    return found


def test_the_map_names_every_folder_and_has_no_cycle():
    here = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").is_file()}
    assert here <= set(the_map())
    rest = the_map()
    while leaves := [folder for folder, may in rest.items() if not (may - {folder}) & set(rest)]:
        rest = {folder: may for folder, may in rest.items() if folder not in leaves}
    assert not rest, f"these folders import each other in a circle: {sorted(rest)}"


def test_modules_beside_the_folders_import_no_folder():
    for path in SOURCE.glob("*.py"):
        if path.stem not in ("__init__", "__main__"):
            names = [name for name in imports(ast.parse(path.read_text(encoding="utf-8"))) if "hubscout." in name]
            assert {name.split(".")[1] for name in names} <= FOR_ALL, path.name


@pytest.mark.parametrize("folder", sorted(the_map()))
def test_imports_follow_the_map(folder):
    allowed = the_map()[folder] | FOR_ALL | {there for here, there in KNOWN if here == folder} | {"torch"}
    broken = {there: files for (here, there), files in crossings().items() if here == folder and there not in allowed}
    assert not broken, f"{folder}/ may not import {broken}: see docs/architecture.md"


def test_no_exception_outlives_its_need():
    needed = {(here, there) for here, there in crossings() if there not in the_map().get(here, set())}
    assert set(KNOWN) <= needed, f"take these out of KNOWN: {sorted(set(KNOWN) - needed)}"


def test_folders_that_need_no_torch_do_not_import_it():
    assert not {here: files for (here, there), files in crossings().items() if there == "torch" and here in TORCH_FREE}


def test_an_import_is_seen_wherever_it_stands():
    text = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from hubscout.tuning import tune
def late():
    from hubscout import rank, __version__
    import hubscout.report.page
    importlib.import_module("hubscout.serve")
"""
    found = [name for name in imports(ast.parse(text)) if name.startswith("hubscout")]
    assert found == ["hubscout.ranking", "hubscout.__version__", "hubscout.report.page", "hubscout.serve"]
