"""hubscout select, evaluate"""

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
    many = hubscout("select", run_folder, "-k", "50", "--json")
    assert f"no more than {len(json.loads(many.stdout)['teachers'])} models" in many.stderr


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


def test_evaluate(hubscout: Run, run_folder: Path, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text(f"model,accuracy\n{zoo}:red,0.5\n{zoo}:colours,0.9\nother,0.7\n")
    result = hubscout("evaluate", run_folder, tmp_path / "known.csv", "--json")
    record = json.loads(result.stdout)
    assert record["metrics"]["logme"]["weighted_tau"] == 1.0
    assert "params" in record["baselines"]
    assert "Not in" in result.stderr
    table = hubscout("evaluate", run_folder, tmp_path / "known.csv").stdout
    assert "weighted tau" in table
    assert "nearly noise" in table
    (tmp_path / "errors.json").write_text(json.dumps({f"{zoo}:red": 0.5, f"{zoo}:colours": 0.9}))
    lower = hubscout("evaluate", run_folder, tmp_path / "errors.json", "--lower-is-better", "--json")
    assert json.loads(lower.stdout)["metrics"]["logme"]["weighted_tau"] == -1.0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "model,accuracy\nx,1\n", "has 0 of the 2 ranked models"),
        ("a.csv", "who,what\nx,1\n", "needs a column model"),
        ("a.csv", "model,accuracy\nx,good\n", "not a number"),
        ("a.csv", "model,accuracy\nx,1\nx,2\n", "names x twice"),
        ("a.csv", "model,accuracy\nx,nan\n", "finite numbers"),
        ("a.json", "[1, 2]", "must be an object"),
        ("a.json", "{", "not JSON"),
        ("a.csv", "", "no header"),
        ("none.csv", None, "there is no file"),
    ],
)
def test_references_that_cannot_be_used(
    hubscout: Run, run_folder: Path, tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    result = hubscout("evaluate", run_folder, tmp_path / name)
    assert result.exit_code == 2
    assert words in result.stderr
