"""The tables of `experiments/` are what its raw results give: each is made again in a copy and compared.

Only what is in the repository is needed, neither models nor data.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
TEXTS = {".json", ".jsonl", ".csv", ".md"}
FOLDERS = sorted(script.parent.name for script in EXPERIMENTS.glob("*/table.py"))
SCRIPTS = sorted(f"{script.parent.name}/{script.stem}" for script in EXPERIMENTS.glob("*/*table.py"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder, from which nothing outside it is found."""
    place = tmp_path_factory.mktemp("copy") / "experiments"
    shutil.copytree(EXPERIMENTS, place, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    return place


@pytest.mark.parametrize(
    "script", [pytest.param(one, marks=[pytest.mark.slow] if one == "adaptation/table" else []) for one in SCRIPTS]
)
def test_the_table_is_what_the_results_give(script: str, copy: Path) -> None:
    made = copy / f"{script}.md"
    committed = (EXPERIMENTS / f"{script}.md").read_text(encoding="utf-8")
    made.unlink()
    ran = subprocess.run(
        [sys.executable, str(copy / f"{script}.py")],
        env={**os.environ, "HUBSCOUT_SHARED": str(copy / "not-there"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert made.read_text(encoding="utf-8") == committed


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_what_it_is_and_names_no_place_of_one_machine(folder: str) -> None:
    listed = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    assert f"({folder}/README.md)" in listed
    kept = [file for file in (EXPERIMENTS / folder / "results").rglob("*") if file.suffix in TEXTS]
    for text in (EXPERIMENTS / folder / "README.md", *kept):
        content = text.read_text(encoding="utf-8")
        assert not any(place in content for place in ("/work/", "/home/", "/root/", "/tmp/")), text


def test_every_folder_with_a_script_can_be_run_again() -> None:
    commands = runpy.run_path(str(EXPERIMENTS / "rerun.py"))["COMMANDS"]
    scripts = {script.parent.name for script in EXPERIMENTS.glob("*/run.py")}
    assert scripts <= set(commands)
    for command in (line for lines in commands.values() for line in lines):
        assert (EXPERIMENTS.parent / command.split()[0]).is_file(), command
