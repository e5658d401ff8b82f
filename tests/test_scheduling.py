"""How the suite itself is shared among processes (`conftest.py`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOON = "def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n"
DEADLY = """
import os, signal
from pathlib import Path

def test_one(): pass

def test_of_death():
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

def test_after(): pass
"""
INTERRUPTED = """
def test_one():
    raise KeyboardInterrupt
"""


def test_a_process_that_dies_fails_one_test_and_the_others_are_run(tmp_path: Path) -> None:
    said = suite(tmp_path, DEADLY)
    assert "1 failed, 24 passed" in said, said
    assert "ended with status -9" in said
    assert "test_of_death" in said


def test_one_that_is_interrupted_ends_the_suite(tmp_path: Path) -> None:
    said = suite(tmp_path, INTERRUPTED)
    assert "keyboard-interrupt" in said, said
    assert "INTERNALERROR" not in said


def suite(folder: Path, odd: str) -> str:
    """What the suite says of eight files, one of which is odd."""
    pytest.importorskip("xdist")
    shutil.copy(Path(__file__).parent / "conftest.py", folder)
    (folder / "pytest.ini").touch()
    for name in "abcefgh":
        (folder / f"test_{name}.py").write_text(SOON)
    (folder / "test_d.py").write_text(odd)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120).stdout
