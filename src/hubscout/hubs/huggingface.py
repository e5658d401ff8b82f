"""`hf/ID`: text, image and audio models of transformers, by hub name or, behind `file:`, from a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.errors import CheckpointError, InputError, ModelError, check_choice
from hubscout.hubs import timm_hub
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.connection import explain_failure, needs_code
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import search as list_models
from hubscout.hubs.pooling import UNTRAINED_POOLER, check_pooling
from hubscout.hubs.processors import open_preprocessing
from hubscout.hubs.repository import PLACE_OPTIONS, Repository, fetch_model, is_allowed, open_repository
from hubscout.hubs.saving import DESCRIPTION, SENTENCE_ENCODER, read_description
from hubscout.hubs.text_preprocessing import Pairs
from hubscout.hubs.torchvision_compat import prepare_torchvision
from hubscout.hubs.transformer import TransformerBackbone, modality_of
from hubscout.light_imports import before_user_code
from hubscout.optional import require

if TYPE_CHECKING:
    from torch import nn

__all__ = ["list_models", "load"]

_OPTIONS = ("pooling", "words", "pairs", "max_length", "tower", "head", *PLACE_OPTIONS)


def load(identifier: Identifier) -> Backbone:
    """A model by its name on the Hugging Face Hub, from the local cache where it is there. timm's models open too."""
    repository = open_repository(identifier.name, identifier)
    options = identifier.options
    config = repository.read_json("config.json")
    if "architecture" in config and "model_type" not in config:
        return timm_hub.load_repository(repository, config, identifier)
    identifier.check_options(_OPTIONS)
    if not config:
        raise ModelError(
            f"{identifier}: {identifier.name} has no config.json, so it is not a model of transformers or timm. "
            f"Its files: {', '.join(sorted(repository.sizes)[:8]) or 'none'}."
        )
    known = config.get("model_type") in import_transformers().CONFIG_MAPPING
    if "auto_map" in config and not known and not is_allowed(options, "trust_remote_code"):
        raise needs_code(str(identifier))  # before its weights are fetched
    described = repository.read_json(DESCRIPTION)
    if described.get("saved_as") == SENTENCE_ENCODER and "pooling" not in options:
        from hubscout.hubs import sentence_transformers_hub

        return sentence_transformers_hub.load(identifier)
    return open_model(fetch_model(repository, options), identifier, repository=repository)


def open_model(
    folder: Path,
    identifier: Identifier,
    *,
    repository: Repository | None = None,
    default_pairs: Pairs = "cross",
) -> TransformerBackbone:
    """The model in a folder that `save_pretrained` wrote, in float32; `repository` is where the folder came from.

    Options: `pooling`; `words` (first, last or mean: which tokens stand for a word); `pairs` (cross or siamese);
    `max_length` in tokens; `tower` (vision or text, of a two-tower model); `head=false` to leave out a source head;
    `trust_remote_code=true`, without which no code of a repository is run. Of the Hub also `revision`, and
    `pickle=true` where there are no other weights.
    """
    transformers = import_transformers()
    # How hubscout tuned a model is what it wrote beside the weights: its head fits no other features.
    described = read_description(folder)
    saved: dict[str, Any] = {name: described[name] for name in ("pooling", "words", "pairs") if name in described}
    options: dict[str, Any] = {"pairs": default_pairs, **saved, **identifier.options}
    identifier.check_options(_OPTIONS)
    source = str(folder)
    # Always said: left out, the library asks on the terminal, and takes a y from anywhere.
    trust = {"trust_remote_code": is_allowed(options, "trust_remote_code")}
    if trust["trust_remote_code"]:
        before_user_code()
    try:
        with quiet(transformers):
            config = transformers.AutoConfig.from_pretrained(source, **trust)
            whole, missing = _load_network(transformers, source, config, options, trust)
            network = part_for_features(whole, options.get("tower"))
            modality = modality_of(network)
            _refuse_missing(whole, network, missing, identifier)
            pooling = check_pooling(options["pooling"]) if options.get("pooling") else None
            preprocessing = open_preprocessing(transformers, source, network, modality, options, trust, str(identifier))
    except Exception as error:
        raise explain_failure(error, str(identifier)) from error
    return TransformerBackbone(
        network,
        identifier=str(identifier),
        preprocessing=preprocessing,
        pooling=pooling,
        facts=repository.facts if repository else {},
        new_head=pooling == "head" and any(_belongs_to_head(whole, name) for name in missing),
    )


def import_transformers() -> Any:
    """The library, after making sure that torchvision does not stand in its way."""
    prepare_torchvision()
    return require("transformers", extra="text", purpose="Models of transformers")


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without the library's reports and progress bars, whose content becomes our errors."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


_HEADS = {
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "AutoModelForAudioClassification"),
    "ForTokenClassification": ("AutoModelForTokenClassification",),
    "ForImageClassification": ("AutoModelForImageClassification",),
    "ForAudioClassification": ("AutoModelForAudioClassification",),
}


def _load_network(
    transformers: Any, source: str, config: Any, options: dict[str, Any], trust: dict[str, Any]
) -> tuple[nn.Module, set[str]]:
    """The whole network, and the names of parameters that the checkpoint does not have, drawn with a fixed seed."""
    import torch

    automatic = _automatic_class(transformers, config, options)
    # Shapes that differ are let through here, because the library's own error does not name them.
    arguments: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True, "ignore_mismatched_sizes": True}
    arguments |= trust
    pools = automatic is not transformers.AutoModel or options.get("pooling") == "pooler"
    if not pools and config.model_type in UNTRAINED_POOLER:
        arguments["add_pooling_layer"] = False
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # `torch.manual_seed` would seed those of GPUs, which stay as they are
        try:
            model, information = automatic.from_pretrained(source, config=config, **arguments)
        except TypeError:
            arguments.pop("add_pooling_layer", None)
            model, information = automatic.from_pretrained(source, config=config, **arguments)
    mismatched = sorted(information.get("mismatched_keys") or ())
    if mismatched:
        listed = ", ".join(
            f"{name} is {tuple(there)} in the file and {tuple(here)} in the model"
            for name, there, here in mismatched[:8]
        )
        raise CheckpointError(f"{len(mismatched)} shapes in {source} do not fit: {listed}.")
    return model.eval(), set(information["missing_keys"])


def _automatic_class(transformers: Any, config: Any, options: dict[str, Any]) -> Any:
    """The class of transformers that has the head of the checkpoint, or with `pooling=head` a sequence classifier's."""
    in_two_halves = getattr(config, "is_encoder_decoder", False)
    if options.get("pooling") == "head":
        automatic = transformers.AutoModelForSequenceClassification
        if type(config) not in automatic._model_mapping or in_two_halves:
            raise InputError(f"pooling='head': transformers has no sequence classifier for {config.model_type}.")
        return automatic
    named = (getattr(config, "architectures", None) or [""])[0] or ""
    if options.get("head", True) and not in_two_halves:
        for suffix, candidates in _HEADS.items():
            for candidate in candidates if named.endswith(suffix) else ():
                if type(config) in getattr(transformers, candidate)._model_mapping:
                    return getattr(transformers, candidate)
    return transformers.AutoModel


def part_for_features(model: Any, tower: str | None) -> Any:
    """The encoder of an encoder-decoder, one tower of two, else the model itself."""
    if hasattr(model, "vision_model") and hasattr(model, "text_model"):
        check_choice("tower", tower or "vision", ("vision", "text"))
        return model.text_model if tower == "text" else model.vision_model
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def _refuse_missing(whole: nn.Module, network: nn.Module, missing: set[str], identifier: Identifier) -> None:
    """Parameters that no checkpoint filled are random, and so would be the features."""
    used = {id(parameter) for parameter in network.parameters()}
    random = [name for name, parameter in whole.named_parameters() if name in missing and id(parameter) in used]
    random = [name for name in random if ".pooler." not in f".{name}" and not _belongs_to_head(whole, name)]
    if random:
        raise CheckpointError(
            f"The checkpoint of {identifier} leaves out {len(random)} parameters that {type(network).__name__} "
            f"needs: {', '.join(random[:8])}."
        )


def _belongs_to_head(whole: Any, name: str) -> bool:
    prefix = getattr(whole, "base_model_prefix", "")
    return bool(prefix) and hasattr(whole, prefix) and not name.startswith(f"{prefix}.")
