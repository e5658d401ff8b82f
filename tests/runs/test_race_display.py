"""Where a race stands, as a terminal and a log show it."""

from __future__ import annotations

import io
import json

import pytest

from hubscout.runs.display import display
from hubscout.runs.events import Raced
from hubscout.runs.race_display import race_line, race_status, race_table
from hubscout.runs.race_record import RaceRecord
from race_lines import LINES, START, A, after, look


def test_where_the_race_stands_in_a_sentence() -> None:
    said = [race_status(after(count)) for count in (0, 3, 5, 7, 8)]
    assert said == [
        "The evidence of the models is being found.",
        "Rung 1 of 2, 15 steps: 2 of 3 arms seen.",
        "Rung 2 of 2, 45 steps: 0 of 1 arms seen.",
        "b at 0.01 leads and is tuned to its end.",
        "The race is over: b at 0.01.",
    ]


def test_a_race_that_passes_over_its_first_rung_names_the_one_that_is_run() -> None:
    record = RaceRecord()
    record.take({**START, "field": {"widths": [0, 2, 1]}})
    assert race_status(record) == "Rung 2 of 2, 45 steps: 0 of 2 arms seen."
    record.take(look(A, 1, 0.5))
    assert race_status(record) == "Rung 2 of 2, 45 steps: 1 of 2 arms seen."


def test_lines_for_a_log() -> None:
    record, said = RaceRecord(), []
    for line in LINES:
        record.take(line)
        said.append(race_line(line, record))
    assert said[1] == "timm/a at 0.01: 50.0% after 15 steps"
    assert said[3] == "timm/c at 0.01: At step 3 the loss became NaN."
    assert said[4] == "after 15 steps 1 of 3 arms go on, timm/b at 0.01 first"


def test_lines_call_long_models_what_the_table_calls_them() -> None:
    record, said = RaceRecord(), []
    long = json.loads(json.dumps(LINES).replace("timm/", "python:/home/ann/networks.py:build?pixels=128&name="))
    for line in long:
        record.take(line)
        said.append(race_line(line, record))
    assert said[1] == "a at 0.01: 50.0% after 15 steps"
    assert said[4] == "after 15 steps 1 of 3 arms go on, b at 0.01 first"


def test_a_table_of_arms_by_rung_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with display(["a", "b", "c"], title="race", stream=stream) as observer:
        for line in LINES:
            observer(Raced("", line))
    text = stream.getvalue()
    assert "15 steps" in text
    assert "out after 15 steps" in text
    assert "80.0%" in text
    monkeypatch.setattr("hubscout.runs.race_display.MOST_ARMS", 1)
    assert len(race_table(after(8)).rows) == 2  # the rest is counted
