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


def test_a_process_that_dies_fails_one_test_and_the_others_are_run(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").touch()
    for name in "abcefgh":
        (tmp_path / f"test_{name}.py").write_text(SOON)
    (tmp_path / "test_d.py").write_text(DEADLY)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 failed, 24 passed" in ran.stdout, ran.stdout
    assert "ended with status -9" in ran.stdout
    assert "test_of_death" in ran.stdout
