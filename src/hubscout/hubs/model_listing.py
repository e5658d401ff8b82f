"""What models there are, before anything is loaded: what a hub lists, and what the Hub finds."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hubscout.hubs.connection import explain_hub_failure, hub_silence

TEXT_MODALITIES = ("text", "text-pair", "tokens")
"""What a model of texts takes."""
_MODALITIES = {
    **dict.fromkeys(
        ("image-classification", "image-feature-extraction", "object-detection", "image-segmentation"), ("image",)
    ),
    **dict.fromkeys(("audio-classification", "automatic-speech-recognition"), ("audio",)),
    **dict.fromkeys(
        ("fill-mask", "sentence-similarity", "text-classification", "token-classification", "text-generation"),
        TEXT_MODALITIES,
    ),
}
"""What the Hub says a model is for, where that tells what it takes."""
MOST_LISTED = 200
"""How many models of the Hub a pattern is compared with, unless the caller says otherwise."""


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One model of a hub. What the hub does not tell is None.

    Example:
        >>> ModelEntry(identifier="timm/resnet18", modalities=("image",)).takes("text")
        False

    """

    identifier: str
    params: int | None = None
    """Parameters."""
    flops: int | None = None
    """Operations per sample."""
    source_data: str | None = None
    """What it was pre-trained with, in words."""
    licence: str | None = None
    """As the hub names it."""
    downloads: int | None = None
    """As the hub counted them."""
    input_size: int | None = None
    """Pixels on a side, for image models."""
    on_this_machine: bool = False
    """Whether it opens without a network."""
    modalities: tuple[str, ...] = ()
    """The kinds of input that it takes; empty where the hub does not tell."""

    def takes(self, modality: str) -> bool:
        """Whether it may take such inputs.

        Args:
            modality: such as "image".

        Returns:
            False where the hub says that it takes others only.

        """
        return not self.modalities or modality in self.modalities


class ModelListing(list[ModelEntry]):
    """The entries, with `notes` on how they were found, such as that the hub could not be reached.

    Args:
        entries: the models.
        notes: sentences for the user.

    Example:
        >>> found = ModelListing([ModelEntry(identifier="timm/resnet18")], ["The hub cannot be reached."])
        >>> len(found), found.notes
        (1, ('The hub cannot be reached.',))

    """

    def __init__(self, entries: Iterable[ModelEntry] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(entries)
        self.notes: tuple[str, ...] = tuple(notes)


def search(pattern: str, limit: int | None = None) -> ModelListing:
    """Models of transformers on the Hub by a shell pattern, the most downloaded first.

    The Hub finds those whose name has the longest part of the pattern without wildcards; of these the first `limit`
    are looked at, and a note says where that was not all. What is in the local cache is listed in any case, and alone
    where there is no hub to ask.
    """
    on_this_machine = local_repositories()
    local = {
        name: ModelEntry(identifier=f"hf/{name}", on_this_machine=True)
        for name in sorted(fnmatch.filter(on_this_machine, pattern))
    }
    if (silence := hub_silence()) is not None:
        return ModelListing(local.values(), (f"Only models in the local cache are listed: {silence}.",))
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
    matching = (info for info in found[:most] if fnmatch.fnmatch(info.id, pattern))
    entries = {info.id: _entry(info, info.id in on_this_machine) for info in matching}
    return ModelListing((entries | {name: local[name] for name in local if name not in entries}).values(), notes)


def _entry(info: Any, on_this_machine: bool) -> ModelEntry:
    licences, data = (
        [tag.removeprefix(kind) for tag in info.tags or () if tag.startswith(kind)] for kind in ("license:", "dataset:")
    )
    return ModelEntry(
        identifier=f"hf/{info.id}",
        params=getattr(getattr(info, "safetensors", None), "total", None),
        source_data=", ".join(data) or None,
        licence=next(iter(licences), None),
        downloads=info.downloads,
        on_this_machine=on_this_machine,
        modalities=_MODALITIES.get(getattr(info, "pipeline_tag", None) or "", ()),
    )


def local_repositories() -> frozenset[str]:
    """The model repositories in the local cache that hold weights."""
    try:
        from huggingface_hub import CacheNotFound, scan_cache_dir
    except ImportError:
        return frozenset()
    try:
        found = scan_cache_dir().repos
    except (CacheNotFound, OSError, ValueError):
        return frozenset()
    return frozenset(
        repository.repo_id
        for repository in found
        if repository.repo_type == "model"
        and any(
            file.file_name.endswith((".safetensors", ".bin", ".pth"))
            for revision in repository.revisions
            for file in revision.files
        )
    )


def downloads_of_owner(owner: str) -> dict[str, int]:
    """Downloads of the last month of every model of an owner, in one request; empty where the Hub does not answer."""
    if hub_silence() is not None:
        return {}
    try:
        from huggingface_hub import list_models

        return {info.id: info.downloads for info in list_models(author=owner) if info.downloads is not None}
    except Exception:  # Popularity is worth having, never worth failing for.
        return {}
