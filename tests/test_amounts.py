from __future__ import annotations

import pytest

from hubscout.amounts import parse_count, parse_limit, parse_seconds
from hubscout.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5 h", 5400),
        ("2 min 5 sec", 125),
        (7, 7),
        ("20ms", 0.02),
        ("1s 500 ms", 1.5),
        ("30d", 2_592_000),
        ("1 week", 604_800),
    ],
)
def test_times(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "ten minutes", "5 parsecs", "-3s", 0, "0s", float("inf"), True, "1h!"])
def test_times_that_are_none(text: str | float) -> None:
    with pytest.raises(InputError, match="max_latency must be"):
        parse_seconds(text, "max_latency")


@pytest.mark.parametrize(("value", "count"), [("2k", 2000), ("1.5M", 1_500_000), (300, 300), ("300", 300), (2e3, 2000)])
def test_limits(value: float | str, count: int) -> None:
    assert parse_limit(value) == count


@pytest.mark.parametrize("value", ["1", 1, 0, -5, "2.5", 2.5, "many", "", True, "10%", float("nan")])
def test_limits_that_are_none(value: float | str) -> None:
    with pytest.raises(InputError, match="limit must be a"):
        parse_limit(value)


def test_counts_name_what_they_are_for() -> None:
    assert parse_count("1.5G", "max_flops") == 1.5e9
    with pytest.raises(InputError, match=r"max_params must be a number such as 300, 10M or 1\.5G, not 'ten'"):
        parse_count("ten", "max_params")
