"""Records are of a known version, and hold what their dataclass says."""

from dataclasses import dataclass

import pytest

from hubscout.errors import RunError
from hubscout.runs.files import read_json
from hubscout.runs.record_types import MIGRATIONS, in_version, record_of, write_record


@dataclass(frozen=True)
class Note:
    text: str
    tags: tuple[str, ...] = ()


def test_what_is_written_is_read_and_fields_of_others_are_left_out(tmp_path) -> None:
    write_record(tmp_path / "note.json", "note", 1, {"text": "Käse", "tags": ["a", "b"], "later": 3})
    told = in_version(read_json(tmp_path / "note.json"), "note", 1, origin="it")
    assert record_of(Note, told, "it") == Note("Käse", ("a", "b"))


@pytest.mark.parametrize(
    ("told", "words"), [({"text": 3}, "it.text must be str, not 3"), ({"tags": []}, "it cannot be read: .*text")]
)
def test_what_is_wrong_is_named(told, words) -> None:
    with pytest.raises(RunError, match=words):
        record_of(Note, told, "it")


def test_older_versions_go_through_every_migration_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIGRATIONS, ("x", 1), lambda record: {**record, "seen": [1]})
    monkeypatch.setitem(MIGRATIONS, ("x", 2), lambda record: {**record, "seen": [*record["seen"], 2]})
    found = in_version({"format": "x", "version": 1}, "x", 3, origin="it")
    assert found == {"format": "x", "version": 3, "seen": [1, 2]}
    with pytest.raises(RunError, match="version 0 of the format"):
        in_version({"format": "x", "version": 0}, "x", 3, origin="it")
