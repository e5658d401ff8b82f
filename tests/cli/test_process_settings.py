from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hubscout.cli.process_settings import PROCESSORS, SKYLAKE_X, is_unknown_to_openblas, set_process

ZEN_5 = {"vendor_id": "AuthenticAMD", "cpu family": "26", "flags": " ".join(["fpu", *SKYLAKE_X])}


def described(folder: Path, **facts: str) -> Path:
    """A file as Linux has it, with a second processor that is another one."""
    file = folder / "cpuinfo"
    lines = [f"{name}\t: {value}" for name, value in {**ZEN_5, **facts}.items()]
    file.write_text("\n".join([*lines, "", "vendor_id\t: GenuineIntel", "flags\t\t: fpu", ""]))
    return file


def test_a_processor_that_openblas_does_not_know(tmp_path):
    environment: dict[str, str] = {}
    set_process(environment, described(tmp_path))
    assert environment == {"GOMP_SPINCOUNT": "3000", "OPENBLAS_CORETYPE": "SkylakeX"}


@pytest.mark.parametrize(
    "facts",
    [
        {"cpu family": "25"},
        {"vendor_id": "GenuineIntel"},
        {"flags": "fpu avx2 avx512f avx512cd avx512dq avx512vl"},
        {"cpu family": "unknown"},
    ],
)
def test_processors_that_it_knows_or_that_cannot_do_it(tmp_path, facts):
    assert is_unknown_to_openblas(described(tmp_path))
    assert not is_unknown_to_openblas(described(tmp_path, **facts))


def test_a_machine_that_does_not_say_what_it_has(tmp_path):
    assert not is_unknown_to_openblas(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("given", "found"),
    [({}, "3000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"), ({"GOMP_SPINCOUNT": "7"}, "7")],
)
def test_threads_that_wait_do_not_spin_for_long_unless_the_user_says_so(given, found):
    assert of_a_command("GOMP_SPINCOUNT", given) == found


def test_the_kernels_of_a_command_are_those_of_the_processor_unless_the_user_says_so():
    assert of_a_command("OPENBLAS_CORETYPE", {}) == ("SkylakeX" if is_unknown_to_openblas(PROCESSORS) else "None")
    assert of_a_command("OPENBLAS_CORETYPE", {"OPENBLAS_CORETYPE": "Haswell"}) == "Haswell"


def of_a_command(name: str, given: dict[str, str]) -> str:
    """The value of a variable in the process of a command; NumPy is not imported before it is set."""
    code = (
        f"import atexit, os, sys; atexit.register(lambda: print(os.environ.get({name!r})));"
        "sys.argv = ['hubscout', '--version']; from hubscout.cli import main; import hubscout.cli.process_settings;"
        "assert 'numpy' not in sys.modules; main()"
    )
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OPENBLAS_CORETYPE")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    done = subprocess.run([sys.executable, "-c", code], env={**environment, **given}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]
