from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from hubscout.features.fingerprint import network_digest


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
