"""What models there are, before anything is loaded: what a hub lists, what the Hub finds, what to try by default."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hubscout.errors import InputError, MissingDependencyError
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


# Each list mixes ways of pre-training and architectures, because what suits a task is what a ranking is to find out.
# `small` runs on a laptop, `base` and `large` want a GPU. The lists are a start, not a measured choice.
SIZES = ("small", "base", "large")
_Lists = dict[str, dict[str, str]]
"""Size → models, and of each: parameters without the head; why it is there; the licence of its weights."""

_IMAGE: _Lists = {
    "small": {
        "timm/mobilenetv3_large_100.miil_in21k_ft_in1k": "4M; for phones, ImageNet-21k; Apache-2.0",
        "timm/mobilenetv4_conv_small.e2400_r224_in1k": "2M; the least latency of the list; Apache-2.0",
        "timm/efficientnet_b0.ra_in1k": "4M; much accuracy per operation; Apache-2.0",
        "timm/convnext_atto.d2_in1k": "3M; a modern convolutional network; Apache-2.0",
        "timm/resnet18.a1_in1k": "11M; the usual baseline; Apache-2.0",
        "timm/vit_tiny_patch16_224.augreg_in21k": "6M; a transformer, ImageNet-21k; Apache-2.0",
    },
    "base": {
        "timm/resnet50.a1_in1k": "24M; the usual baseline; Apache-2.0",
        "timm/resnetv2_50x1_bit.goog_in21k": "24M; trained for transfer, ImageNet-21k; Apache-2.0",
        "timm/convnext_tiny.in12k_ft_in1k": "28M; a modern convolutional network, ImageNet-12k; Apache-2.0",
        "timm/swin_tiny_patch4_window7_224.ms_in22k_ft_in1k": "28M; windows of attention, ImageNet-22k; MIT",
        "timm/tf_efficientnetv2_s.in21k_ft_in1k": "20M; quick to train, ImageNet-21k; Apache-2.0",
        # At 224 pixels: its own 518 are five times as many patches.
        "timm/vit_small_patch14_dinov2.lvd142m?img_size=224&input_size=224": "22M; no labels, 142M images; Apache-2.0",
        "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k": "86M; the usual transformer, ImageNet-21k; Apache-2.0",
        "timm/vit_base_patch16_clip_quickgelu_224.openai": "86M; images with their captions; Apache-2.0",
    },
    "large": {
        "timm/convnext_large.fb_in22k": "196M; convolutional, ImageNet-22k; Apache-2.0",
        "timm/swin_large_patch4_window7_224.ms_in22k": "195M; windows of attention, ImageNet-22k; MIT",
        "timm/vit_large_patch16_224.augreg_in21k": "303M; the usual transformer, ImageNet-21k; Apache-2.0",
        "timm/beitv2_large_patch16_224.in1k_ft_in22k": "303M; masked patches, then ImageNet-22k; Apache-2.0",
        "timm/vit_large_patch14_clip_quickgelu_224.openai": "303M; images with their captions; Apache-2.0",
        "timm/vit_large_patch14_dinov2.lvd142m?img_size=224&input_size=224": "304M; no labels, 142M images; Apache-2.0",
    },
}
_TEXT: _Lists = {
    "small": {
        "sentence-transformers/all-MiniLM-L6-v2": "23M; sentences by meaning; Apache-2.0",
        "hf/BAAI/bge-small-en-v1.5": "33M; retrieval; MIT",
        "hf/intfloat/e5-small-v2": "33M; retrieval, other pairs of texts than BGE; MIT",
        "hf/distilbert/distilbert-base-uncased": "66M; half the layers of BERT, masked words; Apache-2.0",
    },
    "base": {
        "hf/google-bert/bert-base-uncased": "110M; the usual baseline; Apache-2.0",
        "hf/FacebookAI/roberta-base": "125M; keeps upper case, ten times the text of BERT; MIT",
        "hf/answerdotai/ModernBERT-base": "149M; long texts and code; Apache-2.0",
        "hf/FacebookAI/xlm-roberta-base": "278M; a hundred languages; MIT",
        "sentence-transformers/all-mpnet-base-v2": "109M; sentences by meaning; Apache-2.0",
        "hf/BAAI/bge-base-en-v1.5": "109M; retrieval; MIT",
    },
    "large": {
        "hf/google-bert/bert-large-uncased": "335M; the usual baseline; Apache-2.0",
        "hf/FacebookAI/roberta-large": "355M; keeps upper case, ten times the text of BERT; MIT",
        "hf/answerdotai/ModernBERT-large": "395M; long texts and code; Apache-2.0",
        "hf/FacebookAI/xlm-roberta-large": "560M; a hundred languages; MIT",
        "hf/BAAI/bge-large-en-v1.5": "335M; retrieval; MIT",
        "hf/intfloat/e5-large-v2": "335M; retrieval, other pairs of texts than BGE; MIT",
    },
}
_AUDIO: _Lists = {
    "small": {
        "hf/openai/whisper-tiny": "8M in the encoder; speech of many languages; Apache-2.0",
        "hf/openai/whisper-base": "21M in the encoder; the next larger one; Apache-2.0",
    },
    "base": {
        "hf/facebook/wav2vec2-base-960h": "94M; waves without labels, then English speech; Apache-2.0",
        "hf/openai/whisper-small": "88M in the encoder; speech of many languages; Apache-2.0",
    },
    "large": {
        "hf/facebook/wav2vec2-large-960h-lv60-self": "315M; waves without labels, then English speech; Apache-2.0",
        "hf/openai/whisper-medium": "307M in the encoder; speech of many languages; Apache-2.0",
    },
}
DEFAULTS: dict[str, _Lists] = {
    "image": _IMAGE,
    "audio": _AUDIO,
    **dict.fromkeys(TEXT_MODALITIES, _TEXT),
}
"""Kind of input → size → models, and why each is there."""


def default_models(modality: str, size: str) -> ModelListing:
    """The models to try for a kind of input; with no hub to reach, those that are installed or in the local cache.

    Args:
        modality: the kind of input, such as "image".
        size: "small", "base" or "large".

    Returns:
        The models; `notes` say which list was taken, or why it was not.

    Raises:
        InputError: there is no list for this kind of input, or no hub and no model on this machine.

    Example:
        >>> default_models("image", "huge")
        Traceback (most recent call last):
        hubscout.errors.InputError: models must be a size (small, base, large), identifiers or patterns, not 'huge'.

    """
    if size not in SIZES:
        raise InputError(f"models must be a size ({', '.join(SIZES)}), identifiers or patterns, not {size!r}.")
    if modality not in DEFAULTS:
        raise InputError(
            f"models: there is no list of models for inputs of the kind {modality!r}, only for {', '.join(DEFAULTS)}. "
            "Name them, such as python:module:function for a torch module of your own."
        )
    if (silence := hub_silence()) is None:
        entries = [ModelEntry(identifier=one, modalities=(modality,)) for one in DEFAULTS[modality][size]]
        return ModelListing(entries, [f"Models: the {len(entries)} of the list '{size}' for {modality} inputs."])
    here = list(_on_this_machine(modality))
    if not here:
        raise InputError(
            f"models: {silence}, and no model for {modality} inputs is installed or in the local cache. Connect once, "
            "install some (pip install 'hubscout[demo]'), or name one on this machine as file:PATH."
        )
    there = f"the {len(here)} that are" if len(here) > 1 else "the one that is"
    return ModelListing(here, [f"Models: {there} on this machine, not the list '{size}': {silence}."])


def _on_this_machine(modality: str) -> Iterator[ModelEntry]:
    from hubscout.hubs.hub_registry import HUBS

    for hub in ("pypi", "timm", "torchvision", "sentence-transformers", "hf"):
        try:
            found = HUBS[hub].list_models("*")
        except MissingDependencyError:
            continue
        for entry in found:
            # What the hubs of timm and sentence-transformers have found is in the same cache.
            again = entry.identifier.startswith(("hf/timm/", "hf/sentence-transformers/"))
            if entry.on_this_machine and not again and entry.takes(modality):
                yield entry
