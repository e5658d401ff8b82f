from __future__ import annotations

import io
import re
import time
from typing import Any

from hubscout.features import display, extract
from hubscout.features.progress import Advanced, Downloading, Finished, Message, Started
from hubscout.features.progress_display import LineDisplay


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_where_there_is_no_terminal(backbone: Any, task: Any) -> None:
    stream = io.StringIO()
    with display(2, stream=stream) as observer:
        extract(backbone, task, device="cpu", observer=observer)
        observer(Message("b", "out of memory"))
        observer(Finished("b", 0.0, error="no such model"))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[1/2] test/conv: 700 samples"
    assert re.fullmatch(r"\[1/2\] test/conv: done in \d+\.\d s", lines[1])
    assert lines[2:] == ["[2/2] b: out of memory", "[2/2] b: failed: no such model"]
    assert "\x1b" not in stream.getvalue()


def test_lines_say_speed_and_time_left() -> None:
    stream = io.StringIO()
    observer = LineDisplay(stream, 1, seconds_between=0.0)
    for event in (Started("a", 100, 40), Advanced("a", 30)):
        observer(event)
    first, second = stream.getvalue().splitlines()
    assert first == "[1/1] a: 100 samples, 40 of them cached"
    assert re.fullmatch(r"\[1/1\] a: 70/100 samples, [\d.]+/s, \d+ s left", second)


def test_bars_on_a_terminal(backbone: Any, task: Any) -> None:
    stream = Terminal()
    with display(1, stream=stream) as observer:
        observer(Message("test/conv", "a [message] with brackets"))
        extract(backbone, task, device="cpu", observer=observer)
        observer(Finished("x", 1.0, error="broken"))
    text = stream.getvalue()
    assert "\x1b" in text
    assert "a [message] with brackets" in text
    assert "x: failed: broken" in text
    assert "models" in text


def test_quiet_says_nothing(backbone: Any, task: Any) -> None:
    for stream in (io.StringIO(), Terminal()):
        with display(1, quiet=True, stream=stream) as observer:
            extract(backbone, task, device="cpu", observer=observer)
        assert stream.getvalue() == ""


def test_downloads_are_lines_or_a_bar() -> None:
    stream = io.StringIO()
    with display(1, stream=stream) as observer:
        for done in (0, 1_000_000, 346_000_000):
            observer(Downloading("hf/a/b", done, 346_000_000))
    assert stream.getvalue().splitlines() == [
        "[1/1] hf/a/b: downloading 346 MB",
        "[1/1] hf/a/b: downloaded 346 MB in 0 s",
    ]
    screen = Terminal()
    with display(1, stream=screen) as observer:
        for done in (0, 100_000_000, 346_000_000):
            observer(Downloading("hf/a/b", done, 346_000_000))
            time.sleep(0.15)
        observer(Started("hf/a/b", 10))
        observer(Downloading("hf/a/b", 5, 10))  # by another machine
        observer(Advanced("hf/a/b", 10))
    assert "hf/a/b: download, MB" in screen.getvalue()
    assert "100/346" in screen.getvalue()
