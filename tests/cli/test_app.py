from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
import typer.core
import typer.main

from hubscout import __version__
from hubscout.cli import main
from hubscout.cli.app import COMMANDS, app, in_options

Run = Callable[..., Any]


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


def panels(text: str) -> dict[str, str]:
    """The boxes of a help text, by title."""
    boxes = re.findall(r"^╭─ (.+?) ─+╮\n(.*?)^╰", text, re.M | re.S)
    return {title: re.sub(r"^│|│$", "", inside, flags=re.M) for title, inside in boxes}


def test_the_help_names_first_the_three_commands_that_a_newcomer_needs(hubscout: Run) -> None:
    shown = panels(hubscout("--help").stdout)
    commands = {
        title: re.findall(r"^ (\w+) {2,}\S", inside, re.M) for title, inside in shown.items() if title != "Options"
    }
    first = next(iter(commands))
    assert first.startswith("Start here")
    assert commands[first] == ["rank", "tune", "predict"]
    assert [name for names in commands.values() for name in names] == list(COMMANDS)


@pytest.mark.parametrize("command", ["rank", "race", "tune"])
def test_the_help_of_a_command_has_what_a_first_run_needs_apart_from_the_rest(
    hubscout: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = panels(hubscout(command, "--help").stdout)
    assert "--out" in shown["Options"]
    assert not re.search(r"^ +--(engine|device|seed|image|allow-code)\b", shown["Options"], re.M)
    for option in ("--engine", "--device", "--seed", "--allow-code"):
        assert option in shown["How it runs"]
    assert "<int range>" not in str(shown), "it takes half of the width from every text beside it"


def test_paragraphs_of_the_help_are_as_wide_as_the_terminal(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = hubscout("tune", "--help").stdout
    told = text[text.index("Trains on") : text.index("the exit status is 4.")].splitlines()
    assert all(len(line.rstrip()) > 85 for line in told[:-1]), told


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


INTERRUPTED = """
import signal, sys

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, AtImport())
sys.argv = ["hubscout", "rank", "--help"]
from hubscout.cli import program
program()
"""


@pytest.mark.parametrize("module", ["hubscout.cli.app", "hubscout.light_imports", "hubscout.cli.rank"])
def test_ctrl_c_while_the_command_starts_is_one_line(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_ctrl_c_while_the_command_line_is_read_is_one_line(hubscout: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(typer.core.TyperGroup, "parse_args", interrupted)
    result = hubscout("rank", "--help")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


def test_an_option_of_another_command_is_told_so(hubscout: Run) -> None:
    result = hubscout("tune", "flowers/", "--max-latency", "20ms")
    assert result.exit_code == 2
    said = "No such option: --max-latency. It is an option of rank, race and select."
    assert said in " ".join(result.stderr.split())
    assert "an option of" not in hubscout("tune", "flowers/", "--max-latencies", "20ms").stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tune nowhere --model x", "'x' names no hub"),
        ("tune nowhere --model timm/x", "There is no "),
        ("tune nowhere --model timm/x --method kdd", "Did you mean 'kd'?"),
        (
            "tune nowhere --model timm/x --teachers run",
            "--teachers run: no folder of a ranking, a race or a tuned model. ",
        ),
        ("race nowhere -m timm/x", "There is no "),
        ("rank nowhere -m timm/x", "There is no "),
        ("check nowhere", "There is no "),
        ("predict nowhere a.jpg", "nowhere is no folder of a tuned model"),
        ("report nowhere", "There is no nowhere"),
        ("soup nowhere a b", "a is no folder of a tuned model"),
        ("soup nowhere a", "at least two tuned models"),
        ("check nowhere -m timm/x --device cuda", "no CUDA device is available here"),
        ("rank nowhere -m timm/x --device cuda", "no CUDA device is available here"),
        ("tune nowhere --model timm/x --device cuda", "no CUDA device is available here"),
        ("predict nowhere a.jpg --device cuda", "no CUDA device is available here"),
    ],
)
def test_a_refusal_does_not_wait_for_torch(line: str, said: str) -> None:
    """A mistyped command line is told so in a fraction of a second."""
    if "cuda" in line and not version("torch").endswith("+cpu"):
        pytest.skip("this torch must be asked whether there is a GPU")
    code = (
        "import sys\nfrom hubscout.cli.app import app\n"
        f"try:\n    app({line.split()!r})\nexcept SystemExit as end:\n    status = end.code\n"
        "print(status, sorted({'torch', 'timm', 'transformers', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said in done.stderr
    assert done.stdout.splitlines()[-1] in ("1 []", "2 []")


def test_python_m_hubscout() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hubscout", "rank", "/nowhere", "-m", "x/y"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: There is no '/nowhere'")
    assert len(done.stderr.splitlines()) == 1


GROUP: Any = typer.main.get_command(app)
TUNE, RANK = (GROUP.get_command(None, name).params for name in ("tune", "rank"))


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("learning_rate=-1.0: must be above 0.", "--learning-rate -1.0: must be above 0."),
        ("lora_rank=4: the model has none.", "--lora 4: the model has none."),
        ("optimizer='adam': allowed are 'auto'.", "--set optimizer=adam: allowed are 'auto'."),
        ("model='onnx:a b.onnx' is no torch module", "--model 'onnx:a b.onnx' is no torch module"),
        ("Say label= one of: a, b.", "Say --label one of: a, b."),
        ("or say kind='classification' if", "or say --kind classification if"),
        ("resume=True needs the folder: give out=...", "--resume needs the folder: give --out ..."),
        ("overwrite it (overwrite=True, --overwrite).", "overwrite it (--overwrite)."),
        ("limit must be a whole number", "--limit must be a whole number"),
        ("another run: epochs was 1 and is 2; seed was 0", "another run: --epochs was 1 and is 2; --seed was 0"),
        ("Error: A model must be one.", "Error: A model must be one."),
        ("frozen_norm_statistics=True helps", "--set frozen_norm_statistics=true helps"),
        ("hf/x?label=3 and a/seed=3 stay", "hf/x?label=3 and a/seed=3 stay"),
        ("the label of a model stays", "the label of a model stays"),
        ("Say text=, image= or label= one of: a.", "Say --text, --image or --label one of: a."),
    ],
)
def test_arguments_become_options(said: str, wanted: str) -> None:
    assert in_options(said, TUNE) == wanted


def test_what_the_command_does_not_have_stays() -> None:
    assert in_options("budget must be: optimizer='adam'", RANK) == "--budget must be: optimizer='adam'"


def test_the_command_says_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, float]] = []
    monkeypatch.setattr("hubscout.cli.app.app", lambda obj: told.append(obj))
    before = time.perf_counter()
    main()
    assert before <= told[0]["began"] <= time.perf_counter()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "3000 14"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None 14"),
        ({"GOMP_SPINCOUNT": "7", "OPENBLAS_THREAD_TIMEOUT": "20"}, "7 20"),
    ],
)
def test_threads_that_wait_do_not_spin_for_long_unless_the_user_says_so(given: dict[str, str], found: str) -> None:
    code = (
        "import atexit, os, sys; names = ('GOMP_SPINCOUNT', 'OPENBLAS_THREAD_TIMEOUT');"
        "atexit.register(lambda: print(*map(os.environ.get, names)));"
        "sys.argv = ['hubscout', '--version']; from hubscout.cli import main; main()"
    )
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OPENBLAS_THREAD_TIMEOUT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run([sys.executable, "-c", code], env={**environment, **given}, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == found
