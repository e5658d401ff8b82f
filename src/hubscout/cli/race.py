"""`hubscout race`: which model will be best once tuned, and that model, tuned, within a budget of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hubscout.cli.completion import complete_models
from hubscout.cli.data import (
    DataArgument,
    ImageOption,
    KindOption,
    LabelOption,
    OverwriteOption,
    ResumeOption,
    SplitOption,
    TextOption,
    open_data,
)
from hubscout.cli.engine import engine_options
from hubscout.cli.output import JsonOption, QuietOption, print_json, print_result, say
from hubscout.cli.values import MODELS_HELP, AllowCodeOption, read_settings, split_models

app = typer.Typer(add_completion=False)

EPILOG = """Examples:

hubscout race flowers/ --budget 30min --out run/

hubscout race flowers/ -m 'timm/mobilenetv3*,timm/resnet50.a1_in1k' --budget 30min --out run/

hubscout race reviews.csv --text review --label stars -m @encoders.txt --budget 2h --max-params 50M --out run/

hubscout predict run/winner/ new/*.jpg

Run the same command again to resume a race that was stopped; the best so far is in OUT/winner."""


@app.command(epilog=EPILOG)
def race(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the race; the winner is in OUT/winner.")],
    models: Annotated[
        list[str] | None,
        typer.Option("--models", "-m", help=MODELS_HELP, show_default=False, autocompletion=complete_models),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Time for everything, the winner's tuning included, such as 30min.")
    ] = None,
    max_params: Annotated[
        str | None, typer.Option("--max-params", help="Race only models of at most so many parameters, such as 10M.")
    ] = None,
    max_flops: Annotated[
        str | None, typer.Option("--max-flops", help="Race only models of at most so many operations per sample.")
    ] = None,
    max_latency: Annotated[
        str | None,
        typer.Option("--max-latency", help="Race only models of at most this time per sample, such as 20ms."),
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Tune the winner again on train and validation together.")
    ] = False,
    image: ImageOption = None,
    text: TextOption = None,
    label: LabelOption = None,
    kind: KindOption = None,
    split: SplitOption = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="An argument of tuning, such as epochs=10 or batch_size=64; repeat it for several."),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Where arms run: local or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="With --engine ray: auto, local or HOST:PORT.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave samples out that cannot be read.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Random seed for splits, order and augmentation.")] = 0,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    allow_code: AllowCodeOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the model that will be best once tuned, and tune it, within a budget of time.

    Every model is ranked by its evidence, then tuned a little at several learning rates. Those without a chance are
    given up, the others go on from where they are, and the winner is tuned to its end.
    """
    from hubscout.racing import race as run
    from hubscout.ranking.candidates import find_candidates
    from hubscout.runs.display import display

    task = open_data(data, image=image, text=text, label=label, kind=kind, split=split, quiet=quiet)
    options: dict[str, Any] = read_settings(settings or [])
    named = split_models(models, allow_code=allow_code) if models else None
    candidates = find_candidates(named, task.modality, device)
    for note in candidates.notes:
        say(note, quiet=quiet)
    with display(len(candidates.models), quiet=quiet, title="race") as observer:
        found = run(
            task,
            candidates.models,
            budget=budget,
            out=out,
            resume=resume,
            overwrite=overwrite,
            max_params=max_params,
            max_flops=max_flops,
            max_latency=max_latency,
            refit=refit,
            device=device,
            seed=seed,
            skip_bad=skip_bad,
            engine=engine,
            engine_options=engine_options(engine, address),
            observer=observer,
            **options,
        )
    if as_json:
        print_json({**found.record(), "out": out})
        return
    print_result(found.table())
    print_result(found.answer)
    for note in found.notes:
        say(f"note: {note}", quiet=quiet)
    spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in found.seconds.items())
    say(f"Spent: {spent}. The winner is in {out / 'winner'}: `hubscout predict {out / 'winner'} INPUTS`", quiet=quiet)
