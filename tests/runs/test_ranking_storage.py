from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubscout.errors import RunError
from hubscout.ranking import Failure, Ranking
from hubscout.runs.ranking import Stage
from hubscout.runs.ranking_storage import _column, save_ranking, to_json
from hubscout.runs.row import Dropped, LayerScore

Make = Callable[..., Any]


@pytest.fixture
def full(make_row: Make, make_ranking: Make) -> Ranking:
    layer = LayerScore(name="layer1", score=0.2, standard_error=0.01, gain=0.1, feature_dim=32)
    return make_ranking(
        make_row(
            "a",
            0.5,
            scores={"logme": 0.5, "knn": 0.9},
            standard_errors={"logme": 0.003},
            layers=(layer,),
            card={"licence": "mit", "downloads": 12},
            notes=("batch halved",),
            seconds=1.5,
        ),
        make_row("b", 0.4, seed=4),
        make_row("c", 0.2, n=500, dropped=Dropped(n=500, stage=0, leader="a", probability=0.002)),
        failures=(Failure(identifier="d", error="ModelNotFoundError", reason="no such model"),),
        stages=(Stage(n=500, models=("a", "b", "c"), dropped=("c",), seconds=2.0),),
        settings={"limit": 1000, "layers": None},
        environment={"python": "3.11"},
        metrics=("logme", "knn"),
        seconds=12.5,
        complete=False,
        seed=3,
    )


def test_round_trip(full: Ranking, tmp_path: Path) -> None:
    path = full.save(tmp_path / "run")
    assert path == tmp_path / "run" / "ranking.json"
    assert Ranking.load(tmp_path / "run") == full
    assert Ranking.load(path) == full
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["ranking.json", "scores.parquet"]


def test_what_is_written_between_models_is_the_whole_ranking_without_the_table(full: Ranking, tmp_path: Path) -> None:
    save_ranking(full, tmp_path, more_to_come=True)
    assert [path.name for path in tmp_path.iterdir()] == ["ranking.json"]
    assert Ranking.load(tmp_path) == full
    assert json.loads((tmp_path / "ranking.json").read_text()) == to_json(full)


def test_parquet_has_the_table_and_its_version(full: Ranking, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    full.save(tmp_path)
    table = parquet.read_table(tmp_path / "scores.parquet")
    assert table.column("identifier").to_pylist() == ["a", "b", "c"]
    assert table.column("score:knn").to_pylist() == [0.9, None, None]
    assert table.schema.metadata[b"hubscout-ranking"] == b"2"


def test_the_table_is_written_without_pandas_and_texts_stay_texts(full: Ranking, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = tuple(replace(row, card={"source": "2024-01-01", "share": 0.1 + 0.2}) for row in full.rows)
    (tmp_path / "given").mkdir()
    replace(full, rows=rows).save(tmp_path / "given")
    code = (
        "import sys; from hubscout import Ranking; Ranking.load('given').save('saved'); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=240)
    assert done.stdout == "False\n", done.stderr
    table = parquet.read_table(tmp_path / "saved" / "scores.parquet")
    assert table == parquet.read_table(tmp_path / "given" / "scores.parquet")
    assert table.column("card:source").to_pylist() == 3 * ["2024-01-01"]
    assert table.column("card:share").to_pylist() == 3 * [0.1 + 0.2]
    assert table.column("block_scores").to_pylist() == [list(row.block_scores) for row in rows]


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 3],
        [1, 0.5],
        [2**53 + 1, 5],
        [float("nan"), float("inf"), None],
        [5e-324, -0.0, 0.1 + 0.2],
        [True, None],
        [None, None],
        ["2024-01-01", ""],
        ['a\n"b\u2028\x00', None],
        [[0.1, 0.2], []],
        [["2024-01-01"], None],
        [{"a": 1}, {"b": 2}],
    ],
)
def test_columns_are_those_that_arrow_makes(values: list[object]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    found, expected = _column(values), pyarrow.array(values)
    assert found.type == expected.type
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("values", [[2**63, 1], [2**53 + 1, 0.5], [True, 1], [1, "a"], [[1], 2], ["\ud800", None]])
def test_what_arrow_has_no_type_for_is_text(values: list[object]) -> None:
    pytest.importorskip("pyarrow")
    expected = [None if value is None else str(value).replace("\ud800", "?") for value in values]
    assert _column(values).to_pylist() == expected


def test_json_holds_what_a_report_needs(full: Ranking, tmp_path: Path) -> None:
    record = json.loads(full.save(tmp_path).read_text())
    assert record["version"] == 2
    assert record["pairwise"]["models"] == ["a", "b"]
    assert record["pairwise"]["p_row_better_than_column"][0][0] == 0.5
    assert record["rows"][0]["per_target"] == [0.5 + 0.9, 0.5 + 1.1]
    assert record["failures"][0]["reason"] == "no such model"
    assert record["tied_with_best"] == ["a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": "hubscout-ranking", "version": 99}', "version 99.*reads version 2"),
        ('{"format": "hubscout-ranking", "version": 2}', "lacks a field"),
        ('{"format": "other"}', "not a saved ranking"),
        ("[]", "not a saved ranking"),
        ('{"format": "hubscout', "not JSON"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "ranking.json").write_text(text)
    with pytest.raises(RunError, match=words):
        Ranking.load(tmp_path)


def test_missing_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no ranking\.json"):
        Ranking.load(tmp_path)
    with pytest.raises(RunError, match="There is no"):
        Ranking.load(tmp_path / "nothing")


def test_the_table_takes_facts_of_several_types(full: Ranking, tmp_path: Path) -> None:
    """A backbone of somebody else's may say anything; the table for other tools must not end the writing."""
    parquet = pytest.importorskip("pyarrow.parquet")
    odd = ("81%", 0.5, 1 << 70, "a\udcffb", None)
    rows = tuple(replace(full.rows[0], identifier=f"m{place}", card={"fact": value}) for place, value in enumerate(odd))
    replace(full, rows=rows).save(tmp_path)
    table = parquet.read_table(tmp_path / "scores.parquet").to_pylist()
    assert {row["identifier"]: row["card:fact"] for row in table} == {
        "m0": "81%",
        "m1": "0.5",
        "m2": str(1 << 70),
        "m3": "a?b",
        "m4": None,
    }
