from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from hubscout.features import FeatureCache, extract, feature_keys
from hubscout.features.feature_keys import Probe, network_digest
from hubscout.hubs import Batch, Output
from hubscout.tasks import Split, Task


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


def test_many_chunks_at_once_give_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU; a piece of three, a piece with a rest, and small tensors."""
    network = nn.Sequential(nn.Linear(700, 500), nn.Linear(8, 8))
    expected = network_digest(network)
    monkeypatch.setitem(feature_keys._AT_ONCE, "cpu", 3)
    assert network_digest(network) == expected


def test_small_tensors_are_summed_together_and_everything_is_fetched_at_once() -> None:
    """On a GPU each operation is a kernel, and each look at a number a wait."""
    layers = [nn.BatchNorm2d(width) for width in range(1, 60)]
    network = nn.Sequential(*layers, nn.Linear(80, 60), nn.Linear(300, 400), nn.Embedding(0, 3))
    weights, digest = feature_keys._place_weights(), hashlib.sha256()
    for name, tensor in network.state_dict().items():
        whole = tensor.reshape(-1).view(torch.int64 if tensor.dtype == torch.int64 else torch.int32)
        chunks = whole.split(len(weights)) if len(whole) else [whole]
        found = torch.stack([(chunk.long() * weights[: len(chunk)]).sum() for chunk in chunks])
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode() + found.numpy().tobytes())
    with torch.profiler.profile() as profile:
        assert feature_keys.tensors_digest(network.state_dict()) == digest.digest()
    counted = {event.key: event.count for event in profile.key_averages()}
    assert counted["aten::sum"] == 3  # two chunks of the large one, and one of the other
    assert counted["aten::cat"] <= 5


def test_a_digest_takes_no_memory_for_another_copy_of_the_weights() -> None:
    large = nn.Linear(1024, 4096)
    with torch.profiler.profile(profile_memory=True) as profile:
        network_digest(large)
    taken = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    assert 0 < taken < large.weight.nbytes / 2


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


SAID = "the cached features are not what the model gives now: they are made again"


@pytest.fixture(params=["folder", "url", "file url"])
def cache(tmp_path: Path, request: pytest.FixtureRequest) -> FeatureCache:
    places = {"folder": tmp_path / "cache", "url": f"memory://{tmp_path.name}", "file url": f"file://{tmp_path}/cache"}
    return FeatureCache(places[request.param])


def altered(backbone: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same weights, layers and name; something else is computed."""
    forward = backbone.forward

    def other(batch: Batch, layers: Any = ()) -> Output:
        output = forward(batch, layers)
        return replace(output, features=change(output.features))

    backbone.forward = other
    return backbone


def test_code_that_computes_something_else_is_noticed(
    make_backbone: Any, make_image_task: Any, cache: FeatureCache
) -> None:
    task = make_image_task(600)
    old = extract(make_backbone(), task, device="cpu", cache=cache).features()
    new = extract(altered(make_backbone(), torch.sqrt), task, device="cpu", cache=cache)
    assert not new.from_cache
    assert new.messages == (SAID,)
    np.testing.assert_allclose(new.features(), np.sqrt(old), rtol=1e-6)
    again = extract(altered(make_backbone(), torch.sqrt), task, device="cpu", cache=cache)
    assert (again.from_cache, again.messages) == (True, ())
    np.testing.assert_array_equal(again.features(), new.features())


def test_no_shard_of_the_model_before_is_left(make_backbone: Any, make_image_task: Any, cache: FeatureCache) -> None:
    """Workers that make some shards each: the first one to notice strikes out all of them."""
    task = make_image_task(600)
    extract(make_backbone(), task, device="cpu", cache=cache)
    for shard in range(3):
        extract(altered(make_backbone(), torch.sqrt), task, device="cpu", cache=cache, shards=[shard])
    found = extract(altered(make_backbone(), torch.sqrt), task, device="cpu", cache=cache)
    assert found.from_cache
    np.testing.assert_array_equal(
        found.features(), extract(altered(make_backbone(), torch.sqrt), task, device="cpu").features()
    )


def test_another_rounding_is_the_same_model(make_backbone: Any, make_image_task: Any, cache: FeatureCache) -> None:
    task = make_image_task(60)
    extract(make_backbone(), task, device="cpu", cache=cache)
    rounded = altered(make_backbone(), lambda features: features.half().float())
    assert extract(rounded, task, device="cpu", cache=cache).from_cache


@pytest.mark.parametrize("what", ["layer", "logits", "preprocessing"])
def test_whatever_is_cached_is_probed(make_backbone: Any, make_image_task: Any, cache: FeatureCache, what: str) -> None:
    task = make_image_task(60)
    extract(make_backbone(), task, device="cpu", cache=cache, layers=("stem",))
    backbone = make_backbone()
    forward, prepare = backbone.forward, type(backbone.preprocessing).__call__
    if what == "preprocessing":

        class Other(type(backbone.preprocessing)):  # type: ignore[misc]
            def __call__(self, sample: Any) -> Any:
                return 3 * prepare(self, sample)

        backbone.preprocessing = Other()
    elif what == "layer":
        backbone.forward = lambda batch, layers=(): replace(
            output := forward(batch, layers), layers={name: 2 * value for name, value in output.layers.items()}
        )
    else:
        backbone.forward = lambda batch, layers=(): replace(output := forward(batch, layers), logits=-output.logits)
    found = extract(backbone, task, device="cpu", cache=cache, layers=("stem",))
    assert (found.from_cache, found.messages) == (False, (SAID,))


def test_a_layer_that_comes_later_has_a_probe_of_its_own(
    make_backbone: Any, make_image_task: Any, cache: FeatureCache
) -> None:
    task = make_image_task(60)
    extract(make_backbone(), task, device="cpu", cache=cache)
    first = extract(make_backbone(), task, device="cpu", cache=cache, layers=("stem",))
    again = extract(make_backbone(), task, device="cpu", cache=cache, layers=("stem",))
    assert (first.from_cache, again.from_cache) == (False, True)
    assert first.messages == again.messages == ()


def test_samples_that_cannot_be_read_are_passed_over(
    make_backbone: Any, make_image_task: Any, cache: FeatureCache
) -> None:
    class Broken(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            if index in (0, 1, 30):
                raise OSError("truncated")
            return super().__getitem__(index)

    task = make_image_task(60)
    bad = replace(task, splits={"train": Split(Broken(task.train.inputs), task.train.targets)})
    options: dict[str, Any] = {"device": "cpu", "cache": cache, "skip_bad": True}
    extract(make_backbone(), bad, **options)
    assert extract(make_backbone(), bad, **options).from_cache
    assert not extract(altered(make_backbone(), torch.sqrt), bad, **options).from_cache


def test_a_broken_probe_is_made_again(make_backbone: Any, make_image_task: Any, tmp_path: Path) -> None:
    cache, task = FeatureCache(tmp_path), make_image_task(60)
    extract(make_backbone(), task, device="cpu", cache=cache)
    (file,) = tmp_path.glob("*/probe-*.npz")
    file.write_bytes(file.read_bytes()[:50])
    assert not extract(make_backbone(), task, device="cpu", cache=cache).from_cache
    assert extract(make_backbone(), task, device="cpu", cache=cache).from_cache


def test_a_model_that_cannot_take_two_samples_is_cached_all_the_same(
    make_backbone: Any, make_image_task: Callable[..., Task], cache: FeatureCache
) -> None:
    class Fixed(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Batch, layers: Any = ()) -> Output:
            if len(batch["pixels"]) != 4:
                raise ValueError("the batch must be 4")
            return super().forward(batch, layers)

    task = make_image_task(60)
    extract(Fixed(), task, device="cpu", cache=cache, batch_size=4)
    assert extract(Fixed(), task, device="cpu", cache=cache, batch_size=4).from_cache


def test_what_agrees() -> None:
    rows, features = np.array([0, 5]), np.ones((2, 3), dtype=np.float32)
    probe = Probe(rows, {"features": features})
    assert probe.agrees_with(Probe.decode(probe.encode()))  # type: ignore[arg-type]
    assert probe.agrees_with(Probe(rows, {"features": features * 1.009}))
    assert not probe.agrees_with(Probe(rows, {"features": features * 1.011}))
    assert not probe.agrees_with(Probe(rows, {"features": features[:, :2]}))
    assert not probe.agrees_with(Probe(rows, {"features": features, "logits": features}))
    assert probe.agrees_with(Probe(rows + 1, {"features": features * 2}))
    assert Probe(rows, {"features": 0 * features}).agrees_with(Probe(rows, {"features": 0 * features}))
    assert Probe.decode(b"nothing") is None
