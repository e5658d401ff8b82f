"""A pass is stopped once it is seen to take too long, and not before."""

from __future__ import annotations

import pickle
import time

import pytest
from clocked_networks import CLOCK

from hubscout.runs.events import Advanced, Started
from hubscout.tuning.pass_time import PassPace, PassWatch, TooSlowError


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    CLOCK.now = 1000.0
    monkeypatch.setattr(time, "perf_counter", CLOCK)


@pytest.mark.parametrize(
    ("gone", "timed", "samples", "left", "seconds", "late"),
    [
        (1.0, 0.0, 0, 100, 10.0, False),  # the first batch tells nothing but that it is over
        (11.0, 0.0, 0, 100, 10.0, True),  # …unless that alone took too long
        (1.5, 0.5, 10, 1000, 10.0, False),  # half a second is too little to conclude from
        (2.0, 1.0, 10, 1000, 10.0, True),
        (2.0, 1.0, 10, 70, 10.0, False),
        (9.9, 8.9, 100, 1, 10.0, False),
        (8.0, 7.0, 70, 30, 10.0, False),  # eleven seconds, and more than half of them are over
        (8.0, 7.0, 70, 60, 10.0, True),
        (12.0, 11.0, 100, 0, 10.0, False),  # what is over is not stopped
    ],
)
def test_when_a_pass_is_seen_to_be_too_long(gone, timed, samples, left, seconds, late):
    assert PassPace(gone, timed, samples, left).ends_after(seconds) is late


def run(watch: PassWatch, rows: int, *per_row: float) -> None:
    """Batches of ten rows, each with its pace; or all with one."""
    watch(Started("", rows))
    for pace in per_row if len(per_row) > 1 else per_row * (rows // 10):
        CLOCK.now += 10 * pace
        watch(Advanced("", 10))


def test_a_pass_in_time_is_left_alone():
    run(PassWatch(1, 10.0), 100, 0.09)
    assert CLOCK.now == pytest.approx(1009)


def test_a_slow_pass_is_stopped_early_and_its_length_is_told():
    with pytest.raises(TooSlowError) as stopped:
        run(PassWatch(2, 10.0), 1000, 0.1)
    assert CLOCK.now - 1000 < 3
    error = pickle.loads(pickle.dumps(stopped.value))  # as other processes get it
    assert (error.position, error.seconds, error.needed) == (2, 10.0, pytest.approx(100))
    assert str(error) == "about 1 min 40 s over the train samples, for which there are 10 s"


def test_a_pass_that_slows_down_is_stopped_on_the_way():
    with pytest.raises(TooSlowError):
        run(PassWatch(1, 10.0), 100, *[0.05] * 4, *[0.4] * 6)
    assert CLOCK.now - 1000 < 10 + 4


def test_without_time_only_what_the_cache_has_is_taken():
    PassWatch(1, 0.0)(Started("", 100, rows_done=100))
    with pytest.raises(TooSlowError, match="longer over the train samples, for which there are 0 s"):
        PassWatch(1, -1.0)(Started("", 100, rows_done=99))


def test_one_more_pass_where_it_ends_in_time():
    watch = PassWatch(1, 10.0)
    CLOCK.now += 4.0
    assert watch.allows_another(1)
    CLOCK.now += 4.0
    assert not watch.allows_another(2)
