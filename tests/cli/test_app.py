from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from hubscout import __version__
from hubscout.cli.app import COMMANDS

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
