"""The README.md of a saved model: what it is, from what, how good, how to open it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.tuning.tuned import Tuned


def model_card(tuned: Tuned, description: Mapping[str, Any], *, by_code: bool = False) -> str:
    """Markdown with the front matter that model hubs read; `description` is what `Backbone.save` wrote of itself.

    `by_code` says that only the code behind the model's identifier builds the network.
    """
    library, opening = _opening(tuned, description, by_code)
    names = tuned.target_names
    shown = ", ".join(names[:40]) + (f", … ({len(names)} in all)" if len(names) > 40 else "")
    lines = [
        "---",
        f"base_model: {json.dumps(tuned.model)}",
        f"library_name: {library}",
        "tags: [hubscout]",
        "---",
        "",
        f"# {tuned.task_name}, by {tuned.backbone.card.architecture}",
        "",
        *([f"**Warning: {tuned.warning}**", ""] if tuned.warning else []),
        f"A model for {tuned.kind} of {tuned.backbone.card.modalities[0]} inputs, tuned with hubscout.",
        "",
        f"- base model: `{tuned.model}` ({tuned.backbone.card.params:,} parameters)",
        f"- method: {tuned.method}"
        + (f", teachers: {', '.join(f'`{t}`' for t in tuned.teachers)}" if tuned.teachers else ""),
        f"- data: {tuned.task_name}, "
        + ", ".join(f"{count:,} {split}" for split, count in tuned.sizes.items())
        + f" (fingerprint `{tuned.task_fingerprint}`)",
        f"- licence of the base model's weights: {tuned.backbone.card.licence or 'not stated'}",
        f"- {'columns' if kind_of(tuned.kind).is_real_valued else 'labels'}: {shown}",
        "",
        "## Metrics",
        "",
        f"With {tuned.arguments.confidence:.0%} intervals over samples.",
        "",
        *_table(tuned),
        "",
        "## How it was tuned",
        "",
        f"{tuned.steps} steps, weights of step {tuned.best_step}"
        + (" (the best on validation)." if tuned.arguments.keep_best else "."),
        "",
        *(f"- {note}" for note in tuned.notes),
        "",
        "```json",
        json.dumps(tuned.arguments.decisive(), indent=1),
        "```",
        "",
        "## How to open it",
        "",
        "```python",
        *opening,
        "```",
        "",
    ]
    return "\n".join(lines)


def _opening(tuned: Tuned, description: Mapping[str, Any], by_code: bool) -> tuple[str, list[str]]:
    """The library that opens the folder, and how; hubscout itself always does."""
    allowed = ", allow_code=True" if by_code else ""
    own = ["import hubscout as hs", f'hs.Tuned.load("THIS FOLDER"{allowed}).predict(inputs).labels']
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
                rows.append(f"| {split}{suffix} | {name} | {value.value:.4f} | {value.low:.4f} to {value.high:.4f} |")
    return rows
