from __future__ import annotations

import gzip
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from hubscout.errors import TaskError
from hubscout.tasks import Task, limits, open_task
from hubscout.tasks.reading import read_table


@pytest.fixture(autouse=True)
def memory_limit() -> Iterator[None]:
    """What a bomb would need is not there: a reader that unpacks it fails instead of filling the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def test_a_million_columns_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(1_000_000)) + "\n" + "," * 999_999 + "\n")
    started = time.perf_counter()
    with pytest.raises(TaskError, match=r"1,000,000 columns.*100,000.*from_arrays") as caught:
        read_table(tmp_path / "wide.csv")
    assert time.perf_counter() - started < 120  # looking for doubles pair by pair takes hours
    assert len(str(caught.value)) < 1000


def test_many_columns_are_read_and_errors_stay_short(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(50_000)) + "\n" + "0," * 49_999 + "0\n")
    assert len(read_table(tmp_path / "wide.csv").columns) == 50_000
    for options in ({}, {"text": "d1"}, {"text": "c1"}):
        with pytest.raises(TaskError, match=r"and 49,9\d\d more") as caught:
            Task.from_table(tmp_path / "wide.csv", **options)
        assert len(str(caught.value)) < 1000
    (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(TaskError, match="two columns called 'a'"):
        read_table(tmp_path / "twice.csv")


def test_rows_of_ever_new_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sparse.jsonl").write_text("".join(json.dumps({f"key{i}": 1}) + "\n" for i in range(20_000)))
    with pytest.raises(TaskError, match="400,000,000 cells"):
        read_table(tmp_path / "sparse.jsonl")


def test_wide_frames_and_parquet_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_COLUMNS", 10)
    frame = pd.DataFrame({f"c{i}": [1] for i in range(11)})
    frame.to_parquet(tmp_path / "wide.parquet")
    for source in (frame, tmp_path / "wide.parquet"):
        with pytest.raises(TaskError, match="11 columns"):
            Task.from_table(source)


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz", "bomb.conll.gz"])
def test_a_gzip_bomb_is_not_unpacked(name: str, tmp_path: Path) -> None:
    # Three gigabytes in three megabytes: members of a gzip file follow one another.
    packed = gzip.compress(b"a b\n" * 2_500_000) * 300
    assert len(packed) < 4_000_000
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(TaskError, match=r"unpacks to more than.*HUBSCOUT_MAX_UNPACKED_BYTES"):
        open_task(tmp_path / name)


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "text,label\n" + "a good film,yes\na bad one,no\n" * 1000
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_table(tmp_path / "a.csv.gz").length == 2000
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", str(len(text)))
    assert read_table(tmp_path / "a.csv.gz").length == 2000
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", str(len(text) - 1))
    with pytest.raises(TaskError, match="unpacks to more"):
        read_table(tmp_path / "a.csv.gz")
    monkeypatch.setenv("HUBSCOUT_MAX_UNPACKED_BYTES", "lots")
    with pytest.raises(TaskError, match="'lots'"):
        read_table(tmp_path / "a.csv.gz")
