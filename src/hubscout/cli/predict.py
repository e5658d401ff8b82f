"""`hubscout predict`: what a tuned model says of inputs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.app import EXIT_SOME_FAILED
from hubscout.cli.output import Output, check_out, print_json, print_result, print_table, say
from hubscout.cli.values import split_list
from hubscout.errors import InputError, NothingReadableError, TaskError

if TYPE_CHECKING:
    from hubscout.runs.tuning_record import TuningRecord
    from hubscout.tasks.prediction_inputs import Inputs, Reader
    from hubscout.tuning import Tuned
    from hubscout.tuning.predictions import Predictions

app = typer.Typer(add_completion=False)

_FILES = {"image": "images", "audio": "sounds"}

LONGEST_TEXT = 40
"""Characters of a text that the table of predictions shows."""

PREDICT_EXAMPLES = """Examples:

hubscout predict my-model/ images/*.jpg

hubscout predict my-model/ flowers/test --out predictions.csv

hubscout predict my-model/ reviews.csv --text review --json

hubscout predict my-model/ --text "what a film" --text "never again"

hubscout predict my-model/ reviews.txt --json        # one text per line

Exit status: 0 fine, 3 some inputs could not be read (each is named on a line of its own), 2 none could."""


@app.command(epilog=PREDICT_EXAMPLES)
@options.described
def predict(
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL")],
    inputs: Annotated[list[Path] | None, typer.Argument(metavar="INPUTS")] = None,
    text: list[str] | None = None,
    image: options.Column = None,
    image_root: options.ImageRoot = None,
    label: options.Columns = None,
    top: Annotated[int, typer.Option(min=1)] = 3,
    out: options.Out = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
    device: options.TuningDevice = "auto",
    allow_code: options.AllowCode = False,
    output: Output,
) -> None:
    """Predict with a tuned model. Where the inputs have labels, say how many predictions are right.

    Inputs that cannot be read are named, one per line, and the others are predicted for.

    Args:
        model: The --out folder of a tune.
        inputs: Images or sounds, or folders of them; tables (CSV, TSV, JSONL, Parquet); text files with one text per
            line.
        text: With INPUTS: column of texts in a table. Without: a text; repeat it for several.
        image: Column of images (paths or bytes).
        label: Column of labels; repeat it, or A,B, for several.
        top: How many classes to show.
        out: Write the predictions to this CSV file.
        batch_size: Samples per batch.

    """
    from hubscout.features.precision import check_device, pick_device
    from hubscout.runs.tuning_record import read_tuning
    from hubscout.tasks.prediction_inputs import check_paths

    check_out(out, (".csv",), "a CSV file, such as predictions.csv", hint=" For JSON use --json.")
    check_device(device)
    record = read_tuning(model)  # what is not there is said before torch is imported
    check_paths(inputs or [])
    from hubscout.tuning import Tuned

    tuned = Tuned.load(model, allow_code=allow_code).to(pick_device(device))
    reader = _reader(tuned, text if inputs else None, image, label, image_root)
    found = _gather(reader, inputs or [], text or [])
    output.say(*(f"note: {note}" for note in found.notes))
    bad = _check_readable(found)
    output.say(*(f"skipped: {reason}" for reason in bad.values()))
    good = [row for row in range(len(found)) if row not in bad]
    readable = found.take(good) if bad else found
    output.say(f"Predicting for {len(good):,} input{'s' if len(good) > 1 else ''} with {tuned.model}.")
    predictions = tuned.predict(readable.values, batch_size=batch_size)
    measured = _measure(tuned, reader, readable, predictions, quiet=output.quiet)
    answers = dict(zip(good, predictions.records(top), strict=True))
    records = [
        {
            "input": found.names[row],
            **(answers[row] if row in answers else {"error": bad[row]}),
            **({"label": reader.named(found.labels[row])} if found.labels[row] is not None else {}),
        }
        for row in range(len(found))
    ]
    if out is not None:
        _write(out, records, tuned)
        output.say(f"{len(answers):,} predictions written to {out}")
    if output.as_json:
        print_json(records)
    elif out is None:
        print_table(("input", "prediction"), [(_on_a_line(one["input"]), _shown(one)) for one in records])
    if measured and _tuned_on(record, inputs or []):
        output.say(
            "note: the model was tuned on this data, so that it does better here than on new samples; "
            f"`hubscout report {model}` has its test split."
        )
    if measured and output.as_json:
        output.say(measured)
    elif measured:
        print_result(measured)
    if bad:
        output.say(f"{len(bad):,} of {len(found):,} inputs could not be read.")
        raise typer.Exit(EXIT_SOME_FAILED)


def _reader(
    tuned: Tuned, text: list[str] | None, image: str | None, label: list[str] | None, image_root: Path | None
) -> Reader:
    from hubscout.tasks.kinds import kind_of
    from hubscout.tasks.prediction_inputs import Reader

    modalities = tuned.backbone.card.modalities
    if not set(modalities) & {"image", "audio", "text", "text-pair", "tokens"}:
        raise InputError(
            f"The command predicts for images, sounds and texts; this model reads {', '.join(modalities)}."
        )
    kind = kind_of(tuned.kind)
    columns = {"image": image, kind.text_role: split_list(text or []) or None}
    reader = Reader(modalities, kind, tuned.target_names, columns, split_list(label or []) or None, image_root)
    if reader.file_modality is not None and text:
        raise InputError(f"This model reads {_FILES[reader.file_modality]}: --text names a column of texts.")
    return reader


def _gather(reader: Reader, paths: list[Path], texts: list[str]) -> Inputs:
    if texts and not paths:
        if reader.file_modality is not None:
            raise InputError(f"This model reads {_FILES[reader.file_modality]}: give files, not --text.")
        return reader.texts(texts)
    found = reader.read(paths)
    if len(found):
        return found
    if reader.file_modality is not None:
        raise InputError(f"No {_FILES[reader.file_modality]} were given: name files or folders of them.")
    raise InputError("No texts were given: use --text, or name a table or a file with one text per line.")


def _check_readable(found: Inputs) -> dict[int, str]:
    """What cannot be read, before anything is predicted."""
    bad = found.unreadable()
    if len(bad) == len(found):
        all_of_them = f"None of the {len(found):,} inputs can be read. " if len(found) > 1 else ""
        raise NothingReadableError(all_of_them + next(iter(bad.values())))
    return bad


def _measure(tuned: Tuned, reader: Reader, inputs: Inputs, predictions: Predictions, *, quiet: bool) -> str:
    """The metrics of the task over the inputs that have labels, in words; empty where there is nothing to measure."""
    import numpy as np

    from hubscout.metric_texts import interval_text
    from hubscout.tasks.task_metrics import Outcome

    labelled = [row for row, label in enumerate(inputs.labels) if label is not None]
    if not labelled:
        return ""
    chosen = inputs.take(labelled)
    try:
        targets = reader.encode(chosen)
    except TaskError as error:
        if reader.label is not None:
            raise
        say(f"note: nothing is measured because the labels are not those of the model: {error}", quiet=quiet)
        return ""
    rows = np.arange(len(inputs)) if predictions.lengths is None else np.repeat(range(len(inputs)), predictions.lengths)
    said, groups = predictions.values[np.isin(rows, labelled)], reader.kind.sample_of_row(targets)
    outcome = Outcome(tuned.kind, said, reader.kind.rows_of(targets), groups, tuned.target_names)
    found = outcome.with_intervals(**tuned.arguments.intervals)
    return (
        ", ".join(f"{name} {interval_text(name, *one)}" for name, one in found.items())
        + f" ({len(labelled):,} labelled inputs)"
    )


def _tuned_on(record: TuningRecord, paths: list[Path]) -> bool:
    """Whether training samples are among the inputs, as far as the command that tuned the model tells."""
    from hubscout.report.answer import data_of_command
    from hubscout.tasks.splitting import canonical_split

    named = data_of_command(record.environment, "tune")
    if not named:
        return False
    data = Path(named).resolve()
    for path in (one.expanduser().resolve() for one in paths):
        if not path.is_relative_to(data):
            continue
        # The folder of a split, or its table, which may be packed: test.csv.gz.
        if canonical_split([*path.relative_to(data).parts, ""][0].partition(".")[0]) in (None, "train"):
            return True
    return False


def _on_a_line(text: str) -> str:
    """An input as a cell of the table: a path whole, the start of a long text."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_TEXT or " " not in words else f"{words[:LONGEST_TEXT].rstrip()}…"


def _shown(record: dict[str, Any]) -> str:
    if "error" in record:
        return "not read"  # why stands above the table
    value = record["prediction"]
    if "probabilities" in record:
        shares = ", ".join(f"{label} {share:.3f}" for label, share in record["probabilities"].items())
        return shares if value else f"none ({shares})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.4g}" for name, number in value.items())
    return " ".join(value) if isinstance(value, list) else str(value)


def _write(out: Path, records: list[dict[str, Any]], tuned: Tuned) -> None:
    """One row per input: prediction (one column per target of a regression), probability, label, error."""
    from hubscout.tasks.kinds import kind_of

    kind = kind_of(tuned.kind)
    predicted = list(tuned.target_names) if kind.is_real_valued else ["prediction"]
    rows = [_flat(record, kind.separator) for record in records]
    beside = [name for name in ("probability", "label", "error") if any(name in row for row in rows)]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["input", *predicted, *beside], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _flat(record: dict[str, Any], separator: str) -> dict[str, Any]:
    row, value = dict(record), record.get("prediction", "")
    if "probabilities" in record:
        shares = [record["probabilities"][label] for label in ([value] if isinstance(value, str) else value)]
        row["probability"] = separator.join(map(str, shares)) if len(shares) != 1 else shares[0]
    if isinstance(value, dict):
        row |= value
    elif isinstance(value, list):
        row["prediction"] = separator.join(value)
    if isinstance(record.get("label"), list | tuple):
        row["label"] = separator.join(map(str, record["label"]))
    return row
