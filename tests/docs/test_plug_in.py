"""The package that docs/how-to/plug-in.md writes is installed, and each of its four entry points works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import read_blocks

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "how-to" / "plug-in.md"
USE = """
import json
import hubscout as hs
from sklearn.datasets import load_digits
from hubscout.engines import Job, open_engine
from hubscout.metrics import available

task = hs.Task.from_arrays(*(part[:200] for part in load_digits(return_X_y=True)))
ranking = hs.rank(task, ["projections/*"], metrics=["nearest-mean", "logme"], cache=False)
tuned = hs.tune(task, "projections/wide", method="small-features", epochs=1, cache=False)
result = next(open_engine("logged", log="mine.log").run([Job("seven", lambda: 7)]))
print(json.dumps({
    "order": [row.identifier for row in ranking], "metric": ranking.metrics[0], "value": result.value,
    "parts": sorted(tuned.curves[0]["parts"]), "log": open("mine.log").read(),
    "listed": "nearest-mean" in available("classification"),
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the installed package, made of the page's own blocks."""
    source, site = tmp_path_factory.mktemp("scout-extras"), tmp_path_factory.mktemp("site")
    (source / "scout_extras").mkdir()
    (source / "scout_extras" / "__init__.py").touch()
    for block in read_blocks(PAGE):
        first = block.source.partition("\n")[0]
        if block.language == "toml":
            (source / "pyproject.toml").write_text(block.source)
        elif first.startswith("# scout_extras/"):
            (source / first.removeprefix("# ")).write_text(block.source)
    install = [
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    return site


def test_each_of_the_four_entry_points_works(installed: Path, tmp_path: Path) -> None:
    paths = os.pathsep.join([str(installed), str(REPOSITORY / "src")])
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "order": ["projections/wide", "projections/narrow"],
        "metric": "nearest-mean",
        "value": 7,
        "parts": ["size", "task"],
        "log": "seven done\n",
        "listed": True,
    }


def test_the_page_names_every_group_that_there_is() -> None:
    from hubscout.engines import ENGINES
    from hubscout.hubs import HUBS
    from hubscout.metrics import METRICS
    from hubscout.tuning import METHODS

    for registry in (ENGINES, HUBS, METRICS, METHODS):
        assert f'entry-points."{registry._group}"' in PAGE.read_text(encoding="utf-8")
