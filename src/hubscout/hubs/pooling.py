"""From one vector per token to one per sample, or one per word.

The default by architecture, in the order in which it is looked up:

| model | pooling | why |
|---|---|---|
| `clip`, `siglip` and their kin | pooler | trained as the output of the tower |
| image networks that give maps (ConvNeXt, ResNet) | pooler | the average that their heads see |
| BEiT, Data2Vec, Hiera | pooler | the normalised average that their heads see |
| image transformers without a class token (Swin, I-JEPA) | mean | there is no token to take |
| other image transformers (ViT, DeiT, DINOv2) | cls | what their heads see |
| audio | mean | over the frames that are not padding |
| decoder-only text models | last | the only token that has seen the whole text |
| encoders, and the encoder of an encoder-decoder | mean | their class token means little before fine-tuning |

`head` is none of these defaults: the features are what the last layer of the architecture's own sequence classifier
takes, after whatever that puts between pooling and classes (BERT's pooler, a dense layer in RoBERTa). Where the
checkpoint has no such layer it is new, drawn with a fixed seed: something to tune, not to rank by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from hubscout.errors import InputError, check_choice
from hubscout.hubs.backbone import Output

if TYPE_CHECKING:
    from torch import Tensor, nn

Pooling = Literal["cls", "mean", "max", "last", "pooler", "head"]
WordPooling = Literal["first", "last", "mean"]
"""Which of its tokens stand for a word."""

_BY_POOLER = frozenset({"clip", "clip_vision_model", "siglip", "siglip_vision_model", "siglip2", "chinese_clip"})
_BY_POOLER |= {"clip_text_model", "siglip_text_model", "altclip", "metaclip_2", "siglip2_vision_model"}
_BY_POOLER |= {"siglip2_text_model", "metaclip_2_vision_model", "metaclip_2_text_model"}
_BY_POOLER |= {"beit", "data2vec-vision", "hiera"}
_WITHOUT_CLASS_TOKEN = frozenset({"swin", "swinv2", "donut-swin", "segformer", "focalnet", "ijepa"})
_BY_POOLER_WITHOUT_CLASS_TOKEN = frozenset(
    {"siglip", "siglip_vision_model", "siglip2", "siglip2_vision_model", "hiera"}
)
_CAUSAL_TOWERS = frozenset({"clip_text_model", "metaclip_2_text_model", "siglip_text_model", "siglip2_text_model"})
_MAPS = frozenset({"convnext", "convnextv2", "resnet", "regnet", "mobilenet_v1", "mobilenet_v2", "efficientnet", "bit"})
_MAPS |= {"poolformer", "van", "cvt", "mobilevit", "mobilevitv2", "levit"}
UNTRAINED_POOLER = frozenset({"albert", "bert", "big_bird", "camembert", "data2vec-text", "deit", "electra", "ernie"})
UNTRAINED_POOLER |= {"ibert", "luke", "megatron-bert", "mobilebert", "mpnet", "nezha", "rembert", "roberta"}
UNTRAINED_POOLER |= {"roberta-prelayernorm", "splinter", "vit", "vit_msn", "xlm-roberta", "xlm-roberta-xl", "xmod"}
UNTRAINED_POOLER |= {"yolos"}
"""Many checkpoints of these lack the pooler's weights, and the pooling of the table does not use it."""


MEAN_LAYER = "mean"
"""The name of the average over all layers, beside those of single layers."""


def default_pooling(model_type: str, modality: str, *, causal: bool) -> Pooling:
    """The pooling of the table above.

    >>> default_pooling("bert", "text", causal=False), default_pooling("gpt2", "text", causal=True)
    ('mean', 'last')
    """
    if model_type in _BY_POOLER or model_type in _MAPS:
        return "pooler"
    if modality == "image":
        return "mean" if model_type in _WITHOUT_CLASS_TOKEN else "cls"
    return "last" if causal and modality != "audio" else "mean"


def state_pooling(pooling: Pooling, model_type: str, modality: str, *, causal: bool) -> Pooling:
    """How hidden states are pooled where the features come from a pooler or a head, which the states have not passed.

    As near to it as a token is: the class token, the last one where only that has seen the whole text, or the mean
    where no token stands for the rest.

    >>> state_pooling("pooler", "clip_text_model", "text", causal=False)
    'last'
    """
    if pooling not in ("pooler", "head"):
        return pooling
    if modality == "text":
        return "last" if causal or model_type in _CAUSAL_TOWERS else "cls"
    if modality == "audio" or model_type in _WITHOUT_CLASS_TOKEN | _BY_POOLER_WITHOUT_CLASS_TOKEN:
        return "mean"
    return "cls"


def check_pooling(pooling: Any) -> Pooling:
    """Refuse a pooling that does not exist."""
    check_choice("pooling", pooling, get_args(Pooling))
    return pooling


def pool(hidden: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """(n, D) from (n, tokens, D), or from a map (n, D, height, width); `mask` is 1 for tokens that are not padding.

    Hidden states may be coarser than the tokens (CANINE, Funnel): a place counts if a token that it stands for does.
    """
    import torch

    if hidden.ndim == 2:
        return hidden
    if hidden.ndim == 4:
        return hidden.amax((2, 3)) if pooling == "max" else hidden.mean((2, 3))
    if pooling in ("cls", "pooler", "head"):
        return hidden[:, 0]
    if mask is None:
        return hidden.mean(1) if pooling == "mean" else hidden.amax(1) if pooling == "max" else hidden[:, -1]
    if mask.shape[1] != hidden.shape[1]:
        mask = torch.nn.functional.adaptive_max_pool1d(mask.float()[:, None], hidden.shape[1])[:, 0].to(mask.dtype)
    if pooling == "mean":
        weights = mask.to(hidden.dtype)[..., None]
        return (hidden * weights).sum(1) / weights.sum(1).clamp_min(1)
    if pooling == "max":
        return hidden.masked_fill(mask[..., None] == 0, torch.finfo(hidden.dtype).min).amax(1)
    # The place of the last 1 in the mask, wherever the padding is.
    places = torch.arange(hidden.shape[1], device=hidden.device)
    last = (mask * places).amax(1).long()
    # Not `len`, which tracing takes for a constant.
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), last]


def layer_state(states: Sequence[Tensor], name: str) -> Tensor:
    """The hidden states of a layer: those of `layer.N`, or for `mean` the average of all that a block gave."""
    import torch

    if name == MEAN_LAYER:
        return torch.stack(list(states[1:])).mean(0)
    return states[int(name.rpartition(".")[2])]


def select_words(hidden: Tensor, positions: Tensor, ends: Tensor | None = None) -> Tensor:
    """(words in the batch, D): the token of each word, sample after sample; -1 in `positions` is no word.

    With `ends`, the average of the tokens from `positions` to `ends`, both included.
    """
    import torch

    if ends is None:
        rows, places = (positions >= 0).nonzero(as_tuple=True)
        return hidden[rows, positions[rows, places]]
    places = torch.arange(hidden.shape[1], device=hidden.device)
    inside = ((places >= positions[..., None]) & (places <= ends[..., None])).to(hidden.dtype)
    means = (inside @ hidden) / inside.sum(-1, keepdim=True).clamp_min(1)
    return means[positions >= 0]


PAIR_PARTS = 4
"""How many times as wide as a text's are the features of a pair whose texts are read apart."""


def join_pair(first: Output, second: Output) -> Output:
    """What a siamese pair is described by, of features and of every layer: [u, v, |u − v|, u·v], (n, 4D)."""
    import torch

    def join(u: Tensor, v: Tensor) -> Tensor:
        return torch.cat([u, v, (u - v).abs(), u * v], dim=1)

    layers = {name: join(first.layers[name], second.layers[name]) for name in first.layers}
    return Output(join(first.features, second.features), layers=layers)


@contextmanager
def watched(*watches: tuple[nn.Module | None, Callable[[Any, Any], None]]) -> Iterator[None]:
    """Within the block, every pass through a module calls the function beside it with its inputs and its output."""
    handles = [
        module.register_forward_hook(lambda _module, inputs, output, see=see: see(inputs, output))
        for module, see in watches
        if module is not None
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def tap(module: nn.Module, names: Sequence[str], pool: Callable[[str, Any], Tensor]) -> Iterator[dict[str, Tensor]]:
    """Within the block, every forward pass fills the dictionary with the pooled outputs of the named submodules.

    `pool` is called with the name of the submodule and its output.
    """
    import torch

    caught: dict[str, Tensor] = {}

    def catch(name: str) -> tuple[nn.Module, Callable[[Any, Any], None]]:
        part = module.get_submodule(name)
        while isinstance(part, torch.nn.ModuleList):  # A list is not called, its members are.
            part = part[-1]
        return part, lambda _inputs, output: caught.update({name: pool(name, output)})

    with watched(*map(catch, names)):
        yield caught


def check_layers(names: Sequence[str], available: Sequence[str], model: str, *, averages: bool = False) -> None:
    """Refuse layer names that the model does not have; `averages` says that it has their mean."""
    known = (*available, MEAN_LAYER) if averages else available
    unknown = [name for name in names if name not in known]
    if unknown and unknown[0] == MEAN_LAYER:
        raise InputError(f"{model} has no mean over layers: its layers cannot be named or differ in width.")
    if unknown:
        raise InputError(f"{model} has no layer {unknown[0]!r}. It has: {', '.join(known) or 'none to tap'}.")


def pool_output(output: Any, *, channels: int | None = None, channels_last: bool = False) -> Tensor:
    """(n, D) from whatever a layer gives; see `pool_map` for a single tensor.

    Of several tensors it is the first that has the known `channels`. Where none has, several maps are the parts of
    one, by path or by resolution: they are pooled apart and joined. Else it is the first tensor.
    """
    import torch

    parts = list(_tensors(output))
    for part in parts:
        if part.ndim > 1 and channels in (part.shape[1], part.shape[-1]):
            return pool_map(part, channels=channels, channels_last=channels_last)
    if all(part.ndim == 4 for part in parts):
        return torch.cat([pool_map(part, channels_last=channels_last) for part in parts], dim=1)
    return pool_map(parts[0], channels_last=channels_last)


def _tensors(output: Any) -> Iterator[Tensor]:
    """Those of a nested output, without the sizes and the like that may stand between them."""
    if hasattr(output, "ndim"):
        yield output
    elif isinstance(output, Mapping):
        yield from _tensors(list(output.values()))
    elif isinstance(output, list | tuple):
        for part in output:
            yield from _tensors(part)


def pool_map(output: Tensor, *, channels: int | None = None, channels_last: bool = False) -> Tensor:
    """(n, D): a map averaged over its positions, a sequence of tokens over the tokens, a vector as it is.

    `channels` is D where it is known: the axis of that length is kept. Where that leaves a choice, `channels_last`
    says that maps are (n, height, width, D), as some hierarchical transformers have them.
    """
    if output.ndim not in (3, 4):
        return output.flatten(1)
    first, last = 1, output.ndim - 1
    kept = last if channels_last or output.ndim == 3 else first
    if channels is not None and (output.shape[first] == channels) != (output.shape[last] == channels):
        kept = first if output.shape[first] == channels else last
    return output.mean([axis for axis in range(1, output.ndim) if axis != kept])
