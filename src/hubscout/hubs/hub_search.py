"""`search`: the models of transformers on the Hugging Face Hub by a shell pattern."""

from __future__ import annotations

import fnmatch
from typing import Any

from hubscout.hubs.connection import hub_silence, local_repositories
from hubscout.hubs.failures import explain_hub_failure
from hubscout.hubs.model_listing import TEXT_MODALITIES, ModelEntry, ModelListing

_MODALITIES = {
    "image-classification": ("image",),
    "image-feature-extraction": ("image",),
    "object-detection": ("image",),
    "image-segmentation": ("image",),
    "audio-classification": ("audio",),
    "automatic-speech-recognition": ("audio",),
    "fill-mask": TEXT_MODALITIES,
    "sentence-similarity": TEXT_MODALITIES,
    "text-classification": TEXT_MODALITIES,
    "token-classification": TEXT_MODALITIES,
    "text-generation": TEXT_MODALITIES,
}
"""What the Hub says a model is for, where that tells what it takes."""
MOST_LISTED = 200
"""How many models of the Hub a pattern is compared with, unless the caller says otherwise."""


def search(pattern: str, limit: int | None = None) -> ModelListing:
    """Models of the Hub by a shell pattern, the most downloaded first; with no hub to ask, those in the local cache.

    The Hub finds those whose name has the longest part of the pattern without wildcards; of these the first `limit`
    are looked at, and a note says where that was not all. What is in the local cache is listed in any case.
    """
    local = local_repositories()
    if (silence := hub_silence()) is not None:
        note = f"Only models in the local cache are listed: {silence}."
        return ModelListing(map(_local_entry, sorted(fnmatch.filter(local, pattern))), (note,))
    from huggingface_hub import list_models as ask

    most = MOST_LISTED if limit is None else limit
    search = max(pattern.replace("?", "*").split("*"), key=len)
    facts: list[Any] = ["downloads", "pipeline_tag", "safetensors", "tags"]
    try:
        found = list(ask(search=search or None, filter="transformers", sort="downloads", limit=most + 1, expand=facts))
    except Exception as error:
        raise explain_hub_failure(error, f"hf/{pattern}", pattern, None) from error
    notes = []
    if len(found) > most:
        notes.append(
            f"The hub has more models that match: the {most} most downloaded were looked at. --limit (limit=) looks at "
            "more."
        )
    entries = {info.id: _entry(info, info.id in local) for info in found[:most] if fnmatch.fnmatch(info.id, pattern)}
    for name in sorted(fnmatch.filter(local, pattern)):
        entries.setdefault(name, _local_entry(name))
    return ModelListing(entries.values(), notes)


def _local_entry(name: str) -> ModelEntry:
    return ModelEntry(identifier=f"hf/{name}", on_this_machine=True)


def _entry(info: Any, on_this_machine: bool) -> ModelEntry:
    tags = info.tags or []
    parameters = getattr(info.safetensors, "total", None) if getattr(info, "safetensors", None) else None
    named = {
        kind: [tag.partition(":")[2] for tag in tags if tag.startswith(f"{kind}:")] for kind in ("license", "dataset")
    }
    return ModelEntry(
        identifier=f"hf/{info.id}",
        params=parameters,
        source_data=", ".join(named["dataset"]) or None,
        licence=next(iter(named["license"]), None),
        downloads=info.downloads,
        on_this_machine=on_this_machine,
        modalities=_MODALITIES.get(getattr(info, "pipeline_tag", None) or "", ()),
    )
