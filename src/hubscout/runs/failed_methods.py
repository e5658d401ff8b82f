"""Methods of a comparison that could not be run, with their reasons: for the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hubscout.runs.files import read_json
from hubscout.runs.record_types import converted, in_version, write_record
from hubscout.runs.run_folder import FAILED_METHODS

FORM = "hubscout-failed-methods"
VERSION = 1


def write_failed_methods(folder: Path, failures: Mapping[str, str]) -> None:
    """Write method → reason in place of what the folder has; nothing is left where all could be run."""
    path = folder / FAILED_METHODS
    if failures:
        write_record(path, FORM, VERSION, {"failures": dict(failures)})
    else:
        path.unlink(missing_ok=True)


def read_failed_methods(folder: Path) -> Mapping[str, str]:
    """Method → reason; empty where the folder names none. A `RunError` says what is wrong with the file."""
    path = folder / FAILED_METHODS
    if not path.is_file():
        return {}
    record = in_version(read_json(path), FORM, VERSION, origin=str(path))
    found: Mapping[str, str] = converted(Mapping[str, str], record.get("failures"), f"{path}: failures")
    return found
