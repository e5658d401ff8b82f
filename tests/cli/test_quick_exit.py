"""Each case is a process of its own, which ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hubscout import __version__

PROGRAM = """
import atexit, os, sys
{before}
from hubscout.cli.quick_exit import QuickExit
leave = os._exit
os._exit = lambda status: (print("at once", flush=True), leave(status))

def program():
    atexit.register(print, "what is to be done at the end")
    {end}

QuickExit().run(program)
"""


def ended(end: str, before: str = "") -> tuple[int, list[str], str]:
    given = [sys.executable, "-c", PROGRAM.format(end=end, before=before)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(("end", "status"), [("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit(-1)", 255)])
def test_the_process_ends_with_the_status_of_the_program_once_all_is_done(end: str, status: int) -> None:
    assert ended(end) == (status, ["what is to be done at the end", "at once"], "")


def test_threads_are_waited_for() -> None:
    end = (
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start(); sys.exit()"
    )
    assert ended(end)[:2] == (0, ["done", "what is to be done at the end", "at once"])


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [("1 / 0", 1, "ZeroDivisionError"), ("sys.exit('no such thing')", 1, "no such thing"), ("pass", 0, "")],
)
def test_after_any_other_end_the_interpreter_ends_as_ever(end: str, status: int, said: str) -> None:
    found = ended(end)
    assert found[:2] == (status, ["what is to be done at the end"])
    assert said in found[2]


def test_who_wanted_to_do_something_at_the_end_before_is_not_passed_over() -> None:
    before = "atexit.register(print, 'a tool that watches')"
    expected = ["what is to be done at the end", "a tool that watches"]
    assert ended("sys.exit(3)", before)[:2] == (3, expected)


def test_what_cannot_be_written_is_told_as_ever() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    found = []
    for code in ("print('x'); sys.exit()", "print('x'); atexit.unregister(print); sys.exit()"):
        for how in ("QuickExit().run(program)", "program()"):
            given = PROGRAM.format(end=code, before="").replace("QuickExit().run(program)", how)
            with open("/dev/full", "w") as full:
                command = [sys.executable, "-c", given]
                found.append(subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60))
    assert [one.returncode for one in found[::2]] == [one.returncode for one in found[1::2]]
    assert 0 not in [one.returncode for one in found]
    assert all("No space left on device" in one.stderr for one in found)


COMMAND = """
import gc, os, runpy, sys, tempfile
gc.disable()  # until the end
class Garbage:
    def __init__(self):
        self.itself = self
    def __del__(self):
        print("collected")
Garbage()
{before}
leave = os._exit
os._exit = lambda status: (print("at once", status, flush=True), leave(status))
sys.argv = ["hubscout", "--version"]
import hubscout.cli.app
work = hubscout.cli.app.app
kept = []
hubscout.cli.app.app = lambda **how: (kept.append(tempfile.TemporaryDirectory()), print(kept[0].name), work(**how))
runpy.run_module("hubscout", run_name="__main__")
"""


@pytest.mark.parametrize("before", ["", "import atexit; atexit.register(int)"])
def test_the_command_ends_so_and_files_in_temporary_folders_go(before: str) -> None:
    """Nobody looks for garbage either way: among the objects of torch that takes a second."""
    given = [sys.executable, "-c", COMMAND.format(before=before)]
    done = subprocess.run(given, capture_output=True, text=True, check=True, timeout=60)
    folder, *said = done.stdout.splitlines()
    assert said == [f"hubscout {__version__}", *([] if before else ["at once 0"])]
    assert not Path(folder).exists()
