"""What a model costs and is made of: parameters, bytes, floating-point operations, and a hash of its weights."""

from __future__ import annotations

import copy
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from hubscout.hubs.backbone import ModelCard
from hubscout.hubs.mapped_weights import MappedFiles
from hubscout.hubs.text_preprocessing import MASK

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hubscout.hubs.backbone import Backbone, Batch

_LARGE_BYTES, _BYTES_PER_THREAD = 1 << 18, 1 << 25
_BYTES_AT_ONCE = 1 << 22

switches_of_torch = threading.RLock()
"""Held while attention is switched to its plain form, which all threads see, and while a batch runs: the features of a
model do not hang on another one being opened meanwhile."""


def describe(backbone: Backbone, example: Batch | None, *settings: object, **facts: Any) -> ModelCard:
    """The card of a backbone that torch runs, with what one pass over `example`, a batch of one sample, shows.

    Args:
        backbone: ready to run, but for its card.
        example: None where the input is not known; `facts` then have the `feature_dim`.
        settings: what changes the output of a pass beside the weights, for the fingerprint.
        facts: the other fields of the card.

    """
    module = backbone.module
    assert module is not None
    if example is not None:
        facts["feature_dim"], facts["flops"] = measure(backbone, example)
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return ModelCard(
        params=count_params(module),
        bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        weights_fingerprint=fingerprint(module.state_dict(), type(backbone).__name__, *settings),
        **facts,
    )


def count_params(module: nn.Module) -> int:
    """The number of learnt numbers; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def fingerprint(state: Mapping[str, Tensor], *settings: object) -> str:
    """A hash of weights (names, types, shapes, bytes) and of `settings` that change what a forward pass gives.

    Large tensors are hashed in threads, one for every 32 MiB of a network: hashing leaves the interpreter free. With a
    small one a thread is given more to do than it does, and many of them keep all other threads from working.
    Of weights that are a file in memory, what has been read leaves the process again.
    """
    files = MappedFiles(state.values())
    names = sorted(state)
    large = {name: state[name] for name in names if state[name].nbytes > _LARGE_BYTES}
    threads = sum(tensor.nbytes for tensor in large.values()) // _BYTES_PER_THREAD
    total = hashlib.blake2b(digest_size=16)
    with ThreadPoolExecutor(min(threads, os.cpu_count() or 1) + 1) as pool:
        hashed = {name: pool.submit(_digest, tensor, files) for name, tensor in large.items() if threads}
        for name in names:
            digest = hashed[name].result() if name in hashed else _digest(state[name], files)
            total.update(name.encode() + b"\0" + digest)
    for setting in settings:
        total.update(repr(setting).encode() + b"\0")
    return total.hexdigest()


def _digest(tensor: Tensor, files: MappedFiles) -> bytes:
    import torch

    plain = tensor.detach().cpu().contiguous()
    header = f"{plain.dtype}{tuple(plain.shape)}".encode()
    digest = hashlib.blake2b(digest_size=16, key=header[:64])
    for piece in plain.reshape(-1).view(torch.uint8).split(_BYTES_AT_ONCE):
        digest.update(piece.numpy().data)
        files.let_go(piece)
    return digest.digest()


def measure(backbone: Backbone, batch: Batch) -> tuple[int, int | None]:
    """The width of the features and the operations of a pass over `batch`, multiply-adds counted twice.

    Runs on the meta device, where nothing is computed and no weights are copied. A network that looks at its values
    on the way cannot run there and gets one real pass. One that cannot be counted at all is run once as it is, and its
    operations are None: what a model costs is worth knowing, but no reason to be without the model.
    """
    import torch

    for count in (_count_without_norms, _count_on_meta, _count_in_a_real_pass):
        try:
            return count(backbone, batch)
        except Exception:  # What a network may do that a counter cannot follow has no end.
            continue
    with torch.no_grad():
        return backbone.forward(batch).features.shape[-1], None


def _count_without_norms(backbone: Backbone, batch: Batch) -> tuple[int, int | None]:
    """Runs a copy without weights, normalisations and activations.

    These have no matrix products and leave shapes as they are, but take most of the time: on the meta device they are
    Python. It is a quarter of the time for a MobileNetV2.
    """
    import torch
    from torch import nn

    norms = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)
    activations = (nn.ReLU, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.SiLU, nn.GELU, nn.Sigmoid)
    twin = _on_meta(backbone, without=(*norms, *activations))
    with torch.no_grad(), _light_counter()() as counter:
        features = twin.forward(_batch_on_meta(batch)).features
    return features.shape[-1], counter.operations or None


@cache
def _light_counter() -> type[Any]:
    """Torch's counter without its account by modules, and without its compiler, whose import takes a second."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class LightCounter(TorchDispatchMode):
        operations = 0

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            count = flop_registry.get(func.overloadpacket)
            if count is None:
                with self:  # what is made of others counts as these do
                    result = func.decompose(*args, **kwargs or {})
                if result is not NotImplemented:
                    return result
            result = func(*args, **kwargs or {})
            if count is not None:
                self.operations += count(*args, **kwargs or {}, out_val=result)
            return result

    return LightCounter


def _count_on_meta(backbone: Backbone, batch: Batch) -> tuple[int, int | None]:
    return _count(_on_meta(backbone), _batch_on_meta(batch))


def _batch_on_meta(batch: Batch) -> Batch:
    """A batch without values, and without a mask that hides nothing: networks of transformers look into masks."""
    return {name: tensor.to("meta") for name, tensor in batch.items() if name != MASK or not tensor.all()}


def _on_meta(backbone: Backbone, without: tuple[type[nn.Module], ...] = ()) -> Backbone:
    """A copy without weights, and with nothing in the place of some kinds of layers.

    Networks keep tables from one pass to the next, and one from the meta device would spoil those that follow.
    """
    import torch

    assert backbone.module is not None
    kept: dict[int, Any] = {id(backbone.preprocessing): backbone.preprocessing}
    for parameter in backbone.module.parameters():
        kept[id(parameter)] = torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
    for buffer in backbone.module.buffers():
        kept[id(buffer)] = buffer.detach().to("meta")
    for part in backbone.module.modules():
        if isinstance(part, without) and part is not backbone.module:
            kept[id(part)] = torch.nn.Identity()
    return copy.deepcopy(backbone, kept)


def _count_in_a_real_pass(backbone: Backbone, batch: Batch) -> tuple[int, int | None]:
    assert backbone.module is not None
    with switches_of_torch, _frozen(backbone.module), _plain_attention():
        return _count(backbone, batch)


def _count(backbone: Backbone, batch: Batch) -> tuple[int, int | None]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        features = backbone.forward(batch).features
    # Nothing counted is not nothing done: the work is in numpy, in another thread, or in an unknown operator.
    return features.shape[-1], counter.get_total_flops() or None


@contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """Without gradients: the counter stumbles over views of weights that take them, even where none are computed."""
    learnt = [parameter for parameter in module.parameters() if parameter.requires_grad]
    try:
        for parameter in learnt:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learnt:
            parameter.requires_grad_(True)


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Attention as matrix products: the counter knows nothing of the CPU's fused forms."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
