"""A backbone with a new head, written so that the library it came from opens it again, and what lies beside it.

Networks of timm save themselves (`hubscout.hubs.vision`). Those of transformers are saved as the first of these that
expresses them exactly, which is checked on an example:

| backbone | saved as |
|---|---|
| words (tagging) | `AutoModelForTokenClassification` |
| image transformers by class token, maps by pooler | `AutoModelForImageClassification` |
| texts by `head`, BERT's by `pooler`, decoders' by `last` | `AutoModelForSequenceClassification` |
| texts by another pooling | a sentence-transformers folder whose last part is the head: `encode` gives the logits |
| the rest (audio, unusual heads, no sentence-transformers) | the backbone by `save_pretrained`, the head beside it |

The sequence classifiers of transformers put a layer of their own between pooling and head (BERT, RoBERTa): features
that are not taken behind it cannot be saved as one. Those of decoders take no bias, which moves into their last norm.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.credentials import strip_credentials
from hubscout.errors import CheckpointError, ModelError
from hubscout.file_identifiers import IdentifierFromFile
from hubscout.hubs.pooling import select_words
from hubscout.hubs.text_preprocessing import WORD_ENDS, WORDS, TextPreprocessing
from hubscout.hubs.transformer import last_layer

if TYPE_CHECKING:
    from torch import nn

    from hubscout.hubs.backbone import Backbone, Batch
    from hubscout.hubs.sentence_transformers_hub import SentenceBackbone
    from hubscout.hubs.transformer import TransformerBackbone

DESCRIPTION = "hubscout.json"
"""The file that says what a saved folder holds: kind of task, target names, where the backbone came from."""
HEAD_WEIGHTS = "head.safetensors"
SENTENCE_ENCODER = "SentenceTransformer"
"""`saved_as` of a folder whose last part is the head."""
_FORMAT = 1
_TOLERANCE = 1e-4
_TEXT = "Shares fell sharply on Monday, after a long week of trading in London."
_OVER_WORDS = frozenset({"tagging"})
"""Kinds of task whose head says something of every word."""
_PROBLEM_TYPES = {"regression": "regression", "multilabel": "multi_label_classification"}
_POOLING_NAMES = {"cls": "cls", "mean": "mean", "max": "max", "last": "lasttoken"}


def write_description(folder: Path, backbone: Backbone, *, target_names: Sequence[str], kind: str, **more: Any) -> None:
    """Write `hubscout.json`."""
    content = {
        "format": _FORMAT,
        "backbone": backbone.card.identifier,
        "architecture": backbone.card.architecture,
        "feature_dim": backbone.card.feature_dim,
        "kind": kind,
        "target_names": list(target_names),
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = strip_credentials(json.dumps(content, indent=2, ensure_ascii=False))
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def read_description(folder: Path) -> dict[str, Any]:
    """What `write_description` wrote; empty where there is none."""
    path = folder / DESCRIPTION
    return read_settings(path) if path.is_file() else {}


def read_settings(path: Path) -> Any:
    """A file of settings."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def lineage(described: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """What the card of a tuned model says of where it came from, by the description in the file `origin`."""
    base = described.get("backbone")
    return {"tuned_from": IdentifierFromFile(base, origin)} if base else {}


def linear_layer(head: nn.Module, targets: int, feature_dim: int | None = None) -> nn.Linear:
    """The one linear layer that a head is; dropout around it does not count. Of any width where none is given."""
    from torch import nn

    layers = [part for part in head.modules() if isinstance(part, nn.Linear)]
    width = layers[0].in_features if layers and feature_dim is None else feature_dim
    if len(layers) != 1 or (layers[0].in_features, layers[0].out_features) != (width, targets):
        raise ModelError(
            f"Only a head of one linear layer from {width or 'the'} features to {targets} targets can be saved, "
            f"got {head}."
        )
    return layers[0]


def copy_linear(layer: nn.Linear, into: nn.Linear) -> None:
    """Give one linear layer the weights of another of the same shape; a bias that the first does not have is zero."""
    import torch

    with torch.no_grad():
        into.weight.copy_(layer.weight)
        if into.bias is not None:
            into.bias.zero_() if layer.bias is None else into.bias.copy_(layer.bias)


def save_module(module: nn.Module, path: Path) -> None:
    """Write the weights of a module as safetensors."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}, path)


def save_transformer(
    backbone: TransformerBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> None:
    """Write the backbone and the head in the first way of the table that keeps the logits."""
    layer = copy.deepcopy(linear_layer(head, len(target_names))).cpu().float()
    folder.mkdir(parents=True, exist_ok=True)
    base = copy.deepcopy(backbone._base).cpu()
    of_texts = backbone.modality == "text" and kind not in _OVER_WORDS
    output = {"image": "Image", "text": "Sequence" if of_texts else "Token", "audio": None}[backbone.modality]
    if of_texts and getattr(base.config, "is_encoder_decoder", False):
        output = None
    saved_as = None
    if layer.in_features == backbone.card.feature_dim:  # else it is a head over siamese pairs, which no class has
        if output:
            saved_as = _save_as(f"{output}Classification", base, layer, backbone, folder, target_names, kind)
        if saved_as is None and of_texts and backbone.pooling in _POOLING_NAMES and find_spec("sentence_transformers"):
            saved_as = _save_as_sentence_encoder(base, layer, backbone, folder)
    if saved_as is None:
        base.save_pretrained(folder)
        save_module(layer, folder / HEAD_WEIGHTS)
        saved_as = "backbone and head"
    for name in ("tokenizer", "processor", "extractor"):
        if (part := getattr(backbone.preprocessing, name, None)) is not None:
            part.save_pretrained(folder)
    more = {"saved_as": saved_as, "pooling": backbone.pooling, **_reading(backbone)}
    write_description(folder, backbone, target_names=target_names, kind=kind, **more)


def save_sentence_encoder(
    backbone: SentenceBackbone, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str
) -> None:
    """Write the encoder with the head as its last part, or beside it if it is over words or siamese pairs."""
    from sentence_transformers import SentenceTransformer

    layer = linear_layer(head, len(target_names))
    parts = [copy.deepcopy(part).cpu() for part in backbone._parts]
    in_chain = kind not in _OVER_WORDS and layer.in_features == backbone.card.feature_dim
    SentenceTransformer(modules=[*parts, _dense(layer)] if in_chain else parts, device="cpu").save(str(folder))
    if not in_chain:
        save_module(layer, folder / HEAD_WEIGHTS)
    more = {"saved_as": SENTENCE_ENCODER if in_chain else "encoder and head", **_reading(backbone)}
    write_description(folder, backbone, target_names=target_names, kind=kind, **more)


def _reading(backbone: SentenceBackbone | TransformerBackbone) -> dict[str, str]:
    """How the texts of a pair, and the tokens of a word, are read: the libraries have no place for it."""
    preprocessing = backbone.preprocessing
    if not isinstance(preprocessing, TextPreprocessing):
        return {}
    words = {"words": preprocessing.words} if preprocessing.words != "first" else {}
    return {"pairs": preprocessing.pairs, **words}


def _dense(layer: nn.Linear) -> Any:
    """The head as a part of a sentence encoder."""
    from sentence_transformers.models import Dense
    from torch import nn

    dense = Dense(layer.in_features, layer.out_features, bias=True, activation_function=nn.Identity())
    copy_linear(layer, dense.linear)
    return dense


def _save_as(
    output: str,
    base: Any,
    layer: nn.Linear,
    backbone: TransformerBackbone,
    folder: Path,
    target_names: Sequence[str],
    kind: str,
) -> str | None:
    """Save as a class of transformers if that has the same logits; None if it has not."""
    import transformers

    config = copy.deepcopy(base.config)
    config.num_labels = len(target_names)
    config.id2label = dict(enumerate(target_names))
    config.label2id = {name: index for index, name in enumerate(target_names)}
    config.problem_type = _PROBLEM_TYPES.get(kind, "single_label_classification")
    if isinstance(backbone.preprocessing, TextPreprocessing) and config.pad_token_id is None:
        # Classifiers of the last token look for the padding by its id.
        config.pad_token_id = backbone.preprocessing.pad_id
    try:
        model = getattr(transformers, f"AutoModelFor{output}").from_config(config).eval()
    except (ValueError, KeyError):
        return None
    state = backbone.module.state_dict() if backbone.pooling == "head" else None
    _fill(model, base.state_dict(), state)
    classifier = last_layer(model)
    if classifier is None or classifier.weight.shape != layer.weight.shape:
        return None
    copy_linear(layer, classifier)
    lost = classifier.bias is None and layer.bias is not None
    if lost and not _absorb(layer, getattr(model, model.base_model_prefix)):
        return None
    if not _agrees(model, layer, backbone):
        return None
    model.save_pretrained(folder)
    return type(model).__name__


def _fill(model: Any, of_base: dict[str, Any], of_classifier: dict[str, Any] | None) -> None:
    """The backbone's weights; for features of a classifier also those of its layers before the last."""
    own = getattr(model, model.base_model_prefix)
    known = own.state_dict()
    own.load_state_dict({name: value for name, value in of_base.items() if name in known}, strict=False)
    if of_classifier is not None:
        shapes = {name: value.shape for name, value in model.state_dict().items()}
        fitting = {name: value for name, value in of_classifier.items() if shapes.get(name) == value.shape}
        model.load_state_dict(fitting, strict=False)


def _absorb(layer: nn.Linear, own: nn.Module) -> bool:
    """Move the head's bias into the shift of the norm that ends the network, for classes whose head has none.

    W (h + Δ) = W h + b for Δ = W⁺ b, exactly where the rows of W are independent; whether that norm is the last thing
    that happens to the features is seen when the logits are compared.
    """
    import torch
    from torch import nn

    norms = [part for part in own.modules() if isinstance(part, nn.LayerNorm) and part.bias is not None]
    if not norms or norms[-1].bias.shape != layer.weight.shape[1:]:
        return False
    with torch.no_grad():
        solved = torch.linalg.lstsq(layer.weight.double(), layer.bias.double()[:, None], driver="gelsd")
        norms[-1].bias.add_(solved.solution[:, 0])
    return True


def _agrees(model: Any, layer: nn.Linear, backbone: TransformerBackbone) -> bool:
    """Whether the class gives the logits that pooling and head give: on noise, on words, on texts of two lengths."""
    import torch

    batch = _example(backbone, words="ForTokenClassification" in type(model).__name__)
    device = next(backbone.module.parameters()).device
    accepted = {name: value for name, value in batch.items() if name in backbone._accepted}
    backbone.module.eval()
    with torch.no_grad():
        expected = layer(backbone.forward({name: value.to(device) for name, value in batch.items()}).features.cpu())
        found = model(**accepted).logits
        if found.ndim == 3:
            found = select_words(found, batch[WORDS], batch.get(WORD_ENDS))
    return found.shape == expected.shape and bool(torch.allclose(found, expected, atol=_TOLERANCE, rtol=_TOLERANCE))


def _example(backbone: TransformerBackbone, *, words: bool) -> Batch:
    """Two inputs of different length, so that padding is among what is compared."""
    import torch

    preprocessing = backbone.preprocessing
    if isinstance(preprocessing, TextPreprocessing):
        samples: list[Any] = [_TEXT.split(), _TEXT.split()[:3]] if words else [_TEXT, _TEXT[:12]]
        return preprocessing.collate([preprocessing(sample) for sample in samples])
    generator = torch.Generator().manual_seed(0)
    example = backbone._example()
    noise = {name: torch.randn(v.shape, generator=generator) for name, v in example.items() if v.is_floating_point()}
    return {**example, **noise}


def _save_as_sentence_encoder(base: Any, layer: nn.Linear, backbone: TransformerBackbone, folder: Path) -> str:
    """A chain of the network, the pooling and the head."""
    import tempfile

    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    preprocessing = backbone.preprocessing
    assert isinstance(preprocessing, TextPreprocessing)
    with tempfile.TemporaryDirectory() as plain:
        base.save_pretrained(plain)
        preprocessing.tokenizer.save_pretrained(plain)
        network = Transformer(plain, max_seq_length=preprocessing.max_length)
        pooling = Pooling(layer.in_features, pooling_mode=_POOLING_NAMES[backbone.pooling])
        SentenceTransformer(modules=[network, pooling, _dense(layer)], device="cpu").save(str(folder))
    return SENTENCE_ENCODER
