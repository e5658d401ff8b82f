"""The options that several commands which run models have, said once."""

from __future__ import annotations

from typing import Annotated

import typer

from hubscout.cli.completion import complete_models

ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        "-m",
        help="Models: identifiers or patterns, repeated or joined by commas; @FILE has one per line; small, base or "
        "large is a list of hubscout's own (where none is named: small on a CPU, base on a GPU).",
        show_default=False,
        autocompletion=complete_models,
    ),
]
SkipBadOption = Annotated[bool, typer.Option("--skip-bad", help="Leave out samples that cannot be read.")]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Random seed for splits, subsets, the order of samples and sampling.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]
TuningDeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
AccelerateOption = Annotated[
    str,
    typer.Option("--accelerate", help="auto, off or onnxruntime: rank with networks in ONNX Runtime, faster on a CPU."),
]
CacheOption = Annotated[
    str | None,
    typer.Option("--cache", help="Folder or URL of the feature cache; $HUBSCOUT_CACHE or a standard place."),
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Where the work runs: local, or ray for a cluster of machines.")
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="With --engine ray: auto (the cluster here), local (one for this) or HOST:PORT."),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Another argument of tuning, as name=value; see `hubscout tune --list-arguments`."),
]
