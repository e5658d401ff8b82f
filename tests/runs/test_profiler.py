"""Where the seconds of a run go: nothing is counted twice, and threads are kept apart."""

from __future__ import annotations

import threading
import time
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from hubscout.runs.profiler import (
    Profile,
    is_profiling,
    profile_cells,
    profile_renderables,
    profiled,
    step,
    together,
)


def test_nothing_is_measured_unless_it_is_wanted() -> None:
    with profiled(False) as profiler, step("load"):
        assert profiler is None
        assert not is_profiling()


def test_the_steps_of_the_main_thread_add_up_to_the_time_that_went_by() -> None:
    began = time.perf_counter()
    with profiled() as profiler:
        with step("forward"):
            time.sleep(0.02)
            with step("transfer"):
                time.sleep(0.03)
            with pytest.raises(ZeroDivisionError), step("transfer"):
                _ = 1 / 0
        time.sleep(0.01)
        assert profiler is not None
        found = profiler.profile()
    assert found.seconds <= time.perf_counter() - began
    assert sum(found.main.values()) == pytest.approx(found.seconds)
    assert found.main["forward"] >= 0.02
    assert found.main["transfer"] >= 0.03
    assert found.main["other"] >= 0.01
    # A step within another one is taken off it.
    assert found.main["forward"] + found.main["transfer"] <= found.seconds - 0.01
    assert not found.beside
    assert not is_profiling()


def test_other_threads_are_kept_apart() -> None:
    def work() -> None:
        with step("decode"):
            time.sleep(0.02)

    with profiled() as profiler:
        threads = [threading.Thread(target=work) for _ in range(3)]
        with step("decode"):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert profiler is not None
        found = profiler.profile()
    assert found.beside["decode"] >= 0.06
    assert found.main["decode"] <= found.seconds
    assert sum(found.main.values()) == pytest.approx(found.seconds)


def test_an_inner_profile_hides_its_steps_from_the_outer_one() -> None:
    with profiled(since=time.perf_counter() - 1.0) as outer:
        with profiled() as inner, step("load"):
            pass
        assert inner is not None
        assert outer is not None
        assert list(inner.profile().main) == ["load", "other"]
        found = outer.profile()
    assert list(found.main) == ["start", "other"]
    assert found.main["start"] >= 1.0
    assert found.less(0.0) == found


def test_profiles_add_up() -> None:
    one = Profile(seconds=3.0, main={"load": 1.0, "other": 2.0}, beside={"decode": 4.0})
    two = Profile(seconds=1.0, main={"forward": 1.0})
    assert together([one, None, two]) == Profile(
        seconds=4.0, main={"load": 1.0, "forward": 1.0, "other": 2.0}, beside={"decode": 4.0}
    )
    assert together([None]) is None
    assert one.less(1.5).main == {"load": 1.0, "other": 0.5}


def test_the_table_has_no_empty_columns_and_whole_names_in_a_usual_window() -> None:
    names = ("pypi/efficientnet-lite0?input_size=64", "pypi/alexnet-features?input_size=64")
    spent = dict.fromkeys(("load", "export", "decode", "forward", "statistics", "latency", "score"), 12.34)
    profile = Profile(seconds=45.0, main={**spent, "transfer": 0.001, "other": 1.0}, beside={"decode": 1.25})
    rows = [SimpleNamespace(identifier=name, profile=profile) for name in names]
    ranking: Any = SimpleNamespace(rows=rows, environment={}, seconds=100.0)
    heads, texts = profile_cells(ranking)
    assert "transfer" not in heads
    assert {len(line) for line in texts} == {len(heads)}
    console = Console(file=StringIO(), width=120)
    for part in profile_renderables(ranking):
        console.print(part)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "efficientnet-lite0" in written
    assert "…" not in written
