"""Imports follow the table of docs/architecture.md, lazy ones included, and tests stand where their names say."""

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
    ("runs", "report"): "runs/hooks.py: Ranking.report() and .plot() are short for functions of the report",
    ("runs", "ranking"): "runs/hooks.py: the table of a Ranking and its evaluation are in ranking/",
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


LONG = 130
"""Lines, docstrings aside. A shorter module may be tested through those that use it."""
TESTED_BY = {
    "cli/tune.py": "tuning/test_commands.py",
    "engines/job.py": "engines/test_engine.py",
    "engines/ray_run.py": "engines/test_ray_engine.py",
    "engines/worker_pool.py": "engines/test_engine.py",
    "evidence/block.py": "evidence/test_statistics.py",
    "evidence/maximize.py": "evidence/test_array_logme.py",
    "evidence/spectrum.py": "evidence/test_profile.py",
    "features/entry.py": "features/test_feature_cache.py",
    "features/extractor.py": "features/test_extraction.py",
    "features/forward.py": "features/test_precision.py",
    "racing/arms.py": "racing/test_race_models.py",
    "racing/contest.py": "racing/test_race_models.py",
    "racing/outcome.py": "racing/test_race_models.py",
    "ranking/assessor.py": "ranking/test_rank_models.py",
    "report/sections/evaluation_sections.py": "report/test_tuning_page.py",
    "runs/row.py": "runs/test_ranking.py",
    "serve/compare.py": "serve/test_application.py",
    "tasks/prediction_inputs.py": "cli/test_predict.py",
    "tasks/table_rows.py": "tasks/test_tables.py",
    "tuning/arguments.py": "tuning/test_tuning_run.py",
    "tuning/losses.py": "tuning/test_kinds.py",
    "tuning/single_run.py": "tuning/test_tuning_run.py",
}
"""Long modules that have no tests of their own name, and where they are tested. The list may only shrink."""
TOPICS = {
    "engines/test_local_ranking.py",
    "engines/test_ray_memory.py",
    "engines/test_ray_race.py",
    "engines/test_ray_ranking.py",
    "engines/test_tuning_elsewhere.py",
    "evaluation/test_published.py",
    "evidence/test_fuzz.py",
    "evidence/test_properties.py",
    "evidence/test_published_faults.py",
    "features/test_cache_command.py",
    "features/test_real_models.py",
    "metrics/test_all_metrics.py",
    "racing/test_race_kinds.py",
    "ranking/test_real_models.py",
    "report/test_browser.py",
    "report/test_command.py",
    "serve/test_browser.py",
    "tasks/test_fuzz.py",
    "tasks/test_shared_data.py",
    "tuning/test_distributed.py",
    "tuning/test_texts.py",
}
"""Tests of several modules together, named after what they hold for."""


def own_tests(module: Path) -> Path:
    """Where the tests of a module stand: `tests/<folder>/test_<module>.py`."""
    return ROOT / "tests" / module.relative_to(SOURCE).parts[0] / f"test_{module.stem}.py"


def docstring_lines(text: str) -> int:
    """Lines of text about the code."""
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    return sum(node.end_lineno - node.lineno + 1 for node in strings if isinstance(node, ast.Constant))


@cache
def untested() -> set[str]:
    """The long modules with something public whose tests have another name."""
    found = set()
    for path in SOURCE.glob("*/**/*.py"):
        if own_tests(path).is_file():
            continue
        text = path.read_text(encoding="utf-8")
        nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        public = any(not node.name.startswith("_") for node in nodes)
        if public and len(text.splitlines()) - docstring_lines(text) > LONG:
            found.add(path.relative_to(SOURCE).as_posix())
    return found


def test_long_modules_have_tests_of_their_name():
    missing = sorted(untested() - set(TESTED_BY))
    assert not missing, f"{missing} have no tests/<folder>/test_<module>.py"
    lost = sorted(file for file in TESTED_BY.values() if not (ROOT / "tests" / file).is_file())
    assert not lost, f"TESTED_BY names tests that are not there: {lost}"


def test_no_module_is_listed_that_has_tests_of_its_name():
    done = sorted(set(TESTED_BY) - untested())
    assert not done, f"take these out of TESTED_BY: {done}"


def test_no_test_outlives_its_module():
    """A test file is named after a module of its folder, or stands on the list of what tests more than one."""
    several = set(TESTED_BY.values()) | TOPICS
    for path in (ROOT / "tests").glob("*/test_*.py"):
        folder, name = SOURCE / path.parent.name, path.stem.removeprefix("test_")
        if folder.is_dir() and f"{folder.name}/{path.name}" not in several:
            assert list(folder.glob(f"**/{name}.py")), f"{path.name} is named after no module of {folder.name}/"


def test_file_names_are_unique():
    names = [path.name for path in SOURCE.glob("**/*.py") if path.name != "__init__.py"]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"several files are called {twice}: a name says which file is meant"
