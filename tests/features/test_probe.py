"""What a model computes has the last word on whether cached features are its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hubscout.features import FeatureCache, extract
from hubscout.features.probe import Probe
from hubscout.hubs import Batch, Output
from hubscout.tasks import Split, Task

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
