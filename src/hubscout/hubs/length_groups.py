"""A batch of texts or sounds in groups of similar length: one long sample does not make all others as long.

A pass over a batch costs what its longest sample does, times the samples. Cut into groups, each padded to its own
longest, the same samples give the same outputs for less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hubscout.hubs.backbone import Batch, Output
from hubscout.hubs.processors import LENGTHS
from hubscout.hubs.text_preprocessing import IDS, MASK, SECOND, TRUNCATED, TYPES, WORD_ENDS, WORDS

if TYPE_CHECKING:
    from torch import Tensor

TOKENS_PER_PASS = {"cpu": 64, "cuda": 8192}
"""What a pass of its own costs beside its tokens, in tokens. On a CPU forward and backward passes of a MiniLM over 4
tokens took as long as 70 tokens of a large batch; for a GPU it is an estimate: its kernels take long to start."""

SAMPLES_PER_PASS = {"cpu": 4_000, "cuda": 320 * TOKENS_PER_PASS["cuda"]}
"""The same for sounds, in their samples. On a CPU passes of a wav2vec2 of 12 layers cost at most 2,300 samples more
than their share of a large batch; for a GPU it is an estimate: a frame of 320 samples counts as a token."""
_SHORTEST_SOUND = 16_000
"""Samples that a batch of sounds keeps, padding among them: networks that mask spans of frames need some to mask."""

_PADDED = tuple(prefix + name for prefix in ("", SECOND) for name in (IDS, MASK, TYPES))
_KNOWN = {*_PADDED, WORDS, WORD_ENDS, TRUNCATED}


def group_ends(lengths: np.ndarray, per_group: float) -> list[int]:
    """Where to cut samples, longest first, so that padded lengths and `per_group` for each group add up to the least.

    >>> group_ends(np.array([500, 20, 19, 18]), per_group=64)
    [1, 4]
    >>> group_ends(np.array([30, 20, 19, 18]), per_group=64)
    [4]
    """
    # A cut between samples of one length saves nothing.
    places = np.concatenate([[0], np.flatnonzero(np.diff(lengths)) + 1, [len(lengths)]])
    costs, before = np.zeros(len(places)), np.zeros(len(places), dtype=np.int64)
    for end in range(1, len(places)):
        padded = (places[end] - places[:end]) * lengths[places[:end]]
        found = costs[:end] + padded + per_group
        before[end] = found.argmin()
        costs[end] = found[before[end]]
    ends, place = [], len(places) - 1
    while place:
        ends.append(int(places[place]))
        place = before[place]
    return ends[::-1]


def length_groups(batch: Batch, device: str) -> list[Tensor] | None:
    """Places in a batch, a tensor per group; None where the batch as it is costs least, or nobody here could cut it."""
    import torch

    per_pass = TOKENS_PER_PASS
    if _wave(batch) is not None:
        lengths, per_pass = batch[LENGTHS].clamp_min(_SHORTEST_SOUND).cpu().numpy(), SAMPLES_PER_PASS
    # Somebody's own preprocessing may pad on the left, or give tensors that nobody here could cut.
    elif MASK not in batch or not _KNOWN.issuperset(batch) or not batch[MASK][:, 0].all():
        return None
    else:
        masks = [batch[name] for name in (MASK, SECOND + MASK) if name in batch]
        lengths = torch.cat(masks, dim=1).sum(dim=1).cpu().numpy()
    order = np.argsort(-lengths, kind="stable")
    ends = group_ends(lengths[order], per_pass.get(device, per_pass["cuda"]))
    return [torch.as_tensor(part) for part in np.split(order, ends[:-1])] if len(ends) > 1 else None


def trimmed(batch: Batch) -> Batch:
    """A batch without the columns on the right that are padding in all samples; what cannot be cut as it is."""
    found = dict(batch)
    if (wave := _wave(batch)) is not None:
        found[wave] = batch[wave][:, : max(int(batch[LENGTHS].max()), _SHORTEST_SOUND)]
    for prefix in ("", SECOND):
        if prefix + MASK in batch and batch[prefix + MASK][:, 0].all():  # padded on the right
            longest = int(batch[prefix + MASK].sum(dim=1).max())
            names = [name for name in batch if name in _PADDED and name.startswith(SECOND) == bool(prefix)]
            found |= {name: batch[name][:, :longest] for name in names}
    if WORDS in batch:
        most = int((batch[WORDS] >= 0).sum(dim=1).max())
        found |= {name: batch[name][:, :most] for name in (WORDS, WORD_ENDS) if name in batch}
    return found


def _wave(batch: Batch) -> str | None:
    """The name of the sounds in a batch of them; None for other batches, and for spectra, which have one length."""
    names = [name for name in batch if name != LENGTHS]
    return names[0] if LENGTHS in batch and len(names) == 1 and batch[names[0]].ndim == 2 else None


def outputs_by_length(forward: Callable[[Batch], Output], batch: Batch, device: str) -> Output:
    """What a backbone makes of a batch of sounds, group by group; the rows in the order of the batch."""
    import torch

    groups = length_groups(batch, device.partition(":")[0])
    if groups is None:
        return forward(batch)
    order = torch.cat(groups).to(batch[LENGTHS].device)
    return Output.joined([forward(_part(batch, places)) for places in groups]).take(torch.argsort(order))


def _part(batch: Batch, places: Tensor) -> Batch:
    return trimmed({name: value[places] for name, value in batch.items()})


def forward_by_length(forward: Callable[[Batch], Tensor], batch: Batch, device: str) -> Tensor:
    """What `forward` makes of a batch, group by group; the rows in the order of the batch."""
    import torch

    groups = length_groups(batch, device)
    if groups is None:
        return forward(batch)
    outputs = [forward(_part(batch, places)) for places in groups]
    order = torch.cat(groups)
    counts = (batch[WORDS] >= 0).sum(dim=1) if WORDS in batch else torch.ones(len(order), dtype=torch.long)
    rows = torch.cat(outputs).split(counts[order].tolist())
    return torch.cat([rows[place] for place in torch.argsort(order).tolist()])
