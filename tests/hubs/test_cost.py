from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from hubscout import Task, rank
from hubscout.errors import ModelError
from hubscout.hubs import Identifier, cost, load, prepare_torchvision
from hubscout.hubs.cost import fingerprint
from hubscout.hubs.python_callable import wrap

prepare_torchvision()
pytest.importorskip("timm")

WIDTH, TOKENS = 12, 16 * 16


class Attention(nn.Module):
    """One layer of attention over 16 × 16 patches."""

    pretrained_cfg = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.25,) * 3}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 3 * WIDTH, 2, 2)

    def forward(self, x):
        query, key, value = self.patches(x).flatten(2).transpose(1, 2).contiguous()[:, None].chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(query, key, value)[:, 0]


class LooksAtValues(Attention):
    def forward(self, x):
        assert x.abs().max().item() >= 0
        return super().forward(x)


class KeepsATable(Attention):
    """As ConViT does: what the first pass makes, on the device of that pass, the next one uses."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.ones(WIDTH, device=x.device)
        return super().forward(x) * self.table


class CannotBeCopied(Attention):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class WorksInNumpy(Attention):
    def forward(self, x):
        return torch.from_numpy(x.numpy().mean((2, 3)))


class CannotBeCounted(Attention):
    """As compiled code that a counter of torch operators cannot look into."""

    def forward(self, x):
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("cannot be traced")
        return super().forward(x)


class Broken(Attention):
    def forward(self, x):
        raise ValueError("no such pass")


def open_network(kind: type[nn.Module]):
    return wrap(kind(), Identifier.parse(f"python:networks:{kind.__name__}"))


FLOPS = 2 * TOKENS * (3 * 2 * 2) * (3 * WIDTH) + 2 * 2 * TOKENS * TOKENS * WIDTH
"""The convolution, and the two matrix products of attention."""


@pytest.mark.parametrize("kind", [Attention, LooksAtValues, KeepsATable, CannotBeCopied])
def test_attention_counts_wherever_it_is_counted(kind):
    backbone = open_network(kind)
    assert (backbone.card.flops, backbone.card.feature_dim) == (FLOPS, WIDTH)
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone({"pixel_values": pixels}).features, backbone.module(pixels).mean(1))


def test_counting_leaves_the_network_as_it_was():
    network = KeepsATable()
    weights = dict(network.named_parameters())
    backbone = wrap(network, Identifier.parse("python:networks:KeepsATable"))
    assert network.table is None
    assert all(backbone.module.get_parameter(name) is weight for name, weight in weights.items())
    assert all(weight.requires_grad and weight.device.type == "cpu" for weight in weights.values())


class AsksTheTable(nn.Module):
    """As layers that share what the first of them makes."""

    def __init__(self, table: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.table = table
        self.make = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        if "made" not in self.table:
            self.table["made"] = self.make(torch.ones(1, WIDTH, device=x.device))
        return x + self.table["made"]


class Shared(Attention):
    """Layers that are known by several names, and share a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[str, torch.Tensor] = {}
        self.layers = nn.Sequential(*(AsksTheTable(self.table) for _ in range(3)))
        self.norm = nn.LayerNorm(WIDTH)
        self.named = {"the same": self.norm, self.patches: [self.patches]}

    def forward(self, x):
        assert self.named["the same"] is self.norm
        assert self.named[self.patches] == [self.patches]
        self.table.clear()
        return self.norm(self.layers(super().forward(x)))


def test_what_layers_share_they_share_in_a_copy_without_weights() -> None:
    network = Shared()
    backbone = wrap(network, Identifier.parse("python:networks:Shared"))
    assert (backbone.card.flops, backbone.card.feature_dim) == (FLOPS + 2 * WIDTH * WIDTH, WIDTH)
    assert network.table == {}


@pytest.mark.parametrize(("kind", "width"), [(WorksInNumpy, 3), (CannotBeCounted, WIDTH)])
def test_a_network_that_cannot_be_counted_has_a_gap(kind, width):
    backbone = open_network(kind)
    assert (backbone.card.flops, backbone.card.feature_dim) == (None, width)
    assert all(weight.requires_grad for weight in backbone.module.parameters())


def test_fused_layers_of_torch_count_in_a_real_pass():
    class Encoder(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(3 * WIDTH, 2, 64, batch_first=True)

        def forward(self, x):
            return self.layer(self.patches(x).flatten(2).transpose(1, 2))

    class Looks(Encoder):
        def forward(self, x):
            assert x.abs().max().item() >= 0
            return super().forward(x)

    assert open_network(Looks).card.flops == open_network(Encoder).card.flops > 2 * TOKENS * TOKENS * WIDTH
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_network_that_cannot_run_says_so():
    with pytest.raises(ModelError, match="no such pass"):
        open_network(Broken)


def test_a_gap_in_the_table_is_no_failure(tmp_path, monkeypatch):
    (tmp_path / "numpy_networks.py").write_text(
        "import torch\n"
        "class Halves(torch.nn.Module):\n"
        "    pretrained_cfg = {'input_size': (8,)}\n"
        "    def forward(self, x):\n"
        "        return torch.from_numpy(x.numpy()[:, :5] / 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    inputs = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)).numpy()
    task = Task.from_arrays(inputs, (inputs[:, 0] > 0).astype(int))
    ranking = rank(task, ["python:numpy_networks.py:Halves"])
    assert not ranking.failures
    assert (ranking.rows[0].flops, ranking.rows[0].feature_dim) == (None, 5)


TINY_SIGLIP = "vit_base_patch16_siglip_224?pretrained=false&depth=2&embed_dim=48&num_heads=3"


@pytest.mark.parametrize(
    "name",
    [
        TINY_SIGLIP,
        "vit_pe_core_base_patch16_224?pretrained=false&depth=2",
        "cait_xxs24_224?pretrained=false&depth=2",
        "pit_ti_224?pretrained=false",
        "coat_tiny?pretrained=false",
        "convit_tiny?pretrained=false&depth=2&local_up_to_layer=1",
    ],
)
def test_architectures_whose_tokens_are_views_of_weights(name):
    torch.manual_seed(0)
    backbone = load(f"timm/{name}")
    model = backbone.module
    pixels = torch.randn(2, *backbone.config.input_size)
    with torch.inference_mode():
        output = backbone({"pixel_values": pixels})
        torch.testing.assert_close(output.features, model.forward_head(model.forward_features(pixels), pre_logits=True))
        torch.testing.assert_close(output.logits if output.logits is not None else output.features, model(pixels))
    assert backbone.card.feature_dim == output.features.shape[1]
    assert backbone.card.flops > 0


@pytest.mark.parametrize(("count", "threads"), [(1, 0), (127, 0), (128, 2), (384, 4)])
def test_threads_hash_large_tensors_of_large_networks_alone(monkeypatch, count, threads):
    """Many threads, or small tensors in them, keep all other threads of the process from working."""
    real, seen = cost._digest, []

    def digest(tensor, files):
        seen.append((len(tensor), threading.current_thread()))
        return real(tensor, files)

    monkeypatch.setattr(cost, "_digest", digest)
    monkeypatch.setattr(cost, "_LARGE_BYTES", 1 << 10)
    monkeypatch.setattr(cost, "_BYTES_PER_THREAD", 1 << 18)
    monkeypatch.setattr(cost.os, "cpu_count", lambda: 16)
    fingerprint({"small": torch.zeros(3), **{f"{place}": torch.zeros(512) for place in range(count)}})
    here = {size for size, thread in seen if thread is threading.current_thread()}
    assert here == ({3} if threads else {3, 512})
    assert len({thread for size, thread in seen if size == 512} - {threading.current_thread()}) <= threads
    assert len(seen) == count + 1


def test_the_fingerprint_is_that_of_the_content():
    first = Attention().state_dict()
    second = {name: value.clone() for name, value in first.items()}
    assert fingerprint(first) == fingerprint(second)
    assert fingerprint(first, "mean") != fingerprint(first, "cls")
    second["patches.bias"][3] += 1e-6
    assert fingerprint(first) != fingerprint(second)
    state = {"a": torch.zeros(2, 3)}
    assert len({fingerprint(s) for s in (state, {"b": state["a"]}, {"a": torch.zeros(3, 2)})}) == 3
    assert fingerprint({"a": torch.zeros(2).bfloat16()}) != fingerprint({"a": torch.zeros(2).half()})
    assert len(fingerprint({"empty": torch.zeros(0), "scalar": torch.tensor(1)})) == 32


class Stacked(Attention):
    """With what has no matrix products: normalisations, activations, also one that the network looks into."""

    looks = False

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU6())
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, x):
        found = self.last(super().forward(self.norm(x)))
        return found * self.last.weight if self.looks else found


class LooksIntoItsNorm(Stacked):
    looks = True


@pytest.mark.parametrize("kind", [Stacked, LooksIntoItsNorm])
def test_normalisations_and_activations_make_no_difference(kind):
    backbone = open_network(kind)
    assert (backbone.card.flops, backbone.card.feature_dim) == (FLOPS, WIDTH)
    assert isinstance(backbone.module.norm[0], nn.BatchNorm2d)


@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224", "efficientnet_b0"])
def test_operations_are_those_of_the_whole_network(name):
    import timm

    network = timm.create_model(name)
    backbone = wrap(network, Identifier.parse(f"python:timm:create_model?model_name={name}"))
    example = {"pixel_values": torch.zeros(1, *backbone.config.input_size)}
    assert (backbone.card.feature_dim, backbone.card.flops) == cost._count_on_meta(backbone, example)
