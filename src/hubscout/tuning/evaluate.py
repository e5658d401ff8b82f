"""Predictions of a network for a split, from all processes, each sample once and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hubscout.tasks import Split
from hubscout.tuning.data import TARGET, Batches
from hubscout.tuning.network import Network
from hubscout.tuning.processes import gather_in_order

if TYPE_CHECKING:
    from accelerate import Accelerator


def predict_split(
    network: Network, batches: Batches, samples: int, accelerator: Accelerator, batch_size: int
) -> np.ndarray:
    """(rows, outputs) decoded predictions of the first `samples` samples.

    Each process takes a range of them: nothing is padded, so nothing is counted twice.
    """
    own = np.array_split(np.arange(samples), accelerator.num_processes)[accelerator.process_index]
    was_training = network.training
    network.eval()
    outputs = []
    with torch.no_grad(), accelerator.autocast():
        for share in batches.evaluate(own, batch_size):
            outputs.append(network.predict(share.to(accelerator.device).views[TARGET]).double())
    network.train(was_training)
    part = network.loss.decode(torch.cat(outputs)) if outputs else None
    return np.concatenate([found for found in gather_in_order(accelerator, part) if found is not None])


def row_targets(split: Split, kind: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The targets by row, and for tagging the sample that each row belongs to."""
    if kind != "tagging":
        return np.asarray(split.targets), None
    lengths = [len(words) for words in split.targets]
    return np.concatenate([np.asarray(words) for words in split.targets]), np.repeat(np.arange(len(lengths)), lengths)
