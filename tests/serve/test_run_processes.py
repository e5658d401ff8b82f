import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hubscout.serve.run_processes import LOG, NOTE, Started, begins_at, read_note, start, was_running_at

SLEEPER = [sys.executable, "-c", "import sys, time; print('here', flush=True); time.sleep(60)", "hubscout", "rank"]


def wait_until_over(started: Started) -> None:
    deadline = time.monotonic() + 120
    while started.running:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_started_known_again_and_stopped(tmp_path: Path) -> None:
    started = start(SLEEPER, tmp_path, {"name": "x"})
    while not (tmp_path / LOG).read_text():
        time.sleep(0.02)
    assert os.getpgid(started.pid) == started.pid != os.getpgid(0)
    again = read_note(tmp_path)
    assert again == started
    assert again is not None
    assert again.running
    assert again.stop()
    wait_until_over(started)
    assert "KeyboardInterrupt" in (tmp_path / LOG).read_text()
    assert not started.stop()


def test_a_process_that_does_not_answer_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUBSCOUT_TOKEN", "a token that stays here")
    deaf = (
        "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "print(os.environ.get('HUBSCOUT_TOKEN'), flush=True); time.sleep(60)"
    )
    started = start([sys.executable, "-c", deaf, "hubscout", "rank"], tmp_path, {})
    while not (tmp_path / LOG).read_text():
        time.sleep(0.02)
    assert (tmp_path / LOG).read_text() == "None\n"
    assert started.stop()
    time.sleep(0.2)
    assert started.running
    assert started.stop(force=True)
    wait_until_over(started)


def test_a_zombie_is_not_running(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    created = psutil.Process(child.pid).create_time()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not begins_at(child.pid, created)
    child.wait()


def test_another_process_with_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    mine = psutil.Process().create_time()
    assert begins_at(os.getpid(), mine)
    assert not begins_at(os.getpid(), mine - 100)
    assert was_running_at(os.getpid(), mine + 1)
    assert not was_running_at(os.getpid(), mine - 100)
    assert not begins_at(1, psutil.Process(1).create_time())


def test_a_note_from_elsewhere_stops_nothing(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    created = psutil.Process(other.pid).create_time()
    for host, pid in ((platform.node(), other.pid), ("another machine", other.pid)):
        note = {"format": "hubscout-serve", "version": 1, "pid": pid, "created": created, "host": host, "request": {}}
        (tmp_path / NOTE).write_text(json.dumps(note))
        found = read_note(tmp_path)
        assert found is not None
        assert not found.stop(force=True)
    assert other.poll() is None
    other.kill()
    other.wait()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "hubscout-serve", "pid": "x"}', "\x00", "null"])
def test_a_note_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    assert read_note(tmp_path) is None
