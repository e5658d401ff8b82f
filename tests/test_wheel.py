"""What people install: the built wheel, alone, in an environment that holds no other hubscout."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command, cwd, **env):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an environment with the wheel; what it depends on comes from the environment of the tests."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=folder).strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=folder)
    # A path line adds the folder alone: the .pth file there that makes the working tree importable is not read.
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def test_is_the_wheel_and_not_the_working_tree(installed, tmp_path):
    where = run(installed, "-c", "import hubscout; print(hubscout.__file__)", cwd=tmp_path, PYTHONPATH="")
    assert Path(where.strip()).is_relative_to(installed.parent.parent)


def test_one_version(installed, tmp_path):
    code = "import hubscout, importlib.metadata as m; print(hubscout.__version__, m.version('hubscout'))"
    first, second = run(installed, "-c", code, cwd=tmp_path, PYTHONPATH="").split()
    assert first == second


@pytest.mark.slow
def test_doctor_and_rank(installed, tmp_path):
    image = pytest.importorskip("PIL.Image")
    command = installed.parent / "hubscout"
    assert "hubscout" in run(command, "doctor", cwd=tmp_path, PYTHONPATH="")
    for number in range(24):
        folder = tmp_path / "data" / ("dark" if number % 2 else "light")
        folder.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (8, 8), (10 * number, 0, 0) if number % 2 else (0, 10 * number, 255)).save(
            folder / f"{number}.png"
        )
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
        "    net.pretrained_cfg = {'input_size': (3, 8, 8)}\n    return net\n"
    )
    ranked = run(
        command, "rank", "data", "-m", "python:net.py:make", "--no-cache", "--json", cwd=tmp_path, PYTHONPATH=""
    )
    assert [row["identifier"] for row in json.loads(ranked)["rows"]] == ["python:net.py:make"]
