from __future__ import annotations

import io
import os
import re
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from hubscout.runs.display import LineDisplay, display, shown
from hubscout.runs.events import (
    Advanced,
    Downloading,
    Event,
    Finished,
    Message,
    Observer,
    Progress,
    Started,
    Validated,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def extraction(observer: Observer) -> None:
    for event in (Started("test/conv", 700), Advanced("test/conv", 700), Finished("test/conv", 0.4)):
        observer(event)


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with display(["test/conv", "b"], stream=stream) as observer:
        extraction(observer)
        observer(Message("b", "out of memory"))
        observer(Finished("b", 0.0, error="no such model"))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[1/2] test/conv: 700 samples"
    assert re.fullmatch(r"\[1/2\] test/conv: done in \d+\.\d s", lines[1])
    assert lines[2:] == ["[2/2] b: out of memory", "[2/2] b: failed: no such model"]
    assert "\x1b" not in stream.getvalue()


LONG = "python:/home/ann/projects/zoo/networks.py:build?name={}&pixels=128"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_models_are_called_what_the_table_calls_them(kind: type[io.StringIO]) -> None:
    stream, models = kind(), [LONG.format("vgg"), LONG.format("resnet"), "timm/resnet"]
    with display(models, stream=stream) as observer:
        for model in models:
            observer(Started(model, 10))
            observer(Message(model, "is here"))
            observer(Finished(model, 1.0, error="no such model"))
        observer(Message("runs/a", "1 finished model is there already"))
    text = stream.getvalue()
    assert "/home/ann" not in text
    for name in ("vgg", "resnet?pixels=128", "resnet"):
        assert f"{name}: is here" in text
        assert f"{name}: failed: no such model" in text
    assert "runs/a: 1 finished model is there already" in text


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_model_over_the_limits_has_not_failed(kind: type[io.StringIO]) -> None:
    stream = kind()
    with display(["a"], stream=stream) as observer:
        observer(Finished("a", 0.0, error="25.6M parameters, of at most 10M", cause="over the limits"))
    assert "a: over the limits: 25.6M parameters, of at most 10M" in stream.getvalue()
    assert "failed" not in stream.getvalue()


def test_lines_say_speed_and_time_left() -> None:
    stream = io.StringIO()
    observer = LineDisplay(stream, ["a"], seconds_between=0.0)
    for event in (Started("a", 100, 40), Advanced("a", 30)):
        observer(event)
    first, second = stream.getvalue().splitlines()
    assert first == "[1/1] a: 100 samples, 40 of them cached"
    assert re.fullmatch(r"\[1/1\] a: 70/100 samples, [\d.]+/s, \d+ s left", second)


def test_a_run_that_is_made_shorter_has_less_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("hubscout.runs.display.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    observer = LineDisplay(stream, seconds_between=0.0)
    for step, steps in ((1, 100), (11, 100), (31, 41), (41, 41)):
        clock[0] = float(step)
        observer(Progress("", step, steps, 1.0, {"task": 0.5}, 0.1, 32.0))
    told = [line.rpartition("samples/s")[2] for line in stream.getvalue().splitlines()]
    assert told == ["", ", 89 s left", ", 10 s left", ""]  # at the last step nothing is left


def test_models_that_take_minutes_have_a_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: clock[0])
    stream = Terminal()
    with display(["a", "b", "c"], stream=stream) as observer:
        for model in "ab":
            observer(Started(model, 100))
            clock[0] += 100.0
            observer(Finished(model, 100.0))
        observer(Started("c", 100))
    models = [line for line in stream.getvalue().splitlines() if "models" in line and "2/3" in line]
    assert "01:40" in models[-1]


def test_bars_on_a_terminal() -> None:
    stream = Terminal()
    with display(["test/conv"], stream=stream) as observer:
        observer(Message("test/conv", "a [message] with brackets"))
        extraction(observer)
        observer(Finished("x", 1.0, error="broken"))
    text = stream.getvalue()
    assert "\x1b" in text
    assert "a [message] with brackets" in text
    assert "x: failed: broken" in text
    assert "models" in text


def test_quiet_says_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        with display(["test/conv"], quiet=True, stream=stream) as observer:
            extraction(observer)
        assert stream.getvalue() == ""


def test_downloads_are_lines_or_a_bar() -> None:
    stream = io.StringIO()
    with display(["test/conv"], stream=stream) as observer:
        for done in (0, 1_000_000, 346_000_000):
            observer(Downloading("hf/a/b", done, 346_000_000))
    assert stream.getvalue().splitlines() == [
        "[1/1] hf/a/b: downloading 346 MB",
        "[1/1] hf/a/b: downloaded 346 MB in 0 s",
    ]
    screen = Terminal()
    with display(["test/conv"], stream=screen) as observer:
        for done in (0, 100_000_000, 346_000_000):
            observer(Downloading("hf/a/b", done, 346_000_000))
            time.sleep(0.15)
        observer(Started("hf/a/b", 10))
        observer(Downloading("hf/a/b", 5, 10))  # by another machine
        observer(Advanced("hf/a/b", 10))
    assert "hf/a/b: download, MB" in screen.getvalue()
    assert "100/346" in screen.getvalue()


def tuning(observer: Observer) -> None:
    losses = {"task": 1.25, "teachers": 0.5}
    for event in (
        Message("", "micro-batches of [4]"),
        Progress("", 10, 100, 1.0, losses, 0.01, 250.0),
        Progress("", 20, 100, 2.0, losses, 0.01, 250.0),
        Validated("", 20, 2.0, {"accuracy": 0.5}, True),
        Finished("", 12.3, steps=100),
    ):
        observer(event)


def test_a_tuning_is_told_under_its_title() -> None:
    stream = io.StringIO()
    with display(title="fine-tune", stream=stream) as observer:
        tuning(observer)
    assert stream.getvalue().splitlines() == [
        "fine-tune: micro-batches of [4]",
        "fine-tune: step 10/100: loss 1.750 (task 1.250, teachers 0.500), 250 samples/s",
        "fine-tune: epoch 2.0: validation accuracy 50.0% (best)",
        "fine-tune: 100 steps in 12 s",
    ]


def test_a_tuning_that_starts_anew_counts_anew() -> None:
    stream = io.StringIO()
    observer = LineDisplay(stream, title="kd", seconds_between=0.0)
    for step in (50, 60, 1, 2):
        observer(Progress("", step, 100, 0.0, {"task": 1.0}, 0.01, 9.0))
    assert not re.search(r"-\d+ s left", stream.getvalue())
    assert stream.getvalue().count("s left") == 2


def test_a_tuning_is_a_bar_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    screen = Terminal()
    with display(title="fine-tune", stream=screen) as observer:
        tuning(observer)
    text = screen.getvalue()
    assert "micro-batches of [4]" in text
    assert "models" not in text
    last = text.rstrip().splitlines()[-2]
    assert "fine-tune" in last
    assert "20/100" in last
    assert "loss 1.750" in last


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Standard error is a terminal; gives what it shows."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as screen, redirect_stderr(screen):

        def read() -> str:
            """All of it: a terminal hands over some kilobytes at a time, and a moving bar writes more meanwhile."""
            screen.flush()
            said, wait = b"", 0.2
            while len(said) < 1 << 20 and select.select([ours], [], [], wait)[0]:
                said, wait = said + os.read(ours, 1 << 16), 0.02
            return said.decode(errors="replace")

        yield read
    os.close(ours)


def test_a_call_in_python_shows_progress_in_a_terminal() -> None:
    with terminal() as read:
        with shown(None, True, ["test/conv"], notes=["the list 'small'"]) as observer:
            assert observer is not None
            extraction(observer)
        said = read()
    assert "the list 'small'" in said
    assert "models" in said


def test_who_has_an_observer_or_wants_none_or_is_not_the_first_process_sees_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Event] = []
    with terminal() as read:
        with shown(heard.append, True) as observer:
            assert observer is not None
            extraction(observer)
        with shown(None, False) as observer:
            assert observer is None
        monkeypatch.setenv("RANK", "1")
        with shown(None, True) as observer:
            assert observer is None
        assert read() == ""
    assert len(heard) == 3


def test_a_log_file_is_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(None, True) as observer:
        assert observer is None
    assert capsys.readouterr() == ("", "")


def test_a_tuning_in_python_shows_its_progress() -> None:
    with terminal() as read, shown(None, True, title="tuning") as observer:
        assert observer is not None
        tuning(observer)
        assert "micro-batches of [4]" in read()


@pytest.mark.slow
def test_a_notebook_has_lines() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    code = """
from hubscout.runs.display import shown
from hubscout.runs.events import Finished, Started
with shown(None, True, ["test/conv"]) as observer:
    observer(Started("test/conv", 700))
    observer(Finished("test/conv", 0.4))
"""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(book, timeout=60).execute()
    outputs = book.cells[0].outputs
    assert {output["name"] for output in outputs} == {"stdout"}, outputs
    assert (
        "".join(output["text"] for output in outputs)
        == "[1/1] test/conv: 700 samples\n[1/1] test/conv: done in 0.4 s\n"
    )
