from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hubscout.errors import RunError
from hubscout.runs.files import (
    append_line,
    read_lines,
    temporary_file,
    why_not_written,
    write_atomically,
    write_lines,
)


@pytest.mark.parametrize("content", ["new ä", "new ä".encode(), lambda path: path.write_text("new ä", "utf-8")])
def test_text_bytes_and_functions_are_written(tmp_path: Path, content: object) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomically(path, content)  # type: ignore[arg-type]
    assert path.read_text("utf-8") == "new ä"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "ranking.json"
    path.write_text("old")

    def break_off(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(path, break_off)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_temporary_file_that_was_renamed_stays(tmp_path: Path) -> None:
    with temporary_file(tmp_path / "step") as temporary:
        temporary.write_text("whole")
        temporary.replace(tmp_path / "step-abc")
    assert [path.name for path in tmp_path.iterdir()] == ["step-abc"]


def test_a_full_disk_is_called_that_however_it_is_told() -> None:
    room = f"no room on the disk ({os.strerror(errno.ENOSPC)})"
    assert why_not_written(OSError(errno.ENOSPC, "anything")) == room
    assert why_not_written(RuntimeError("I/O error: No space left on device (os error 28)")) == room
    hidden = RuntimeError("PytorchStreamWriter failed writing file")  # as torch does
    hidden.__context__ = OSError(errno.ENOSPC, "full")
    assert why_not_written(hidden) == room
    assert why_not_written(ValueError("two\nlines")) == "two lines"


def test_runs_needs_no_torch() -> None:
    code = (
        "import importlib, pkgutil, sys, hubscout.runs as runs\n"
        "for module in pkgutil.iter_modules(runs.__path__): importlib.import_module(f'hubscout.runs.{module.name}')\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'timm', 'transformers'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


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
