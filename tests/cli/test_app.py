from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hubscout import __version__
from hubscout.cli.app import COMMANDS

Run = Callable[..., Any]


def app_command(name: str) -> Any:
    return typer.main.get_command(importlib.import_module(f"hubscout.cli.{name}").app)


def test_help_lists_every_command_and_each_has_examples(hubscout: Run) -> None:
    result = hubscout("--help")
    assert result.exit_code == 0
    for name in ("rank", "models", "select", "evaluate", "cache", "doctor", "demo"):
        assert name in COMMANDS
        assert f" {name} " in result.stdout
        help_text = hubscout(name, "--help").stdout
        assert "Usage: hubscout " + name in help_text
    for name in ("rank", "models", "select", "evaluate", "doctor", "demo"):
        assert f"hubscout {name} " in hubscout(name, "--help").stdout.split("Examples:")[1]


def test_an_option_means_the_same_in_every_command() -> None:
    """`--label` is a column of labels, `--model` the one that is tuned; the model is `-m` like all models."""
    found: dict[str, dict[str, str]] = {}
    for name in COMMANDS:
        command = app_command(name)
        found[name] = {option: one.name for one in command.params for option in one.opts if option.startswith("-")}
    for options in found.values():
        assert "--target" not in options
    for name in ("rank", "race", "tune", "predict", "reference"):
        assert found[name]["--label"] == "label"
    assert found["tune"]["--model"] == found["tune"]["-m"] == "model"
    for name in ("rank", "race", "reference"):
        assert found[name]["--models"] == found[name]["-m"] == "models"


def test_version_and_unknown_command(hubscout: Run) -> None:
    assert hubscout("--version").stdout == f"hubscout {__version__}\n"
    unknown = hubscout("rnak")
    assert unknown.exit_code == 2
    assert unknown.stderr.startswith("Error: Unknown command 'rnak'. Did you mean 'rank'? Available: ")


def test_help_is_light() -> None:
    """Neither torch nor NumPy is needed to print the help."""
    code = (
        "import sys\nfrom hubscout.cli.app import app\n"
        "try:\n    app(['--help'], standalone_mode=True)\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numpy', 'scipy', 'transformers', 'timm', 'sklearn', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_python_m_hubscout() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hubscout", "rank", "/nowhere", "-m", "x/y"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: There is no '/nowhere'")
    assert len(done.stderr.splitlines()) == 1


def _complete(words: str) -> list[str]:
    """Ask as bash does."""
    parts = words.split(" ")
    environment = {
        **os.environ,
        "_HUBSCOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from hubscout.cli.app import app; app(prog_name='hubscout')"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hubscout ra", ["rank", "race"]),
        ("hubscout rank data --metrics log", ["logme", "logme-capacity"]),
        ("hubscout rank data --metrics knn,log", ["knn,logme", "knn,logme-capacity"]),
        ("hubscout rank data --models tim", ["timm/"]),
        ("hubscout rank data --models fil", ["file:"]),
    ],
)
def test_shell_completion(words: str, expected: list[str]) -> None:
    assert _complete(words) == expected


def test_completion_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubscout.cli.completion import complete_runs

    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "ranking.json").write_text("{}")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete_runs("") == ["pets"]
    assert complete_runs("x") == []


def test_doctor(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result = hubscout("doctor", "--json")
    record = json.loads(result.stdout)
    states = {check["name"]: check["state"] for check in record["checks"]}
    assert states["hubscout"] == "ok"
    assert states["torch"] == "ok"
    assert states["feature cache"] == "ok"
    assert record["environment"]["packages"]["numpy"]
    assert "processor" in hubscout("doctor").stdout


def test_doctor_says_what_is_missing_and_how_to_get_it(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from hubscout.cli import doctor

    there = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in {"timm", "scipy"} else there(name))
    result = hubscout("doctor", "--json")
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert found["hubscout"]["state"] == "broken"
    assert found["hubscout[vision]"]["state"] == "missing"
    assert "pip install 'hubscout[vision]'" in found["hubscout[vision]"]["details"]


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_doctor_says_how_models_run_faster(hubscout: Run, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    result = hubscout("doctor", "--json")
    (check,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == "acceleration"]
    assert check["state"] == "missing"
    assert "pip install 'hubscout[onnx]'" in check["details"]


def test_doctor_finds_a_cache_that_cannot_be_made(
    hubscout: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path / "file"))
    record = json.loads(hubscout("doctor", "--json").stdout)
    assert next(c for c in record["checks"] if c["name"] == "feature cache")["state"] == "broken"


def test_doctor_knows_a_cache_behind_a_url(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBSCOUT_CACHE", "memory://me:s3cret@bucket")
    record = json.loads(hubscout("doctor", "--json").stdout)
    found = next(c for c in record["checks"] if c["name"] == "feature cache")
    assert (found["state"], found["details"]) == ("ok", "memory://***@bucket/features, 0 MB used")
