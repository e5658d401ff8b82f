"""Whether cached features are those of a model: what they depend on, put into words, and a probe.

Equal descriptions mean equal features as far as weights, layers and source code can tell; what a model computes also
hangs on code and settings that none of these shows. So the last word has a probe: two samples go through the model
again, which costs one small forward pass in float32, and must give what they gave before. Numbers are compared, not
hashed: devices, threads and versions of a library round differently.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hubscout.errors import CacheError
from hubscout.features.precision import SAFE_RELATIVE_ERROR
from hubscout.grouping import grouped
from hubscout.hubs.mapped_weights import MappedFiles
from hubscout.hubs.model_identifier import Identifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.hubs import Backbone

_FORMAT = "4"
_CHUNK = 1 << 16
_SMALL = 1 << 12
_AT_ONCE = {"cuda": 256}
"""Chunks for one operation by the type of device; one elsewhere, which takes the least memory."""
_READ = 16 * _CHUNK
"""Numbers after which those that are a file in memory leave the process again."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_TRIES = 8
_ROWS = "rows"


def describe(job: ExtractionPlan, precision: str, backend: str) -> dict[str, str]:
    """Everything that the features of a model on a task depend on, with names for people.

    It says what is computed, not how that was asked for: labels are no part of it, and an option that the model's
    fingerprint or its preprocessing tells of counts as they have it, written out or not.
    """
    card, preprocessing, task = job.backbone.card, job.backbone.preprocessing, job.task
    if not job.identity:
        raise CacheError(f"{card.identifier} has no fingerprint of its weights, so its features cannot be cached.")
    return {
        "format": _FORMAT,
        "model": card.identifier,
        # The options of `python:` are the arguments of somebody's function, whatever they are called.
        "network": _without_options(card.identifier, () if card.code_fingerprint else job.backbone.settled_options),
        "architecture": card.architecture,
        "weights": job.identity,
        # A key may stop short of what the network itself does to its input, such as normalising; the configuration
        # has it all.
        "preprocessing": f"{preprocessing.key} {getattr(preprocessing, 'config', '')}".strip(),
        "inputs": job.split.fingerprint or task.fingerprint,
        "task_name": task.name,
        "selection": job.selection,
        "precision": precision,
        "backend": backend,
        "dtype": "float32",
    }


def _without_options(identifier: str, settled: Collection[str]) -> str:
    if not settled:
        return identifier
    named = Identifier.parse(identifier)
    return str(replace(named, options={key: value for key, value in named.options.items() if key not in settled}))


def identity(backbone: Backbone, device: str = "cpu") -> str:
    """What a model is made of, as it is now: weights, layers and, for `python:`, source. "" where that is unknown.

    It is worked out on `device`, which makes no difference but in time.
    """
    card = backbone.card
    weights = card.weights_fingerprint
    if backbone.module is not None:
        weights += "/" + (_ahead.pop(backbone.module, "") or network_digest(backbone.module, device))
    return f"{weights}/{card.code_fingerprint}" if weights and card.code_fingerprint else weights


_ahead: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""Digests that were worked out before they were asked for, for one time."""


def digest_ahead(backbone: Backbone, device: str = "cpu") -> None:
    """Work out, on `device`, the digest of a network that nobody changes before its `identity` is asked for."""
    if backbone.module is not None:
        _ahead[backbone.module] = network_digest(backbone.module, device)


def network_digest(module: nn.Module, device: str = "cpu") -> str:
    """A digest of the network as it is now: every number of its parameters and buffers, and what its layers are.

    The card knows which weights were loaded, not whether the network was changed since. Layers count with what they
    print of themselves (stride, epsilon, kind of activation); a network that another version of its library prints in
    another way counts as another.
    """
    digest = hashlib.sha256()
    for name, part in module.named_modules():
        digest.update(f"{name} {type(part).__qualname__} {_ADDRESS.sub('', part.extra_repr())}\n".encode())
    digest.update(tensors_digest(module.state_dict(), device))
    return digest.hexdigest()[:16]


def tensors_digest(tensors: Mapping[str, Tensor], device: str = "cpu") -> bytes:
    """A digest of every number and its place, three times as fast as a cryptographic hash.

    The bits of each chunk, read as whole numbers, are summed with a weight for each place. Such sums are exact in any
    order, so the digest does not depend on threads, device or memory layout; it is no protection against somebody who
    wants a collision.
    """
    import torch

    named = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
    bits = [_bits(tensor) for tensor in named.values()]
    small = [place for place, one in enumerate(bits) if one.numel() <= _SMALL]
    found = dict(zip(small, _sums_of_small([bits[place] for place in small]), strict=True))
    found |= _sums_of_large({place: one for place, one in enumerate(bits) if one.numel() > _SMALL}, device)
    digest = hashlib.sha256()
    for place, (name, tensor) in enumerate(named.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(found[place].tobytes())
    return digest.digest()


def _bits(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, read as whole ones, in a row."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    plain = tensor.detach()
    flat = (torch.view_as_real(plain) if plain.is_complex() else plain).reshape(-1)
    return flat.view(whole[flat.element_size()])


def _sums_of_small(pieces: Sequence[Tensor]) -> list[np.ndarray]:
    """The sum of each, all together: a network has hundreds, and on a GPU each operation is a kernel."""
    import torch

    alike = grouped(((piece.dtype, piece.device), place) for place, piece in enumerate(pieces))
    weights, found = _place_weights().numpy(), [np.zeros(1, dtype=np.int64)] * len(pieces)
    for places in alike.values():
        ends = np.cumsum([pieces[place].numel() for place in places])
        starts = np.concatenate([[0], ends[:-1]])
        numbers = torch.cat([pieces[place] for place in places]).cpu().numpy().astype(np.int64)
        numbers *= weights[np.arange(len(numbers)) - np.repeat(starts, ends - starts)]
        running = np.concatenate([[0], np.cumsum(numbers)])  # overflows as sums do, so that differences are exact
        for place, total in zip(places, running[ends] - running[starts], strict=True):
            found[place] = total[None]
    return found


def _sums_of_large(pieces: Mapping[int, Tensor], device: str) -> dict[int, np.ndarray]:
    """The sums of the chunks of each, on the device; what is found is fetched once."""
    import torch

    if not pieces:
        return {}
    weights = _place_weights().to(device)
    # One for all chunks: a new one for each leaves holes that add up to a second copy of the weights.
    weighted = torch.empty(_AT_ONCE.get(device.partition(":")[0], 1), _CHUNK, dtype=torch.int64, device=device)

    def sums(piece: Tensor) -> Tensor:
        piece = piece.to(device)  # first, or it would be widened on the processors and travel with twice the bytes
        if len(piece) <= _CHUNK:
            return weighted[0, : len(piece)].copy_(piece).mul_(weights[: len(piece)]).sum()[None]
        rows = weighted[: -(-len(piece) // _CHUNK)]
        flat = rows.view(-1)
        flat[: len(piece)].copy_(piece)
        flat[len(piece) :].zero_()
        return rows.mul_(weights).sum(1)

    files = MappedFiles(pieces.values())

    def read(one: Tensor) -> Iterator[Tensor]:
        for part in one.split(max(_READ, weighted.numel())):
            yield from map(sums, part.split(weighted.numel()))
            files.let_go(part)

    found = [torch.cat(list(read(one))) for one in pieces.values()]
    fetched = torch.cat(found).cpu().numpy()
    return dict(zip(pieces, np.split(fetched, np.cumsum([len(one) for one in found[:-1]])), strict=True))


@cache
def _place_weights() -> Tensor:
    """An odd number for each place of a chunk, without pattern: those of splitmix64."""
    import torch

    mixed = torch.arange(1, _CHUNK + 1) * -0x61C8864680B583EB
    for factor, shift in ((-0x40A7B892E31B1A47, 30), (-0x6B2FB644ECCEEE15, 27)):
        mixed = (mixed ^ (mixed >> shift)) * factor
    return (mixed ^ (mixed >> 31)) | 1


def key(description: Mapping[str, str], layer: str | None = None) -> str:
    """A short name for a description, and for one layer of it.

    >>> key({"weights": "a"}) != key({"weights": "a"}, "stem")
    True
    """
    named = dict(description) if layer is None else {**description, "layer": layer}
    # Names are for people: a model may be written in several ways, and data may be renamed.
    named.pop("model", None)
    named.pop("task_name", None)
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Probe:
    """What the samples `rows` gave: `arrays` by the names of a shard's."""

    rows: np.ndarray
    arrays: Mapping[str, np.ndarray]

    def agrees_with(self, kept: Probe) -> bool:
        """Whether a model that gave this is the one that gave `kept`. Other samples tell nothing, so they agree."""
        if not np.array_equal(self.rows, kept.rows):
            return True
        if self.arrays.keys() != kept.arrays.keys():
            return False
        return all(_close(array, kept.arrays[name]) for name, array in self.arrays.items())

    def encode(self) -> bytes:
        """As the content of a file."""
        buffer = io.BytesIO()
        np.savez(buffer, **{_ROWS: self.rows, **self.arrays})  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Probe | None:
        """Out of a file; None where it is none."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            return cls(arrays.pop(_ROWS), arrays)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None


def places_to_try(count: int) -> list[range]:
    """Where the samples of a probe are taken from, the first in each that can be read: the start, and the middle.

    >>> places_to_try(1000)
    [range(0, 8), range(500, 508)]
    """
    return [range(start, min(start + _TRIES, count)) for start in sorted({0, count // 2})]


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    """Alike up to the difference at which scores stay the same, as for number formats.

    It is more than TF32 makes, which CUDA takes for float32 convolutions: it has the mantissa of float16.
    """
    if one.shape != other.shape:
        return False
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)))
    return float(np.linalg.norm(one.astype(np.float64) - other)) <= SAFE_RELATIVE_ERROR * size
