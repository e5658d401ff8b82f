"""What the options of several commands share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hubscout.cli.app import COMMANDS, app


def app_command(name: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.get_command(None, name)


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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    """Helps are in docstrings: one that is misspelt there would be missing."""
    command = app_command(name)
    for one in (command, *getattr(command, "commands", {}).values()):
        assert not [parameter.name for parameter in one.params if not getattr(parameter, "help", None)]


def test_helps_come_from_docstrings_and_groups_are_spelled_out() -> None:
    from hubscout.cli.shared_options import Engine, described

    heard: list[Any] = []

    def command(*, where: Engine, steps: int = 3, in_full: bool = False) -> None:
        """Do it.

        Args:
            steps: How many,
                in all.
            in_full: Whether to do all of it.

        """
        heard.append((where, steps, in_full))

    command.__annotations__ = {"where": Engine, "steps": int, "in_full": bool}
    app = typer.Typer()
    app.command()(described(command))
    made: Any = typer.main.get_command(app)
    helps = {one.opts[0]: one.help for one in made.params}
    assert helps["--steps"] == "How many, in all."
    assert helps["--in-full"] == "Whether to do all of it."
    assert helps["--engine"].startswith("Where the work runs")
    assert made.help == "Do it."
    made.main(["--engine", "ray", "--in-full"], standalone_mode=False)
    assert heard == [(Engine("ray"), 3, True)]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_have_options_that_exist(name: str) -> None:
    examples = re.findall(rf"^.*\bhubscout {name} .*$", app_command(name).epilog or "", flags=re.MULTILINE)
    known = {option for one in app_command(name).params for option in (*one.opts, *one.secondary_opts)}
    for example in examples:
        said = re.findall(r"(?<=\s)--?[a-z][a-z-]*", example.partition(f"hubscout {name} ")[2].partition("#")[0])
        assert set(said) <= {*known, "--help"}, example


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
    from hubscout.cli.shared_options import complete_runs

    (tmp_path / "pets").mkdir()
    (tmp_path / "pets" / "ranking.json").write_text("{}")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete_runs("") == ["pets"]
    assert complete_runs("x") == []


TUNE = ("tune", "--model", "timm/resnet18")
WRONG = [
    ("rank", "--metrics", "logmee", "'logmee'. Did you mean 'logme'?"),
    ("rank", "--layer", "7", "--layer must be one of final, best, mean"),
    ("rank", "--precision", "float8", "--precision must be one of auto, float32"),
    ("rank", "--engine", "spark", "'spark'"),
    ("rank", "--device", "tpu9", "--device must be"),
    ("rank", "--kind", "classes", "'classes'"),
    ("rank", "--resume", "--resume needs the folder of the run"),
    ("rank", "--resume", "--out", "none/", "none holds no run to resume"),
    ("race", "--max-params", "ten", "--max-params must be a number"),
    ("race", "--max-flops", "ten", "--max-flops must be a number"),
    ("race", "--set", "epoch=3", "Did you mean 'epochs'?"),
    ("race", "--set", "epochs=0", "--set epochs=0: must be a whole number"),
    ("race", "--set", "seed=3", "--seed is an option of its own"),
    ("race", "--device", "tpu9", "--device"),
    ("race", "--engine", "spark", "'spark'"),
    ("race", "--address", "auto", "--address is for --engine ray"),
    ("race", "--accelerate", "on", "--accelerate must be one of"),
    ("race", "--deploy", "resnet18", "'resnet18' names no hub"),
    ("race", "--deploy", "tim/resnet18", "'tim'. Did you mean 'timm'?"),
    ("race", "--resume", "--overwrite", "--out", "none/", "exclude each other"),
    (*TUNE, "--method", "kdd", "'kdd'. Did you mean 'kd'?"),
    (*TUNE, "--method", "kd", "--method kd learns from teachers: give at least one"),
    (*TUNE, "--method", "all", "compares methods that learn from teachers: give --teachers"),
    (*TUNE, "--teacher-targets", "later", "--teacher-targets later: allowed are 'cached'"),
    (*TUNE, "--learning-rate", "-1", "--learning-rate -1.0: must be above 0"),
    (*TUNE, "--device", "tpu9", "--device"),
    (*TUNE, "--kind", "classes", "'classes'"),
    (*TUNE, "--resume", "--out", "none/", "none holds no run to resume"),
    ("tune", "--model", "resnet18", "'resnet18' names no hub"),
    ("tune", "--model", "tim/resnet18", "'tim'. Did you mean 'timm'?"),
    ("reference", "-m", "timm/x", "--out", "ref", "--limit", "few", "--limit must be"),
    ("reference", "-m", "timm/x", "--out", "ref", "--learning-rates", "low", "--learning-rates must be numbers"),
    ("reference", "-m", "timm/x", "--out", "ref", "--set", "epoch=3", "Did you mean 'epochs'?"),
    ("reference", "-m", "timm/x", "--out", "ref", "--set", "weight_decay=0", "weight_decay is what the search is over"),
    ("reference", "-m", "timm/x", "--out", "ref", "--address", "auto", "--address is for --engine ray"),
    ("soup", "one/", "two/", "--limit", "few", "--limit must be"),
    ("soup", "one/", "at least two"),
    ("soup", "one/", "two/", "one", "one is given twice: a soup averages different runs"),
    ("rank", "-m", "timm/x", "--out", __file__, "test_shared_options.py is a file: give a folder"),
    (*TUNE, "--out", __file__, "test_shared_options.py is a file: give a folder"),
    ("race", "-m", "timm/x", "--out", __file__, "test_shared_options.py is a file: give a folder"),
    ("check", "-m", "timm/x", "--limit", "few", "--limit must be"),
    ("check", "-m", "timm/x", "--device", "tpu9", "--device must be"),
    ("predict", "--device", "tpu9", "--device must be"),
]
"""A command line without its data, and what is said of it."""


@pytest.mark.parametrize("line", WRONG, ids=lambda line: " ".join(line[:-1]))
def test_a_wrong_option_is_refused_before_anything_is_read(hubscout: Callable[..., Any], line: tuple[str, ...]) -> None:
    """The data are not there, and nobody comes to notice."""
    command, *options, said = line
    result = hubscout(command, "nowhere/", *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("runs").exists()


IGNORED = [
    (*TUNE, "--epochs", "3", "--steps", "10", "--epochs 3 and --steps 10 both say how long the run is"),
    (*TUNE, "--epochs", "3", "--budget", "1min", "--epochs 3 and --budget 60 both say how long the run is"),
    (*TUNE, "--epochs", "3", "--set", "epochs=4", "--epochs is an option of its own"),
    (*TUNE, "--method", "fine-tune", "--teachers", "timm/a", "--method fine-tune has no teachers: leave --teachers"),
    (*TUNE, "--method", "fine-tune", "--trade-off", "2", "--trade-off 2.0 is for method 'b-tuning' or"),
    (*TUNE, "--teacher-targets", "live", "--teacher-targets live is for runs with teachers: give --teachers"),
    (
        *TUNE,
        "--teachers",
        "timm/a",
        "--method",
        "all",
        "--set",
        "kd_temperature=4",
        "--set kd_temperature=4 is for method",
    ),
    (*TUNE, "--teachers", "timm/a", "--set", "teacher_views=9", "is for --teacher-targets views: leave it out"),
    (*TUNE, "--top", "2", "--top is for --teachers"),
    (*TUNE, "--set", "label_share=0.2", "label_share=0.2 is for runs with teachers: give --teachers"),
    (*TUNE, "--method", "fine-tune", "--set", "posterior_folds=3", "is for method 'b-tuning': leave it out"),
    (*TUNE, "--seeds", "2", "--seeds is for --method all"),
    (*TUNE, "--engine", "ray", "--engine is for --method all"),
    (*TUNE, "--teachers", "timm/a", "--method", "all", "--onnx", "--onnx is for a single method"),
    (*TUNE, "--teachers", "timm/a", "--method", "all", "--seed", "3", "--seed is for a single method"),
    (*TUNE, "--cache", "here/", "--no-cache", "--cache and --no-cache exclude each other"),
    ("rank", "--time-limit", "1min", "--time-limit 1min is for --engine ray or for workers"),
    ("check", "--limit", "100", "--limit is for --models"),
    ("race", "--set", "budget=60", "--budget is an option of its own"),
    ("race", "--set", "label_share=0.2", "--set label_share=0.2 is for a model to deploy: give --deploy"),
    ("race", "--deploy", "timm/a", "--set", "kd_temperature=4", "--set kd_temperature=4 is for method"),
    ("reference", "-m", "timm/a", "--out", "ref", "--set", "label_share=0.2", "is for method 'b-tuning': leave it out"),
]


@pytest.mark.parametrize("line", IGNORED, ids=lambda line: " ".join(line[:-1]))
def test_no_option_is_ignored_without_a_word(hubscout: Callable[..., Any], line: tuple[str, ...]) -> None:
    command, *options, said = line
    result = hubscout(command, "nowhere/", *options)
    assert result.exit_code == 2
    assert said in result.stderr


def test_notes_on_the_data_speak_of_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from hubscout.cli.shared_options import Data

    path = tmp_path / "tags.csv"
    path.write_text("text,topics\n" + "a good camera,camera;good\nanother camera,camera\nnot good,good\n" * 10)
    Data(str(path)).open()
    assert "if they are, say --kind multilabel" in capsys.readouterr().err
