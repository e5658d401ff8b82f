"""`timm/NAME`: the models of timm, with the weights that timm knows for them."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError, did_you_mean
from hubscout.hubs.connection import explain_failure, hub_silence
from hubscout.hubs.cost import count_params
from hubscout.hubs.image_preprocessing import ImageConfig, split_options
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing, downloads_of_owner, local_repositories
from hubscout.hubs.random_weights import without_random_weights
from hubscout.hubs.repository import (
    PLACE_OPTIONS,
    Repository,
    fetch_model,
    is_allowed,
    open_repository,
    pick_weights,
)
from hubscout.hubs.torchvision_compat import prepare_torchvision
from hubscout.hubs.vision import HalvesBackbone
from hubscout.hubs.weight_files import read_state
from hubscout.optional import require

if TYPE_CHECKING:
    from torch import nn

NO_OPTIONS = frozenset(
    {
        "cache_dir",
        "checkpoint_path",
        "exportable",
        "feature_cls",
        "features_only",
        "file",
        "hf_hub_id",
        "model_name",
        "no_jit",
        "out_indices",
        "pretrained_cfg",
        "pretrained_cfg_overlay",
        "scriptable",
        "url",
    }
)
"""Arguments of timm that are not the network's own: they read weights from elsewhere, or make something else of it."""


def load(identifier: Identifier) -> HalvesBackbone:
    """A timm model with its pre-trained weights; `pretrained=false` leaves them out.

    `revision` pins the version on the Hugging Face Hub. Other options go to timm.
    """
    check_name(identifier.name)
    name = _repository(identifier.name)
    if identifier.options.get("pretrained", True) is False or name is None:
        if "revision" in identifier.options:
            raise InputError(f"'{identifier}': a revision is that of weights on the Hugging Face Hub; there are none.")
        return _create(identifier.name, identifier)
    return _create(identifier.name, identifier, open_repository(name, identifier))


def load_repository(repository: Repository, config: Mapping[str, Any], identifier: Identifier) -> HalvesBackbone:
    """A repository of the Hub in timm's layout: one of timm's own as `timm/NAME` is, another as a folder of timm is."""
    for name in (repository.name.partition("/")[2], config.get("architecture")):
        if name and import_timm().is_model(name) and _repository(name) == repository.name:
            return _create(name, identifier, repository)
    from hubscout.hubs.local_file import load_timm_folder

    backbone = load_timm_folder(fetch_model(repository, identifier.options), config, identifier)
    backbone.card = replace(backbone.card, **repository.facts)
    return backbone


def _create(name: str, identifier: Identifier, repository: Repository | None = None) -> HalvesBackbone:
    timm = import_timm()
    image_options, options = split_options(identifier.options)
    options = {key: value for key, value in options.items() if key not in PLACE_OPTIONS}
    pretrained = options.pop("pretrained", True)
    check_options(name, options)
    overlay = _weights(name, identifier, repository) if repository is not None else {}
    build = partial(timm.create_model, name, pretrained=pretrained, pretrained_cfg_overlay=dict(overlay), **options)
    try:
        module: Any = without_random_weights(build) if pretrained else build()
    except Exception as error:
        raise explain_failure(error, str(identifier)) from error
    if overlay:
        # Where the weights lay is no part of the model: it would be saved with it.
        stated = timm.get_pretrained_cfg(name).to_dict()
        module.pretrained_cfg = {**module.pretrained_cfg, **{key: stated.get(key) for key in overlay}}
    module.model_args = options
    backbone = wrap(module, identifier, image_options=image_options, facts=None if pretrained else {})
    if repository is not None:
        backbone.card = replace(backbone.card, **repository.facts)
    return backbone


def _weights(name: str, identifier: Identifier, repository: Repository) -> dict[str, Any]:
    """What timm is to take in place of a download: the file, or the numbers of a pickle, which we read ourselves."""
    stated = import_timm().get_pretrained_cfg(name).hf_hub_filename or "pytorch_model.bin"
    safe = {"pytorch_model.bin": "model", "open_clip_pytorch_model.bin": "open_clip_model"}
    names = [f"{safe.get(stated, stated.removesuffix('.bin'))}.safetensors", stated]
    file = pick_weights(repository, names, pickle=is_allowed(identifier.options, "pickle"))
    path = repository.fetch([file]) / file
    if path.suffix == ".safetensors":
        return {"file": str(path), "custom_load": False}
    return {"state_dict": read_state(path), "custom_load": False}


def build(name: str, options: Mapping[str, Any]) -> nn.Module:
    """An architecture without weights, for a checkpoint that lies elsewhere."""
    check_name(name)
    check_options(name, options)
    try:
        return import_timm().create_model(name, pretrained=False, **options)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise CheckpointError(f"timm cannot build {name!r} with {dict(options)}: {error}") from error


def wrap(
    module: nn.Module,
    identifier: Identifier,
    *,
    image_options: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> HalvesBackbone:
    """A backbone out of a timm network, preprocessed as its own configuration says unless options say otherwise."""
    data = require("timm.data", extra="vision", purpose="Image preprocessing")
    own: Any = module
    config = ImageConfig.from_pretrained_cfg(data.resolve_data_config({}, model=own)).updated(image_options)
    known = {"source_data": _source_data(own.pretrained_cfg), "licence": own.pretrained_cfg.get("license")}
    return HalvesBackbone(
        module,
        identifier=str(identifier),
        architecture=own.pretrained_cfg.get("architecture", type(own).__name__),
        config=config,
        source_classes=own.num_classes or None,
        facts=known if facts is None else facts,
    )


def list_models(pattern: str) -> ModelListing:
    """Models of timm with weights; with no hub to reach, those whose weights are in the local cache."""
    timm = import_timm()
    names = fnmatch.filter(timm.list_pretrained(), pattern)
    if not names and "*" not in pattern:
        names = timm.list_pretrained(f"{pattern}*")
    local = local_repositories()
    notes = []
    if (silence := hub_silence()) is not None:
        names = [name for name in names if _repository(name) in local]
        notes.append(f"Only timm models in the local cache are listed: {silence}.")
    downloads = downloads_of_owner("timm")
    entries = (
        _entry(name, on_this_machine=_repository(name) in local, downloads=downloads.get(_repository(name) or ""))
        for name in names
    )
    return ModelListing(entries, notes)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that would bring in weights past the rules for files."""
    wrong = sorted(NO_OPTIONS & options.keys())
    if wrong:
        raise InputError(
            f"timm/{name} takes no option {wrong[0]!r}; options are the network's own, such as num_classes. For "
            f"weights in a file write file:PATH?arch=timm/{name}."
        )


def check_name(name: str) -> None:
    """Refuse a name that timm does not have, and offer the nearest one."""
    timm = import_timm()
    if name.startswith("local-dir:"):
        raise InputError(f"timm/{name}: a folder that timm saved is named file:{name.removeprefix('local-dir:')}.")
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        hint = did_you_mean(architecture, timm.list_models(), "timm/")
        raise ModelNotFoundError(f"timm {timm.__version__} has no model {architecture!r}.{hint}")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise ModelNotFoundError(
            f"timm has no weights {tag!r} for {architecture!r}; it has {', '.join(tags) or 'none'}."
        )


def import_timm() -> Any:
    """The library, after making sure that torchvision does not stand in its way."""
    prepare_torchvision()
    return require("timm", extra="vision", purpose="Models of timm")


def _entry(name: str, *, on_this_machine: bool, downloads: int | None) -> ModelEntry:
    config = import_timm().get_pretrained_cfg(name).to_dict()
    params = _count_params(name.partition(".")[0], config.get("num_classes"))
    return ModelEntry(
        identifier=f"timm/{name}",
        params=params,
        source_data=_source_data(config),
        licence=config.get("license"),
        input_size=config.get("input_size", (0, 0, None))[-1],
        downloads=downloads,
        on_this_machine=on_this_machine,
        modalities=("image",),
    )


@functools.cache
def _count_params(architecture: str, num_classes: int | None) -> int | None:
    """Built on the meta device, where no memory is taken: some tens of milliseconds per architecture."""
    import torch

    try:
        with torch.device("meta"):
            module = import_timm().create_model(architecture, num_classes=num_classes)
    except Exception:  # A few architectures compute with values while they are built.
        return None
    return count_params(module)


def _repository(name: str) -> str | None:
    config = import_timm().get_pretrained_cfg(name)
    repository = config.hf_hub_id if config else None
    return repository if not repository or not repository.endswith("/") else f"{repository}{name}"


_SOURCE_DATA = {
    "in1k": "ImageNet-1k",
    "in12k": "ImageNet-12k",
    "in21k": "ImageNet-21k",
    "in22k": "ImageNet-22k",
    "laion2b": "LAION-2B",
    "laion400m": "LAION-400M",
    "openai": "OpenAI WIT",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
    "webli": "WebLI",
    "dfn2b": "DFN-2B",
    "dfn5b": "DFN-5B",
    "datacompxl": "DataComp-XL",
    "metaclip": "MetaCLIP",
    "jft": "JFT",
    "inat21": "iNaturalist 2021",
    "yfcc": "YFCC",
}


def _source_data(config: Mapping[str, Any]) -> str | None:
    """The data sets that the tag of the weights names, in order: `..._in21k_ft_in1k` was trained on both."""
    tag = str(config.get("tag") or "")
    found = [_SOURCE_DATA[part] for part in tag.split("_") if part in _SOURCE_DATA]
    return ", then ".join(dict.fromkeys(found)) or None
