"""`memory:NAME`: models that are objects in this process, given to `rank`, `race` or `tune` as they are.

A name leads to the object as long as somebody else holds it. Opening it makes a copy, so that the object itself stays
as it was. A model in memory has no file to be opened from again: elsewhere, or later, its name says so.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import sys
import uuid
import weakref
from collections.abc import Collection
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from hubscout.errors import InputError, ModelNotFoundError
from hubscout.hubs import huggingface, python_callable, sentence_transformers_hub, timm_hub
from hubscout.hubs.backbone import Backbone
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing
from hubscout.hubs.processors import open_processor, preprocessing_with
from hubscout.hubs.transformer import TransformerBackbone, modality_of
from hubscout.optional import is_installed

_objects: dict[str, tuple[weakref.ref[Any], Any]] = {}
"""By name: the model, and the tokenizer or processor that was given with it."""


def is_model(value: Any) -> bool:
    """Whether a value is a model in memory: a backbone, a torch module, or one with its tokenizer or processor."""
    if isinstance(value, tuple) and len(value) == 2:
        return is_model(value[0]) and not is_model(value[1]) and not isinstance(value[1], str)
    return isinstance(value, Backbone) or _is_of("torch.nn.modules.module", "Module", value)


def register(model: Any, name: str | None = None, taken: Collection[str] = ()) -> str:
    """Give a model in memory an identifier.

    Args:
        model: a torch module, a model of timm or transformers, a `SentenceTransformer`, a backbone, or a pair of a
            model of transformers and its tokenizer or processor.
        name: what it is to be called; found in the model if not given.
        taken: identifiers that are not free.

    Returns:
        The identifier, which `load` opens as long as the model is there.

    Raises:
        InputError: what is given is no model.

    """
    if not is_model(model):
        raise InputError(
            f"models: {type(model).__name__} is not a model. Give an identifier such as timm/resnet50.a1_in1k, a torch "
            'module, a model of timm, transformers or sentence-transformers, or a mapping {"name": module}.'
        )
    network, processor = model if isinstance(model, tuple) else (model, None)
    first = f"memory:{(name or _own_name(network)).replace('?', '_')}"
    names = chain([first], (f"{first}-{number}" for number in count(2)))
    chosen = next(name for name in names if name not in taken)
    _objects[chosen.removeprefix("memory:")] = (weakref.ref(network), processor)
    return chosen


def load(identifier: Identifier) -> Backbone:
    """A copy of the model of this name, on the CPU."""
    reference, processor = _objects.get(identifier.name, (None, None))
    network = None if reference is None else reference()
    if network is None:
        raise ModelNotFoundError(
            f"{identifier} was a model in memory, and it is not there any more. Give the model itself in place of its "
            "name."
        )
    if identifier.options:
        raise InputError(f"{identifier}: a model in memory takes no options.")
    return wrap(copy.deepcopy(network), identifier, processor)


def wrap(network: Any, identifier: Identifier, processor: Any = None) -> Backbone:
    """A backbone out of a model of whichever library."""
    if isinstance(network, Backbone):
        network.card = replace(network.card, identifier=str(identifier))
        return network.to("cpu")
    network = network.cpu()
    if _is_of("sentence_transformers", "SentenceTransformer", network):
        backbone: Backbone = sentence_transformers_hub.SentenceBackbone(network, identifier)
    elif _is_of("transformers", "PreTrainedModel", network):
        backbone = _wrap_transformer(network, identifier, processor)
    elif type(network).__module__.startswith("timm.") and hasattr(network, "pretrained_cfg"):
        backbone = timm_hub.wrap(network, identifier, image_options={})
    else:
        backbone = python_callable.wrap(_with_input_size(network), identifier)
    backbone.card = replace(backbone.card, code_fingerprint=_code_of(network))
    return backbone


def _wrap_transformer(model: Any, identifier: Identifier, processor: Any) -> TransformerBackbone:
    transformers = huggingface.import_transformers()
    network = huggingface.part_for_features(model.float().eval(), None)
    modality = modality_of(network)
    if processor is None:
        source = str(getattr(model, "name_or_path", "") or "")
        try:
            with huggingface.quiet(transformers):
                processor = open_processor(transformers, source, modality, {"trust_remote_code": False})
        except Exception as error:
            what = {"text": "tokenizer", "image": "image processor", "audio": "feature extractor"}[modality]
            raise InputError(
                f"{identifier}: its {what} is not found under {source or 'its name, which is empty'!r}. Give the model "
                f"together with it, as (model, {what.replace(' ', '_')})."
            ) from error
    preprocessing = preprocessing_with(processor, network, modality, {})
    return TransformerBackbone(network, identifier=str(identifier), preprocessing=preprocessing)


def _with_input_size(network: Any) -> Any:
    """A network that says nothing of its inputs and begins with a linear layer takes arrays of that layer's width."""
    first: Any = next((part for part in network.modules() if list(part.parameters(recurse=False))), None)
    says = any(hasattr(network, name) for name in ("pretrained_cfg", "num_features", "forward_features"))
    if not says and type(first).__name__ == "Linear" and not type(network).__module__.startswith("torchvision."):
        network.pretrained_cfg = {"input_size": (first.in_features,)}
    return network


def names_in_memory() -> list[str]:
    """The identifiers of the models that are there."""
    return [f"memory:{name}" for name, (reference, _) in _objects.items() if reference() is not None]


def list_models(pattern: str) -> ModelListing:
    """Those that are there, by their full names."""
    found = (name for name in names_in_memory() if name == f"memory:{pattern}")
    return ModelListing(ModelEntry(identifier=name, on_this_machine=True) for name in found)


def _own_name(network: Any) -> str:
    if isinstance(network, Backbone):
        return network.card.identifier.replace(":", "/").rpartition("/")[2]
    known = getattr(network, "pretrained_cfg", None) or {}
    named = network
    if _is_of("sentence_transformers", "SentenceTransformer", network):  # which keeps the name in its first part
        named = getattr(network[0], "auto_model", network)
    path = str(getattr(named, "name_or_path", "") or "").rstrip("/").rpartition("/")[2]
    return str(known.get("architecture") or path or type(network).__name__)


def _code_of(network: Any) -> str:
    """A hash of the user's own classes in a network; one that never occurs again where their source cannot be read."""
    sources = []
    kinds: set[Any] = {type(part) for part in network.modules()}
    for kind in sorted(kinds, key=lambda kind: kind.__qualname__):
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if not file or not is_installed(Path(file).resolve()):
            sources.append(_source_of(kind))
    return hashlib.blake2b("\n".join(sources).encode(), digest_size=16).hexdigest() if sources else ""


@functools.cache
def _source_of(kind: Any) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return uuid.uuid4().hex


def _is_of(package: str, name: str, value: Any) -> bool:
    return any(kind.__name__ == name and kind.__module__.startswith(package) for kind in type(value).__mro__)
