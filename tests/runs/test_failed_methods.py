"""Methods of a comparison that could not be run, written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubscout.errors import RunError
from hubscout.runs.failed_methods import read_failed_methods, write_failed_methods
from hubscout.runs.run_folder import FAILED_METHODS


def test_what_is_written_is_read_and_goes_where_nothing_failed(tmp_path: Path) -> None:
    assert read_failed_methods(tmp_path) == {}
    write_failed_methods(tmp_path, {"zoo": "needs one architecture"})
    assert read_failed_methods(tmp_path) == {"zoo": "needs one architecture"}
    write_failed_methods(tmp_path, {})
    assert not (tmp_path / FAILED_METHODS).exists()


@pytest.mark.parametrize("change", [('"words"', "3"), ('"failures"', '"others"'), (": 1", ": 9")])
def test_a_damaged_file_is_named(tmp_path: Path, change: tuple[str, str]) -> None:
    write_failed_methods(tmp_path, {"zoo": "words"})
    path = tmp_path / FAILED_METHODS
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(RunError, match=FAILED_METHODS):
        read_failed_methods(tmp_path)
