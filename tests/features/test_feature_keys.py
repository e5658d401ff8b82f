from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from hubscout.features import FeatureCache, extract
from hubscout.features.feature_keys import network_digest
from hubscout.tasks import Task


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 700)
    )


def shuffle(network: nn.Sequential) -> None:
    with torch.no_grad():
        network[4].weight.copy_(network[4].weight[:, torch.randperm(16 * 64)])


def swap_two(network: nn.Sequential) -> None:
    with torch.no_grad():
        flat = network[4].weight.view(-1)
        flat[[5, 600_000]] = flat[[600_000, 5]]


def change_sign_of_two(network: nn.Sequential) -> None:
    with torch.no_grad():
        network[4].weight.view(-1)[[100_000, 100_001]] *= -1


def swap_activation(network: nn.Sequential) -> None:
    network[2] = nn.GELU()


def change_stride(network: nn.Sequential) -> None:
    network[0].stride = (2, 2)


def change_epsilon(network: nn.Sequential) -> None:
    network[1].eps = 1e-4


def one_bit(network: nn.Sequential) -> None:
    with torch.no_grad():
        network[4].weight.view(torch.int32)[3, 3] ^= 1


@pytest.mark.parametrize(
    "change", [shuffle, swap_two, change_sign_of_two, swap_activation, change_stride, change_epsilon, one_bit]
)
def test_a_changed_network_has_another_digest(change: Callable[[nn.Sequential], None]) -> None:
    changed = network()
    assert network_digest(changed) == network_digest(network())
    change(changed)
    assert network_digest(changed) != network_digest(network())


def test_layout_threads_and_use_do_not_count() -> None:
    expected = network_digest(network())
    used = network().to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    with torch.inference_mode():
        used(torch.zeros(2, 3, 8, 8))
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert network_digest(used) == expected
    finally:
        torch.set_num_threads(threads)


def test_an_address_in_what_a_layer_says_of_itself_does_not_count() -> None:
    class Named(nn.Module):
        def extra_repr(self) -> str:
            return f"function={object()!r}"

    assert network_digest(Named()) == network_digest(Named())


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)
def test_numbers_of_every_type_count(dtype: torch.dtype) -> None:
    digests = set()
    for place in range(3):
        holder = nn.Module()
        holder.register_buffer("values", torch.zeros(3, dtype=dtype))
        holder.register_buffer("none", torch.zeros(0, dtype=dtype))
        holder.values[place] = 1
        digests.add(network_digest(holder))
    assert len(digests) == 3


TWO_LABELS = pd.DataFrame(
    {
        "text": [f"w{row % 7} w{row % 5}" for row in range(90)],
        "colour": ["red", "green", "blue"] * 30,
        "size": ["s", "l"] * 45,
        "split": ["train"] * 60 + ["validation"] * 15 + ["test"] * 15,
    }
)


def test_another_target_of_the_same_inputs_finds_the_same_features(make_tagger: Any, tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    colour, size = (Task.from_table(TWO_LABELS, text="text", label=label) for label in ("colour", "size"))
    assert colour.fingerprint != size.fingerprint
    first = extract(make_tagger(words=False), colour, device="cpu", cache=cache)
    second = extract(make_tagger(words=False), size, device="cpu", cache=cache)
    assert second.from_cache
    np.testing.assert_array_equal(first.features(), second.features())
    np.testing.assert_array_equal(second.targets, size.train.targets)
    # The rows of a subset are chosen by their labels: other rows, other features.
    parts = [extract(make_tagger(words=False), task.subset(20), device="cpu", cache=cache) for task in (colour, size)]
    assert [part.from_cache for part in parts] == [False, False]
    assert extract(make_tagger(words=False), size.subset(20), device="cpu", cache=cache).from_cache


def test_other_inputs_are_other_features(make_tagger: Any, tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    extract(make_tagger(words=False), Task.from_table(TWO_LABELS, text="text", label="size"), device="cpu", cache=cache)
    changed = TWO_LABELS.assign(text=["other", *TWO_LABELS["text"][1:]])
    task = Task.from_table(changed, text="text", label="size")
    assert not extract(make_tagger(words=False), task, device="cpu", cache=cache).from_cache


def test_shards_of_the_default_size_written_out_are_the_same(
    make_backbone: Any, make_image_task: Any, tmp_path: Path
) -> None:
    task, cache = make_image_task(300), FeatureCache(tmp_path)
    extract(make_backbone(), task, device="cpu", cache=cache)
    assert extract(make_backbone(), task, device="cpu", cache=cache, shard_rows=256).from_cache
    assert not extract(make_backbone(), task, device="cpu", cache=cache, shard_rows=100).from_cache
