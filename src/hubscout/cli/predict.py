"""`hubscout predict`: what a tuned model says of new inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result
from hubscout.cli.values import AllowCodeOption

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout predict my-model/ images/*.jpg

hubscout predict my-model/ --text "what a film" --text "never again"

hubscout predict my-model/ reviews.txt --json        # one text a line"""


@app.command(epilog=EPILOG)
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The --out folder of a tune.")],
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="INPUTS", help="Images, or folders of them; text files with one text a line."),
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text; repeat it for several.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many classes to show.")] = 3,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 32,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    allow_code: AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict with a tuned model."""
    from hubscout.features.precision import pick_device
    from hubscout.tuning import Tuned

    tuned = Tuned.load(model, allow_code=allow_code).to(pick_device(device))
    names, samples = _gather(inputs or [], text or [], tuned)
    records = tuned.predict(samples, batch_size=batch_size).records(top)
    if as_json:
        print_json([{"input": name, **record} for name, record in zip(names, records, strict=True)])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    table.add_column("input", overflow="fold")
    table.add_column("prediction", overflow="fold")
    for name, record in zip(names, records, strict=True):
        table.add_row(Text(name), Text(_shown(record)))
    print_result(table)


def _shown(record: dict[str, Any]) -> str:
    if "probabilities" in record:
        return ", ".join(f"{label} {share:.3f}" for label, share in record["probabilities"].items())
    value = record["prediction"]
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.4g}" for name, number in value.items())
    return " ".join(value) if isinstance(value, list) else str(value)


def _gather(paths: list[Path], texts: list[str], tuned: Any) -> tuple[list[str], list[Any]]:
    """Names for the table, and raw samples as the model's modality wants them."""
    from hubscout.errors import InputError

    modalities = tuned.backbone.card.modalities
    if "image" in modalities:
        if texts:
            raise InputError("This model reads images: give files, not --text.")
        files = [file for path in paths for file in _image_files(path)]
        if not files:
            raise InputError("No images were given: name files or folders, such as images/*.jpg.")
        return [str(file) for file in files], _Images(files)  # type: ignore[return-value]
    if not set(modalities) & {"text", "text-pair", "tokens"}:
        raise InputError(f"The command predicts for images and texts; this model reads {', '.join(modalities)}.")
    lines = list(texts)
    for path in paths:
        try:
            lines += [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read as text: {error}.") from error
    if not lines:
        raise InputError("No texts were given: use --text, or a file with one text a line.")
    if tuned.kind == "tagging":
        return lines, [line.split() for line in lines]
    pairs = [tuple(line.split("\t", 1)) if "\t" in line else line for line in lines]
    return lines, pairs


def _image_files(path: Path) -> list[Path]:
    from hubscout.errors import InputError
    from hubscout.tasks.images import EXTENSIONS

    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix.lower() in EXTENSIONS)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    return [path]


class _Images:
    """Files that are opened when they are asked for."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> Any:
        from PIL import Image, UnidentifiedImageError

        from hubscout.errors import InputError

        try:
            return Image.open(self.files[number]).convert("RGB")
        except (UnidentifiedImageError, OSError) as error:
            raise InputError(f"{self.files[number]} cannot be read as an image: {error}.") from error
