from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pytest

from hubscout.interrupts import starting_processes, uninterrupted

Press = Callable[[], None]
Block = Callable[[], AbstractContextManager[None]]
blocks = pytest.mark.parametrize("block", [uninterrupted, starting_processes])


@pytest.fixture(autouse=True)
def _ctrl_c_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


@pytest.fixture(params=["this thread", "another thread"])
def press(request: pytest.FixtureRequest) -> Iterator[Press]:
    """Ctrl-C, which the system gives to any thread that has not blocked it."""
    if request.param == "this thread":
        yield lambda: signal.raise_signal(signal.SIGINT)
        return
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result()  # it has started, so that it blocks nothing
        yield lambda: other.submit(signal.raise_signal, signal.SIGINT).result()


@blocks
def test_ctrl_c_waits_for_the_end_of_the_block(block: Block, press: Press) -> None:
    steps = []

    def save() -> None:
        with block():
            press()
            steps.append("whole")
        steps.append("after")

    with pytest.raises(KeyboardInterrupt):
        save()
    assert steps == ["whole"]


@blocks
def test_without_it_nothing_happens(block: Block) -> None:
    with block():
        pass


def test_a_second_one_does_not_wait(press: Press) -> None:
    steps = []

    def save() -> None:
        with uninterrupted():
            press()
            steps.append("once")
            press()
            steps.append("twice")

    with pytest.raises(KeyboardInterrupt):
        save()
    assert steps == ["once"]


@blocks
def test_it_is_not_lost_where_the_block_fails(block: Block, press: Press) -> None:
    def save() -> None:
        with block():
            press()
            raise OSError("no room")

    with pytest.raises(KeyboardInterrupt) as caught:
        save()
    assert isinstance(caught.value.__context__, OSError)


@blocks
def test_who_ignores_it_goes_on_doing_so(block: Block, press: Press) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with block():
        press()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


@blocks
def test_in_another_thread_there_is_nothing_to_keep(block: Block) -> None:
    def run() -> str:
        with block():
            return "done"

    with ThreadPoolExecutor(1) as other:
        assert other.submit(run).result() == "done"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="nothing is inherited there")
def test_processes_that_start_there_do_not_hear_of_it() -> None:
    code = "import signal; signal.raise_signal(signal.SIGINT); print('goes on')"
    with starting_processes():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
