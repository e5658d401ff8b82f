"""A ranking on disk (`ranking.json` has all, `scores.parquet` the table), and known results to compare it with."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import HubscoutError, InputError, RunError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.runs.files import parse_json, read_json, read_whole, write_atomically
from hubscout.runs.ranking import Ranking
from hubscout.runs.record_types import converted, hints, in_version, is_number
from hubscout.runs.row import Row
from hubscout.runs.run_folder import RANKING, SCORES

FORM = "hubscout-ranking"
VERSION = 2


def to_json(ranking: Ranking) -> dict[str, Any]:
    """The ranking as plain JSON values; what `--json` prints and `ranking.json` holds."""
    return json.loads(_text(ranking))


def _text(ranking: Ranking, indent: int | None = None) -> str:
    rows = [{**vars(row), "best_layer": row.best_layer and row.best_layer.name} for row in ranking.rows]
    record = {
        "format": FORM,
        "version": VERSION,
        **{part.name: getattr(ranking, part.name) for part in fields(ranking) if part.name != "rows"},
        "rows": rows,
        "tied_with_best": ranking.tied_with_best,
        "pairwise": {
            "models": [row.identifier for row in ranking.compared],
            "p_row_better_than_column": ranking.pairwise(),
        },
    }
    return json.dumps(record, indent=indent, allow_nan=False, default=_plain)


def from_json(record: Any, *, origin: str = "this record", allow_code: bool = False) -> Ranking:
    """The inverse of `to_json`. The models are named by `origin`, which opens no code unless `allow_code` says so."""
    return Ranking(**check_record(record, origin=origin, allow_code=allow_code))


def check_record(record: Any, *, origin: str, allow_code: bool = False) -> dict[str, Any]:
    """The fields of the ranking that a record holds; a `RunError` that names what is wrong with it."""
    record = in_version(record, FORM, VERSION, origin=origin)
    try:
        kinds = {name: kind for name, kind in hints(Ranking).items() if name != "rows"}
        found = {name: converted(kind, record[name], f"{origin}.{name}") for name, kind in kinds.items()}
        found["rows"] = tuple(_row(entry, f"{origin}.rows[{place}]") for place, entry in enumerate(record["rows"]))
        if not found["metrics"]:
            raise RunError(f"{origin} names no metric.")
        if len({row.identifier for row in found["rows"]}) < len(found["rows"]):
            raise RunError(f"{origin} has a model in two rows.")
        if not allow_code:
            for name in ("rows", "failures"):
                found[name] = tuple(
                    replace(one, identifier=IdentifierFromFile(one.identifier, origin)) for one in found[name]
                )
            found["stages"] = tuple(
                replace(stage, models=tuple(IdentifierFromFile(model, origin) for model in stage.models))
                for stage in found["stages"]
            )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, HubscoutError):
            raise
        raise RunError(f"{origin} lacks a field or has one too many, or one of another form: {error}.") from error
    return found


def check_row(row: Row) -> None:
    """A `RunError` that names the field, where a row cannot be written and read again."""
    try:
        _row(json.loads(json.dumps(row, default=_plain)), "row")
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"The row cannot be written: {error}") from error


def _row(entry: dict[str, Any], place: str) -> Row:
    row: Row = converted(Row, {name: value for name, value in entry.items() if name != "best_layer"}, place)
    if len(row.block_scores) != len(row.block_sizes):
        raise ValueError(f"{len(row.block_scores)} block_scores for {len(row.block_sizes)} block_sizes")
    if row.convergence is not None:
        row.convergence.check_lengths()
    return row


def save_ranking(ranking: Ranking, folder: Path, *, more_to_come: bool = False) -> Path:
    """Write the ranking into `folder`, each file at once; returns the path of `ranking.json`.

    Where there is `more_to_come` that file alone is written, in long lines: it holds everything, and what is written
    after each of hundreds of models must be cheap.
    """
    path = folder / RANKING
    write_atomically(path, strip_credentials(_text(ranking, indent=None if more_to_come else 1)))
    if not more_to_come:
        _save_table(ranking, folder / SCORES)
    return path


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return vars(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a saved ranking.")


def _save_table(ranking: Ranking, path: Path) -> None:
    try:
        import pyarrow.json
        import pyarrow.parquet
    except ModuleNotFoundError:
        return  # the JSON file holds everything; the table is for tools that like tables
    rows = [flatten(replace(row, identifier=strip_credentials(row.identifier))) for row in ranking.rows]
    names = dict.fromkeys(name for row in rows for name in row)
    table = pyarrow.table({name: _column([row.get(name) for row in rows]) for name in names})
    table = table.replace_schema_metadata({"hubscout-ranking": str(VERSION), "task": ranking.task.fingerprint})
    write_atomically(path, lambda temporary: pyarrow.parquet.write_table(table, temporary))


def import_for_table() -> None:
    """Import what saving a ranking takes, ahead of that."""
    with suppress(ImportError):
        import pyarrow.json
        import pyarrow.parquet  # noqa: F401


def flatten(row: Row) -> dict[str, Any]:
    """One row as a flat record for a table."""
    flat = {name: value for name, value in asdict(row).items() if not isinstance(value, Mapping | tuple)}
    record = {name: value for name, value in flat.items() if name not in {"dropped", "convergence", "profile"}}
    record["per_target"] = list(row.per_target)
    record["block_scores"] = list(row.block_scores)
    record["dropped_at"] = row.dropped.n if row.dropped else None
    record["best_layer"] = row.best_layer.name if row.best_layer else None
    for found in row.expected:
        record[f"expected:{found.metric}"] = found.value
        record.update({f"expected:{found.metric}:{end}": getattr(found, end) for end in ("low", "high", "guess")})
    record.update({f"score:{name}": value for name, value in row.scores.items()})
    record.update({f"standard_error:{name}": value for name, value in row.standard_errors.items()})
    record.update({f"card:{name}": value for name, value in row.card.items()})
    return record


def _column(values: list[Any]) -> Any:
    """The values as one column; as text where they are of several types or of none that Arrow has."""
    import pyarrow

    try:
        return _read_column(values) if all(map(_is_plain, values)) else pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError, UnicodeError):
        texts = [None if value is None else str(value).encode("utf-8", "replace").decode() for value in values]
        return _read_column(texts)


def _is_plain(value: Any) -> bool:
    """Whether JSON says all of a value: a text, a number, or a list of numbers."""
    if isinstance(value, list):
        return all(_is_plain(part) and not isinstance(part, str) for part in value)
    if isinstance(value, int | float):
        return abs(value) <= _EXACT  # neither infinite nor not a number
    return value is None or isinstance(value, str)


_EXACT = 1 << 53
"""Up to here all whole numbers are floats too."""


def _read_column(values: list[Any]) -> Any:
    """The column as Arrow reads it from JSON: to be given a list, it imports pandas."""
    import pyarrow
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    text = "\n".join(json.dumps({"value": value}) for value in values).encode()
    # Of texts that look like times Arrow would make times.
    kind = pyarrow.string() if any(isinstance(value, str) for value in values) else None
    schema = None if kind is None else pyarrow.schema([("value", kind)])
    whole = ReadOptions(use_threads=False, block_size=len(text) + 1)
    return read_json(io.BytesIO(text), whole, ParseOptions(explicit_schema=schema)).column("value")


def load_ranking(path: Path, *, allow_code: bool = False) -> Ranking:
    """Open a run folder or the `ranking.json` in it."""
    file = path / RANKING if path.is_dir() else path
    if not os.path.lexists(file):
        what = f"The folder {path} holds no {RANKING}" if path.is_dir() else f"There is no {path}"
        raise RunError(f"{what}: give the --out folder of a `hubscout rank`.")
    return from_json(read_json(file), origin=str(file), allow_code=allow_code)


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
