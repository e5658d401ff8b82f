"""Known results of fine-tuning, as a file that people write or `hubscout reference` makes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from hubscout.errors import InputError, RunError
from hubscout.runs.json_files import parse_json, read_whole
from hubscout.runs.record_types import is_number

_MODEL_COLUMNS = ("model", "identifier", "name")
_VALUE_COLUMNS = ("accuracy", "score", "value", "metric", "result", "test", "mean")


def read_reference(path: Path) -> dict[str, float]:
    """Known results: a JSON object of model: value, or a CSV with a column of models and one of values."""
    if not path.is_file():
        raise InputError(f"reference: there is no file {path}.")
    try:
        text = read_whole(path).decode("utf-8")
        pairs = _from_json(text, path) if path.suffix.lower() == ".json" else _from_csv(text, path)
    except UnicodeDecodeError as error:
        raise InputError(f"reference: {path} is not text in UTF-8.") from error
    found: dict[str, float] = {}
    for name, value in pairs:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"reference: {path} has {value!r:.60} for {name}, which is not a number.") from None
        if not is_number(number):
            raise InputError(f"reference: {path} has {value!r:.60} for {name}; finite numbers are needed.")
        if name in found:
            raise InputError(f"reference: {path} names {name} twice.")
        found[name] = number
    if not found:
        raise InputError(f"reference: {path} holds no results.")
    return found


def _from_json(text: str, path: Path) -> list[tuple[str, Any]]:
    try:
        record = parse_json(text.encode(), origin=f"reference: {path}")
    except RunError as error:
        raise InputError(str(error)) from error
    if not isinstance(record, dict):
        raise InputError(f"reference: {path} must be an object of model: value, not {type(record).__name__}.")
    return list(record.items())


def _from_csv(text: str, path: Path) -> list[tuple[str, Any]]:
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise InputError(f"reference: {path} is not CSV: {error}.") from error
    heads = [head for head in rows[0] if head is not None] if rows else []
    model = next((head for name in _MODEL_COLUMNS for head in heads if head.strip().lower() == name), None)
    value = next((head for name in _VALUE_COLUMNS for head in heads if head.strip().lower() == name), None)
    if value is None and model is not None and len(heads) == 2:
        value = next(head for head in heads if head != model)
    if model is None or value is None:
        raise InputError(
            f"reference: {path} needs a column {' or '.join(_MODEL_COLUMNS)} and a column "
            f"{' or '.join(_VALUE_COLUMNS)}; it has {', '.join(heads) or 'no header'}."
        )
    return [((row[model] or "").strip(), row[value]) for row in rows]
