"""Each case is a process of its own, which ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hubscout import __version__

PROGRAM = """
import atexit, gc, os, sys
{before}
import hubscout.light_imports, hubscout.optional  # as the command does
from hubscout.cli.quick_exit import QuickExit
leave = os._exit
os._exit = lambda status: (os.write(1, b"at once\\n"), leave(status))

class Garbage:
    def __init__(self):
        self.itself = self
    def __del__(self):
        os.write(2, b"collected\\n")

def program():
    atexit.register(print, "what is to be done at the end")
    gc.collect()
    Garbage()
    {end}

QuickExit().run(program)
"""
EXPECTED = "what is to be done at the end"


def ended(tmp_path: Path, end: str, before: str = "", *, name: str = "hubscout") -> tuple[int, list[str], str]:
    """The status, and what was said, of a script of this name, which is one of the command where it is its own."""
    script = tmp_path / name
    script.write_text(PROGRAM.format(end=end, before=before))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, cwd=tmp_path, env=BUFFERED
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize(("end", "status"), [("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit(-1)", 255)])
def test_the_process_ends_with_the_status_of_the_program_once_all_is_done(
    tmp_path: Path, end: str, status: int
) -> None:
    assert ended(tmp_path, end) == (status, [EXPECTED, "at once"], "")


def test_threads_are_waited_for(tmp_path: Path) -> None:
    end = (
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start(); sys.exit()"
    )
    assert ended(tmp_path, end)[:2] == (0, ["done", EXPECTED, "at once"])


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [("1 / 0", 1, "ZeroDivisionError"), ("sys.exit('no such thing')", 1, "no such thing"), ("pass", 0, "")],
)
def test_after_any_other_end_the_interpreter_ends_without_its_search_for_garbage(
    tmp_path: Path, end: str, status: int, said: str
) -> None:
    found = ended(tmp_path, end)
    assert found[:2] == (status, [EXPECTED])
    assert said in found[2]
    assert "collected" not in found[2]


def test_who_wanted_to_do_something_at_the_end_before_is_not_passed_over(tmp_path: Path) -> None:
    before = "atexit.register(print, 'a tool that watches')"
    assert ended(tmp_path, "sys.exit(3)", before)[:2] == (3, [EXPECTED, "a tool that watches"])


@pytest.mark.parametrize("end", ["sys.exit()", "1 / 0"])
def test_another_script_ends_as_ever(tmp_path: Path, end: str) -> None:
    found = ended(tmp_path, end, name="other.py")
    assert found[1] == [EXPECTED]
    assert found[2].endswith("collected\n")


def test_what_others_wrote_is_not_lost(tmp_path: Path) -> None:
    """A file that code of the user leaves open is written when the interpreter takes that code apart."""
    (tmp_path / "network.py").write_text(
        "log = open('log.txt', 'w')\nlog.write('built')\n\ndef make():\n    return log\n"
    )
    assert ended(tmp_path, "import network; sys.exit()") == (0, [EXPECTED], "collected\n")
    assert (tmp_path / "log.txt").read_text() == "built"


def test_an_installed_package_of_the_user_counts_as_theirs(tmp_path: Path) -> None:
    end = "from hubscout.light_imports import before_user_code; before_user_code(); sys.exit()"
    assert ended(tmp_path, end) == (0, [EXPECTED], "collected\n")


def test_who_runs_the_command_from_a_script_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "wrapper.py").write_text(
        "import runpy, sys\nlog = open('log.txt', 'w')\nlog.write('mine')\nsys.argv = ['hubscout', '--version']\n"
        "try:\n    runpy.run_module('hubscout', run_name='__main__', alter_sys=True)\n"
        "except SystemExit:\n    sys.exit(3)\n"
    )
    command = [sys.executable, "wrapper.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=BUFFERED)
    assert (done.returncode, done.stdout) == (3, f"hubscout {__version__}\n")
    assert (tmp_path / "log.txt").read_text() == "mine"


def test_what_passes_through_something_else_is_not_lost(tmp_path: Path) -> None:
    before = """
class Log:
    def __init__(self):
        self.file = open("log.txt", "w")
    def write(self, text):
        self.file.write(text)
    def flush(self):
        pass
"""
    assert ended(tmp_path, "sys.stdout = Log(); print('said'); sys.exit()", before)[0] == 0
    assert (tmp_path / "log.txt").read_text().splitlines() == ["said", EXPECTED]


def test_what_cannot_be_written_is_told_as_ever(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    found = []
    for how in ("QuickExit().run(program)", "program()"):
        (tmp_path / "hubscout").write_text(
            PROGRAM.format(end="sys.exit()", before="").replace("QuickExit().run(program)", how)
        )
        with open("/dev/full", "w") as full:
            command = [sys.executable, tmp_path / "hubscout"]
            found.append(
                subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=BUFFERED)
            )
    assert found[0].returncode == found[1].returncode != 0
    assert "No space left on device" in found[0].stderr
    assert found[0].stderr == found[1].stderr.replace("collected\n", "")


COMMAND = """
import os, runpy, sys, tempfile
{before}
leave = os._exit
os._exit = lambda status: (os.write(1, b"at once %d\\n" % status), leave(status))
sys.argv = ["hubscout", "--version"]
import hubscout.cli.app
work = hubscout.cli.app.app
kept = []
hubscout.cli.app.app = lambda **how: (kept.append(tempfile.TemporaryDirectory()), print(kept[0].name), work(**how))
import hubscout.cli
hubscout.cli.program()
"""


@pytest.mark.parametrize("before", ["", "import atexit; atexit.register(int)"])
def test_the_command_ends_so_and_files_in_temporary_folders_go(tmp_path: Path, before: str) -> None:
    script = tmp_path / "hubscout"
    script.write_text(COMMAND.format(before=before))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=60, env=BUFFERED
    )
    folder, *said = done.stdout.splitlines()
    assert said == [f"hubscout {__version__}", *([] if before else ["at once 0"])]
    assert not Path(folder).exists()


def test_the_module_ends_as_the_command_does() -> None:
    code = (
        "import os, sys, runpy; sys.argv = ['hubscout', '--version']\n"
        "leave = os._exit; os._exit = lambda status: (os.write(1, b'at once'), leave(status))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "runpy._run_module_as_main('hubscout')"],
        capture_output=True,
        text=True,
        timeout=60,
        env=BUFFERED,
    )
    assert done.stdout == f"hubscout {__version__}\nat once", done.stderr
