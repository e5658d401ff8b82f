from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import nn

from hubscout.errors import CheckpointError
from hubscout.hubs.random_weights import without_random_weights


def cut_off_normal(weights: nn.Parameter) -> None:
    """As timm draws it."""
    with torch.no_grad():
        weights.uniform_(-0.9, 0.9)
        weights.erfinv_().mul_(0.02).add_(0.0).clamp_(-2, 2)


class Network(nn.Module):
    """Draws in the ways that libraries draw; its table is part of no checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.conv, self.words = nn.Linear(3, 2), nn.Conv2d(2, 2, 3), nn.Embedding(5, 4, padding_idx=0)
        self.position = nn.Parameter(torch.empty(4, 4))
        cut_off_normal(self.position)
        nn.init.kaiming_normal_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        nn.init.xavier_uniform_(self.conv.weight, gain=2.0)
        self.register_buffer("table", torch.randn(7), persistent=False)


STATE = {name: torch.full_like(value, 0.5) for name, value in Network().state_dict().items()}


def filled(build: Callable[[], Any] = Network, state: dict[str, torch.Tensor] | None = None) -> Any:
    module = build()
    module.load_state_dict(STATE if state is None else state, strict=False)
    return module


def test_weights_that_are_replaced_are_not_drawn() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    table = torch.randn(7)
    torch.set_rng_state(before)
    module: Any = without_random_weights(filled)
    assert all(torch.equal(value, STATE[name]) for name, value in module.state_dict().items())
    assert torch.equal(module.table, table)  # the only numbers that were drawn
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    torch.randn(7)
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("missing", ["linear.weight", "position", "words.weight"])
def test_a_checkpoint_that_leaves_something_out_leaves_it_random(missing: str) -> None:
    state = {name: value for name, value in STATE.items() if name != missing}
    module = without_random_weights(lambda: filled(state=state))
    found = module.state_dict()[missing]
    assert found.isfinite().all()
    assert len(found.unique()) > 4
    assert all(torch.equal(value, STATE[name]) for name, value in module.state_dict().items() if name != missing)


@pytest.mark.parametrize("reach", [2.0, 0.5])
def test_a_distribution_that_is_drawn_until_it_fits(reach: float) -> None:
    """torch's own keeps of numbers in memory those that are in its range."""

    def build() -> nn.Module:
        module = nn.Module()
        module.weight = nn.Parameter(torch.full((300,), 7.0))
        nn.init.trunc_normal_(module.weight, a=-reach, b=reach)
        return module

    weights = without_random_weights(build).weight
    assert isinstance(weights, nn.Parameter)
    assert weights.abs().max() <= reach
    assert len(weights.unique()) > 290


class Derived(nn.Module):
    """Computes with its random weights while it is built."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 4))
        nn.init.normal_(self.weight)
        self.register_buffer("found", compute(self.weight.detach()), persistent=False)


def refused_where_not_finite(weight: torch.Tensor) -> torch.Tensor:
    if not weight.isfinite().all():
        raise ValueError("weights are not finite")
    return weight.abs().mean()


@pytest.mark.parametrize(
    "compute", [lambda weight: weight.abs().mean(), torch.linalg.svdvals, refused_where_not_finite]
)
def test_what_is_computed_from_random_weights_is_computed(compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module: Any = without_random_weights(lambda: filled(lambda: Derived(compute), {"weight": torch.ones(4, 4)}))
    assert torch.equal(module.weight, torch.ones(4, 4))
    assert module.found.isfinite().all()


def test_layers_that_wait_for_their_first_input_are_left_to_do_so() -> None:
    module: Any = without_random_weights(lambda: nn.LazyLinear(3))
    assert module(torch.ones(2, 5)).isfinite().all()


@pytest.mark.parametrize("width", [4, 10, 64])
def test_columns_that_are_set_do_not_hide_the_others(width: int) -> None:
    built: list[nn.Linear] = []

    def build() -> nn.Module:
        layer = nn.Linear(width, 128, bias=False)
        with torch.no_grad():
            layer.weight[:, [0, -1]] = 0.0
            layer.weight[0] = 0.0
        built.append(layer)
        return layer

    module: Any = without_random_weights(build)
    assert len(built) == 2
    assert len(module.weight.unique()) > 100


def test_what_is_wrong_is_said_once() -> None:
    tries: list[None] = []

    def build() -> nn.Module:
        tries.append(None)
        raise CheckpointError("it does not fit")

    with pytest.raises(CheckpointError, match="does not fit"):
        without_random_weights(build)
    assert len(tries) == 1


def test_constants_are_constants() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.empty(3))
            nn.init.normal_(self.scale)
            nn.init.constant_(self.scale, 2.0)
            self.shift = nn.Parameter(torch.empty(3))
            nn.init.uniform_(self.shift)
            nn.init.zeros_(self.shift)

    built: list[nn.Module] = []

    def build() -> nn.Module:
        built.append(Constant())
        return built[-1]

    module = without_random_weights(build)
    assert [value.tolist() for value in module.state_dict().values()] == [[2.0] * 3, [0.0] * 3]
    assert len(built) == 1


def test_weights_that_take_the_place_of_others_count_as_given() -> None:
    def build() -> nn.Module:
        module = Network()
        module.load_state_dict(STATE, assign=True)
        return module

    assert torch.equal(without_random_weights(build).state_dict()["position"], STATE["position"])


def test_networks_of_timm_give_the_same() -> None:
    timm = pytest.importorskip("timm")
    for name in ("test_vit", "test_resnet", "test_efficientnet", "test_convnext"):
        build = partial(timm.create_model, name)
        load = partial(filled, build, build().state_dict())
        drawn, undrawn = load(), cast("Any", without_random_weights(load))
        image = torch.zeros(1, *drawn.pretrained_cfg["input_size"])
        with torch.inference_mode():
            assert torch.equal(drawn.eval()(image), undrawn.eval()(image))
