"""A tuned model as a folder: weights for the library they came from, labels, preprocessing, a model card."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from torch import nn

from hubscout.credentials import strip_credentials
from hubscout.errors import InputError, ModelNotFoundError, RunError, TuningError
from hubscout.features.feature_keys import network_digest
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.hubs import Backbone
from hubscout.hubs import load as load_backbone
from hubscout.hubs.model_identifier import Identifier, code_wanted
from hubscout.hubs.model_objects import names_in_memory, register
from hubscout.hubs.saving import DESCRIPTION, HEAD_WEIGHTS, read_description
from hubscout.hubs.weight_files import fit_state, read_state
from hubscout.metric_texts import bounds_text, metric_text
from hubscout.runs.evaluation_record import read_evaluation, write_evaluation
from hubscout.runs.files import read_lines, why_not_written, write_atomically
from hubscout.runs.run_folder import CURVES, TUNING
from hubscout.runs.texts import short_names
from hubscout.runs.tuning_record import read_tuning, write_tuning
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import MetricValue
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.losses import TaskLoss

if TYPE_CHECKING:
    from hubscout.tuning.tuned import Tuned


def save(tuned: Tuned, folder: Path) -> Path:
    """Write everything into a new folder beside the place, then move it there: a half-written model is never seen.

    Files of an earlier model in `folder` are replaced; other files there are left alone.
    """
    backbone, head = tuned.deployable()
    backbone.card = replace(backbone.card, identifier=tuned.model)  # what the network is built by
    partial: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder))
        backbone.save(partial, head=head, target_names=tuned.target_names, kind=tuned.kind)
        save_record(tuned, partial)
        for weights in partial.rglob("*.safetensors"):  # only the user may read what safetensors writes
            shutil.copymode(partial / DESCRIPTION, weights)
        if tuned.evaluation is None:
            write_evaluation(folder, None)
        for path in sorted(partial.iterdir()):
            if (folder / path.name).is_dir():
                shutil.rmtree(folder / path.name)
            path.replace(folder / path.name)
    except (OSError, SafetensorError) as error:
        raise TuningError(f"The model could not be saved in {folder}: {why_not_written(error)}.") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def opens_by_code(tuned: Tuned, folder: Path) -> bool:
    """Whether a saved model is bare weights whose network only code builds, so that opening it must be allowed."""
    return is_bare(folder) and code_wanted(Identifier.parse(tuned.model)) is not None


def is_bare(folder: Path) -> bool:
    """Whether a folder holds weights alone, and not how the network is built."""
    return not any((folder / name).is_file() for name in ("config.json", "modules.json"))


def _is_in_memory(identifier: str) -> bool:
    return Identifier.parse(identifier).hub == "memory"


def save_record(tuned: Tuned, folder: Path) -> None:
    """What is known of a model whose weights lie in the folder: record, curves and model card."""
    write_tuning(folder, tuned.tuning_record(), tuned.curves)
    write_evaluation(folder, tuned.evaluation)
    needed = ", allow_code=True" if opens_by_code(tuned, folder) else ""
    if is_bare(folder) and _is_in_memory(tuned.model):
        needed = ", model=network"
    write_atomically(folder / "README.md", strip_credentials(model_card(tuned, read_description(folder), needed)))


def load(folder: Path, *, allow_code: bool = False, model: Any = None) -> Tuned:
    """Open what `save` wrote, without running anything that the folder names unless `allow_code` says so.

    Bare weights go into a copy of `model` where it is given.
    """
    from hubscout.tuning.tuned import Tuned, common_fields

    record = read_tuning(folder)
    if not allow_code:
        name, *teachers = (IdentifierFromFile(told, str(folder / TUNING)) for told in (record.model, *record.teachers))
        record = replace(record, model=name, teachers=tuple(teachers))
    names = tuple(read_description(folder)["target_names"])
    head: nn.Module
    try:
        backbone = load_backbone(Identifier("file", str(folder)))  # not as text: the name of a folder holds no options
        head = find_head(backbone, len(names))
    except InputError:
        # Bare weights: only the model's own identifier says how to build the network.
        backbone, head = _load_parts(folder, record.model if model is None else model, len(names))
        give_own_card(backbone, record.model)
    try:
        evaluation, notes = read_evaluation(folder), record.notes
    except RunError as error:  # the weights are as good as before
        evaluation, notes = None, (*record.notes, f"The samples to look at are missing: {error}")
    known = set(TuningArguments.__dataclass_fields__)
    changed = {
        "backbone": backbone,
        "head": head,
        "loss": TaskLoss(record.kind, len(names)),
        "task_name": record.task,
        "target_names": names,
        "arguments": TuningArguments(**{k: v for k, v in record.arguments.items() if k in known}),
        "metrics": {
            split: {name: MetricValue(*interval) for name, interval in found.items()}
            for split, found in record.saved_metrics.items()
        },
        "merged_metrics": None,
        "curves": tuple(read_lines(folder / CURVES)),
        "best_step": record.steps if record.best_step is None else record.best_step,
        "evaluation": evaluation,
        "notes": notes,
    }
    return Tuned(**{**common_fields(record, Tuned), **changed})


def give_own_card(backbone: Backbone, base: str, folder: Path | None = None) -> None:
    """Name a tuned network for what it is, which is not the model of its card: by its folder, or as one in memory."""
    if backbone.module is None:
        return
    if folder is not None and (folder / DESCRIPTION).is_file() and not is_bare(folder):
        identifier = str(Identifier("file", str(folder)))
    else:
        identifier = register(backbone, f"{short_names([base])[0]}-tuned", taken=names_in_memory())
    digest = network_digest(backbone.module)
    backbone.card = replace(backbone.card, identifier=identifier, tuned_from=base, weights_fingerprint=digest)


def find_head(backbone: Backbone, outputs: int) -> nn.Linear:
    """The linear layer from the features to the outputs that the network ends with."""
    body = backbone.module
    width = backbone.card.feature_dim
    if isinstance(beside := getattr(backbone, "head", None), nn.Linear) and beside.out_features == outputs:
        return beside  # of a file of its own, and maybe wider: that of pairs
    classifier = getattr(body, "get_classifier", lambda: None)()
    for layer in (classifier, *reversed(list(body.modules() if body is not None else ()))):
        if isinstance(layer, nn.Linear) and (layer.in_features, layer.out_features) == (width, outputs):
            return layer
    raise RunError(f"{backbone.card.identifier} has no head from {width} features to {outputs} targets.")


def _load_parts(folder: Path, model: Any, outputs: int) -> tuple[Backbone, nn.Module]:
    """Weights in two files: the architecture is that of a model in memory, or opened by the model's own identifier."""
    name = model if isinstance(model, str | Backbone) else register(model)
    try:
        backbone = copy.deepcopy(name) if isinstance(name, Backbone) else load_backbone(name)
    except ModelNotFoundError as error:
        if not _is_in_memory(str(model)):
            raise
        raise ModelNotFoundError(
            f"{folder} holds the tuned weights of {model}, which was a model in memory: the folder does not say how to "
            "build it. Build it again and give it: Tuned.load(folder, model=network)."
        ) from error
    if backbone.module is None:
        raise InputError(f"model={backbone.card.identifier!r} is no torch module: weights do not fit into it.")
    fit_state(backbone.module, read_state(folder / "model.safetensors"), source=str(folder))
    head = nn.Linear(backbone.card.feature_dim, outputs)
    fit_state(head, read_state(folder / HEAD_WEIGHTS), source=str(folder / HEAD_WEIGHTS))
    return backbone, head


_CARD = """---
base_model: {base_model}
library_name: {library}
tags: [hubscout]
---

# {tuned.task_name}, by {card.architecture}

{warning}A model for {tuned.kind} of {modality} inputs, {made} with hubscout.

- base model: `{tuned.model}` ({card.params:,} parameters)
- method: {method}
- data: {tuned.task_name}, {sizes} (fingerprint `{tuned.task_fingerprint}`)
- licence of the base model's weights: {licence}
- {targets}: {names}

## Metrics

With {tuned.arguments.confidence:.0%} intervals over samples.

{metrics}

## How it was {made}

{training}.

{notes}
```json
{arguments}
```

## How to open it

```python
{opening}
```
"""


def model_card(tuned: Tuned, description: Mapping[str, Any], needed: str = "") -> str:
    """Markdown with the front matter that model hubs read; `description` is what `Backbone.save` wrote of itself.

    `needed` is what `Tuned.load` must be given beside the folder.
    """
    library, opening = _opening(tuned, description, needed)
    names, probe = tuned.target_names, tuned.tuning_record().is_linear_probe
    teachers = f", teachers: {', '.join(f'`{t}`' for t in tuned.teachers)}" if tuned.teachers else ""
    method = tuned.method + teachers
    best = " (the best on validation)" if tuned.arguments.keep_best else ""
    training = f"{tuned.steps} steps, weights of step {tuned.best_step}{best}"
    if probe:
        training = f"{tuned.steps} steps by {method}: none came up to the probe" if tuned.steps else "Without training"
    return _CARD.format(
        tuned=tuned,
        card=tuned.backbone.card,
        base_model=json.dumps(tuned.model),
        library=library,
        warning=f"**Warning: {tuned.warning}**\n\n" if tuned.warning else "",
        modality=tuned.backbone.card.modalities[0],
        made="made" if probe else "tuned",
        method="linear probe of the frozen features" if probe else method,
        training=training,
        sizes=", ".join(f"{count:,} {split}" for split, count in tuned.sizes.items()),
        licence=tuned.backbone.card.licence or "not stated",
        targets="columns" if kind_of(tuned.kind).is_real_valued else "labels",
        names=", ".join(names[:40]) + (f", … ({len(names)} in all)" if len(names) > 40 else ""),
        metrics="\n".join(_table(tuned)),
        notes="".join(f"- {note}\n" for note in tuned.notes),
        arguments=json.dumps(tuned.arguments.decisive(), indent=1),
        opening="\n".join(opening),
    )


def _opening(tuned: Tuned, description: Mapping[str, Any], needed: str) -> tuple[str, list[str]]:
    """The library that opens the folder, and how; hubscout itself always does."""
    own = ["import hubscout as hs", f'hs.Tuned.load("THIS FOLDER"{needed}).predict(inputs).labels']
    saved_as = str(description.get("saved_as", ""))
    if saved_as.endswith("Classification"):
        reader = "AutoTokenizer" if "text" in tuned.backbone.card.modalities else "AutoImageProcessor"
        lines = [
            f"from transformers import {reader}, {saved_as}",
            f'model = {saved_as}.from_pretrained("THIS FOLDER")',
            f'prepare = {reader}.from_pretrained("THIS FOLDER")',
        ]
        return "transformers", [*lines, "", *own]
    if saved_as == "SentenceTransformer":
        lines = [
            "from sentence_transformers import SentenceTransformer",
            'SentenceTransformer("THIS FOLDER").encode(texts)  # the head\'s outputs',
        ]
        return "sentence-transformers", [*lines, "", *own]
    if type(tuned.backbone.module).__module__.partition(".")[0] == "timm" and not saved_as:
        return "timm", ["import timm", 'timm.create_model("local-dir:THIS FOLDER", pretrained=True)', "", *own]
    return "hubscout", own


def _table(tuned: Tuned) -> list[str]:
    rows = ["| split | metric | value | interval |", "|---|---|---|---|"]
    parts = [("", tuned.metrics)]
    if tuned.merged_metrics is not None:
        parts = [(", this network", tuned.merged_metrics), (", before its gates were merged", tuned.metrics)]
    for suffix, metrics in parts:
        for split, found in metrics.items():
            for name, value in found.items():
                told = metric_text(name, value.value), bounds_text(name, value.low, value.high, " to ")
                rows.append(f"| {split}{suffix} | {name} | {told[0]} | {told[1]} |")
    return rows
