"""hubscout select"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_select(hubscout: Run, run_folder: Path, zoo: str) -> None:
    top = json.loads(hubscout("select", run_folder, "-k", "1", "--json").stdout)
    assert [step["identifier"] for step in top["teachers"]] == [f"{zoo}:colours"]
    joint = hubscout("select", run_folder, "-k", "2", "--method", "joint", "--json", "-q", "--allow-code")
    assert joint.exit_code == 0, joint.stderr
    steps = json.loads(joint.stdout)["teachers"]
    assert steps[0]["identifier"] == f"{zoo}:colours"
    assert steps[1]["added"] < 0.01, "what sees one channel adds nothing to what sees all"
    assert "joint LogME" in hubscout("select", run_folder, "-k", "2", "--method", "joint", "--allow-code").stdout
    assert hubscout("select", run_folder, "-k", "1", "--max-latency", "10s").exit_code == 0
    slow = hubscout("select", run_folder, "--max-latency", "fast")
    assert "Error: --max-latency must be a time such as" in slow.stderr
    none = hubscout("select", run_folder, "--max-params", "0")
    assert none.exit_code == 2
    assert "keeps these limits" in none.stderr
    assert hubscout("select", run_folder / "nothing").exit_code == 1


def test_select_reads_a_cache_behind_a_url(
    hubscout: Run, images: Path, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    url, models = f"memory://{tmp_path.name}/features", f"{zoo}:red,{zoo}:colours"
    assert hubscout("rank", images, "-m", models, "--out", tmp_path / "run", "--cache", url).exit_code == 0
    for place in ((), ("--cache", url)):
        joint = hubscout("select", tmp_path / "run", "-k", "2", "--method", "joint", "--allow-code", *place)
        assert joint.exit_code == 0, joint.stderr
    assert len(json.loads(hubscout("cache", "ls", "--cache", url, "--json").stdout)) == 2
    assert not list((tmp_path / "here").iterdir())
