"""Text, image and audio backbones with a new head, for transformers or sentence-transformers to open.

What the library's own classes can express exactly is saved as one of them, and checked on an example:

| backbone | saved as |
|---|---|
| words (tagging) | `AutoModelForTokenClassification` |
| image transformers by class token, maps by pooler | `AutoModelForImageClassification` |
| texts, by any pooling | a sentence-transformers folder whose last part is the head: `encode` gives the logits |
| the rest (audio, unusual heads) | the backbone by `save_pretrained`, the head beside it |

The sequence classifiers of transformers put a trained layer of their own between pooling and head (BERT, RoBERTa), or
take no bias (GPT-2): with them the logits would change, which is why texts go the other way.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.hubs.saving import HEAD_WEIGHTS, linear_layer, write_description

if TYPE_CHECKING:
    from torch import nn

    from hubscout.hubs.sentence_transformers_hub import SentenceBackbone
    from hubscout.hubs.transformer import TransformerBackbone

_TOLERANCE = 1e-4
_POOLING_NAMES = {"cls": "cls", "mean": "mean", "max": "max", "last": "lasttoken"}


def save_transformer(
    backbone: TransformerBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> None:
    """Write the backbone and the head in the first way of the table that keeps the logits."""
    layer = copy.deepcopy(linear_layer(head, backbone.card.feature_dim, len(target_names))).cpu().float()
    folder.mkdir(parents=True, exist_ok=True)
    base = copy.deepcopy(backbone._base).cpu()
    automatic = {"image": "AutoModelForImageClassification"}.get(backbone.modality)
    if backbone.modality == "text" and kind == "tagging":
        automatic = "AutoModelForTokenClassification"
    saved_as = _save_as(automatic, base, layer, backbone, folder, target_names, kind) if automatic else None
    if saved_as is None and backbone.modality == "text" and kind != "tagging" and backbone.pooling in _POOLING_NAMES:
        saved_as = _save_as_sentence_encoder(base, layer, backbone, folder)
    if saved_as is None:
        saved_as = _save_beside(base, layer, backbone, folder)
    _save_preprocessing(backbone, folder)
    write_description(
        folder, backbone, target_names=target_names, kind=kind, saved_as=saved_as, pooling=backbone.pooling
    )


def save_sentence_encoder(
    backbone: SentenceBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> None:
    """Write the encoder with the head as its last part."""
    from sentence_transformers import SentenceTransformer

    width = backbone.card.feature_dim
    if kind == "tagging" or _head_width(head) != width:
        # A head over words or over siamese pairs has no place in a chain of parts.
        layer = linear_layer(head, _head_width(head), len(target_names))
        SentenceTransformer(modules=copy.deepcopy(backbone._parts), device="cpu").save(str(folder))
        _save_head(layer, folder)
        write_description(folder, backbone, target_names=target_names, kind=kind, saved_as="encoder and head")
        return
    layer = linear_layer(head, width, len(target_names))
    parts = [*(copy.deepcopy(part).cpu() for part in backbone._parts), _dense(layer)]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder))
    write_description(folder, backbone, target_names=target_names, kind=kind, saved_as="SentenceTransformer")


def _head_width(head: nn.Module) -> int:
    from torch import nn

    return next((part.in_features for part in head.modules() if isinstance(part, nn.Linear)), 0)


def _dense(layer: nn.Linear) -> Any:
    """The head as a part of a sentence encoder."""
    import torch
    from sentence_transformers.models import Dense
    from torch import nn

    dense = Dense(layer.in_features, layer.out_features, bias=True, activation_function=nn.Identity())
    with torch.no_grad():
        dense.linear.weight.copy_(layer.weight.cpu())
        dense.linear.bias.zero_() if layer.bias is None else dense.linear.bias.copy_(layer.bias.cpu())
    return dense


def _save_as(
    automatic: str,
    base: Any,
    layer: nn.Linear,
    backbone: TransformerBackbone,
    folder: Path,
    target_names: Sequence[str],
    kind: str,
) -> str | None:
    """Save as a class of transformers if that has the same logits; None if it has not."""
    import torch
    import transformers
    from torch import nn

    config = copy.deepcopy(base.config)
    config.num_labels = len(target_names)
    config.id2label = dict(enumerate(target_names))
    config.label2id = {name: index for index, name in enumerate(target_names)}
    config.problem_type = {
        "regression": "regression",
        "multilabel": "multi_label_classification",
    }.get(kind, "single_label_classification")
    try:
        model = getattr(transformers, automatic).from_config(config).eval()
    except (ValueError, KeyError):
        return None
    own = getattr(model, model.base_model_prefix)
    known = own.state_dict()
    own.load_state_dict({name: value for name, value in base.state_dict().items() if name in known}, strict=False)
    classifier = getattr(model, "classifier", None) or getattr(model, "score", None)
    if not isinstance(classifier, nn.Linear) or classifier.weight.shape != layer.weight.shape:
        return None
    if classifier.bias is None and layer.bias is not None:
        return None
    with torch.no_grad():
        classifier.weight.copy_(layer.weight)
        if classifier.bias is not None:
            classifier.bias.zero_() if layer.bias is None else classifier.bias.copy_(layer.bias)
    if not _agrees(model, base, layer, backbone):
        return None
    model.save_pretrained(folder)
    return type(model).__name__


def _agrees(model: Any, base: Any, layer: nn.Linear, backbone: TransformerBackbone) -> bool:
    """Whether the class gives the logits that pooling and head give, on noise or on a few tokens."""
    import torch

    example = {name: value for name, value in backbone._example().items() if name in backbone._accepted}
    generator = torch.Generator().manual_seed(0)
    for name, value in example.items():
        if value.is_floating_point():
            example[name] = torch.randn(value.shape, generator=generator)
    base.eval()
    with torch.no_grad():
        found = model(**example).logits
        inner = base(**example)
        if found.ndim == 3:
            expected = layer(inner["last_hidden_state"])
        else:
            pooler = inner.get("pooler_output")
            use_pooler = backbone.pooling == "pooler" and pooler is not None
            from hubscout.hubs.pooling import pool

            expected = layer(
                pooler.flatten(1) if use_pooler else pool(inner["last_hidden_state"], None, backbone.pooling)
            )
    return found.shape == expected.shape and bool(torch.allclose(found, expected, atol=_TOLERANCE, rtol=_TOLERANCE))


def _save_as_sentence_encoder(base: Any, layer: nn.Linear, backbone: TransformerBackbone, folder: Path) -> str:
    """A chain of the network, the pooling and the head."""
    import tempfile

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    from hubscout.hubs.text_preprocessing import TextPreprocessing

    preprocessing = backbone.preprocessing
    assert isinstance(preprocessing, TextPreprocessing)
    with tempfile.TemporaryDirectory() as plain:
        base.save_pretrained(plain)
        preprocessing.tokenizer.save_pretrained(plain)
        network = Transformer(plain, max_seq_length=preprocessing.max_length)
        pooling = Pooling(layer.in_features, pooling_mode=_POOLING_NAMES[backbone.pooling])
        SentenceTransformer(modules=[network, pooling, _dense(layer)], device="cpu").save(str(folder))
    return "SentenceTransformer"


def _save_beside(base: Any, layer: nn.Linear, backbone: TransformerBackbone, folder: Path) -> str:
    base.save_pretrained(folder)
    _save_head(layer, folder)
    return "backbone and head"


def _save_head(layer: nn.Linear, folder: Path) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value.detach().cpu().clone().contiguous() for name, value in layer.state_dict().items()}
    save_file(state, folder / HEAD_WEIGHTS)


def _save_preprocessing(backbone: TransformerBackbone, folder: Path) -> None:
    for name in ("tokenizer", "processor", "extractor"):
        part = getattr(backbone.preprocessing, name, None)
        if part is not None:
            part.save_pretrained(folder)
