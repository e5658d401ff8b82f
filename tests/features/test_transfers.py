"""Batches in the layout of the network, filled up to one size, and cut again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hubscout.features.transfers import filled_up, move
from hubscout.hubs import Output


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_have_the_layout_that_is_asked_for(channels_last: bool) -> None:
    samples = [np.zeros((6, 5, 3), dtype=np.uint8).transpose(2, 0, 1) for _ in range(4)]
    batch = {"pixel_values": torch.from_numpy(np.stack(samples)), "lengths": torch.ones(4)}
    assert not batch["pixel_values"].is_contiguous()  # colours side by side, as they were prepared
    moved = move(batch, "cpu", channels_last=channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert moved["pixel_values"].is_contiguous(memory_format=layout)
    assert torch.equal(moved["lengths"], batch["lengths"])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_smaller_batch_is_filled_up_and_its_output_cut(layout: torch.memory_format) -> None:
    images = torch.arange(5 * 3 * 4 * 4, dtype=torch.uint8).reshape(5, 3, 4, 4).contiguous(memory_format=layout)
    filled = filled_up({"pixel_values": images}, 5, 8)["pixel_values"]
    assert filled.shape == (8, 3, 4, 4)
    assert filled.is_contiguous(memory_format=layout)
    assert torch.equal(filled[:5], images)
    assert torch.equal(filled[5:], images[:3])
    whole = Output(torch.randn(8, 2), torch.randn(8, 3), {"tap": torch.randn(8, 4)})
    found = whole.take(slice(5))
    assert torch.equal(found.features, whole.features[:5])
    assert found.logits is not None
    assert found.logits.shape == (5, 3)
    assert found.layers["tap"].shape == (5, 4)
