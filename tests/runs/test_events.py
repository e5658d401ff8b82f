from __future__ import annotations

import pickle

from hubscout.runs.events import Downloading, Event, Log, Message, Raced, Validated, metrics_text, speed_text


def test_events_come_out_of_a_pickle_as_they_went_in():
    events = [Downloading("a", 1, 2), Message("a", "b"), Raced("", {"event": "race"})]
    assert pickle.loads(pickle.dumps(events)) == events


def test_a_log_passes_messages_on_and_keeps_them():
    heard: list[Event] = []
    log = Log("a", heard.append)
    log.tell("a sample is skipped")
    assert heard == [Message("a", "a sample is skipped")]
    assert log.messages == ["a sample is skipped"]


def test_a_validation_says_whether_it_is_the_best():
    metrics = {"accuracy": 0.5, "f1": 0.25}
    assert metrics_text(Validated("", 1, 0.5, metrics, True)) == "validation accuracy 50.0%, f1 0.2500 (best)"
    assert not metrics_text(Validated("", 1, 0.5, metrics, False)).endswith("(best)")


def test_slow_downloads_are_told_in_kilobytes():
    assert (speed_text(99_000.0), speed_text(2_340_000.0)) == ("99 kB/s", "2.3 MB/s")
