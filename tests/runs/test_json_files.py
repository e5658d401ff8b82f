from __future__ import annotations

import json

import pytest

from hubscout.errors import RunError
from hubscout.runs.json_files import append_line, read_lines, write_lines

FIRST, SECOND, THIRD = {"n": 1, "text": "ä{}"}, {"n": 2, "inner": {"a": [1, 2]}}, {"n": 3}


def test_what_is_appended_is_read(tmp_path):
    path = tmp_path / "new" / "lines.jsonl"
    assert read_lines(path) == []
    append_line(path, FIRST)
    append_line(path, SECOND)
    assert read_lines(path) == [FIRST, SECOND]


def test_a_kill_at_any_byte_costs_the_line_that_was_being_written_and_no_other(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_line(path, FIRST)
    before = path.stat().st_size
    append_line(path, SECOND)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = [record for record, end in ((FIRST, before), (SECOND, len(whole))) if size >= end - 1]
        assert read_lines(path) == kept, size
        append_line(path, THIRD)
        assert read_lines(path) == [*kept, THIRD], size
        assert [json.loads(line) for line in path.read_text().splitlines()] == [*kept, THIRD], size


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"n": 1}\n{"n": \n{"n": 3}\n')
    with pytest.raises(RunError, match=r"lines\.jsonl, line 2, is no JSON object"):
        read_lines(path)


def test_watchers_pass_over_what_is_broken(tmp_path):
    path = tmp_path / "lines.jsonl"
    assert read_lines(path, tolerant=True) == []
    path.write_bytes(b'{"n": 1}\nnot json\n\n[2]\n\xff\n{"n": 3}\n{"n":')
    assert read_lines(path, tolerant=True) == [{"n": 1}, {"n": 3}]
    with pytest.raises(RunError, match="line 2, is no JSON object"):
        read_lines(path)


def test_a_file_is_replaced_by_records(tmp_path):
    path = tmp_path / "lines.jsonl"
    append_line(path, FIRST)
    write_lines(path, [SECOND, THIRD])
    assert read_lines(path) == [SECOND, THIRD]
