from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_networks import make_task, perceptron, weights_of

from hubscout.tuning import tune
from hubscout.tuning.batches import (
    MODEL,
    BatchPlan,
    Share,
    StreamedBatches,
    distinct_views,
    own_randomness,
    reseed,
    uniforms,
)
from hubscout.tuning.decoded_batches import HeldBatches, crop_and_flip, random_crops
from hubscout.tuning.losses import Rows, TaskLoss


class Noisy:
    """A preprocessing that draws from all three generators, as augmentations do."""

    def __init__(self, scale=1.0, training=False):
        self.scale, self.training = scale, training

    @property
    def key(self):
        return f"noisy-{self.scale}-{self.training}"

    def __call__(self, sample):
        import random

        noise = random.random() + np.random.random() + float(torch.rand(())) if self.training else 0.0
        return (self.scale * (np.asarray(sample) + noise)).astype(np.float32)

    def collate(self, samples):
        return {"inputs": torch.from_numpy(np.stack(samples))}

    def augmented(self):
        return Noisy(self.scale, training=True)


@given(samples=st.integers(1, 300), batch_size=st.integers(1, 64), seed=st.integers(0, 5), processes=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_an_epoch_holds_every_sample_once_in_even_batches(samples, batch_size, seed, processes):
    plan = BatchPlan(samples, batch_size, seed)
    batches = [plan.batch(step) for step in range(plan.batches_per_epoch)]
    assert sorted(np.concatenate(batches).tolist()) == list(range(samples))
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    shares = [plan.share(0, process, processes) for process in range(processes)]
    np.testing.assert_array_equal(np.concatenate(shares), batches[0])


def test_a_plan_needs_no_memory_of_earlier_steps():
    first, second = BatchPlan(100, 16, 1), BatchPlan(100, 16, 1)
    walked = [first.batch(step) for step in range(20)]
    np.testing.assert_array_equal(second.batch(19), walked[19])
    np.testing.assert_array_equal(second.batch(3), walked[3])
    assert not np.array_equal(walked[0], walked[7])


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_depends_on_seed_epoch_and_sample_alone(workers):
    inputs = np.zeros((12, 2), np.float32)

    def epoch(processes, workers, seed=0, steps=range(3)):
        found = {}
        for process in range(processes):
            source = StreamedBatches(inputs, {MODEL: Noisy()}, seed=seed, augment=True, workers=workers)
            for share in source.train(BatchPlan(12, 4, 0), steps, process, processes):
                found.update(zip(share.samples.tolist(), share.views[MODEL]["inputs"][:, 0].tolist(), strict=True))
        return found

    reference = epoch(1, 0)
    assert len(set(reference.values())) == 12
    assert epoch(2, workers) == reference
    assert epoch(1, 0, seed=1) != reference
    assert epoch(1, 0, steps=range(3, 6)) != reference


def test_all_views_are_augmented_alike_and_the_callers_generators_stay():
    inputs = np.ones((6, 2), np.float32)
    source = StreamedBatches(inputs, {MODEL: Noisy(), "teacher": Noisy(2.0)}, seed=0, augment=True, workers=0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for share in source.train(BatchPlan(6, 3, 0), range(2), 0, 1):
        torch.testing.assert_close(2 * share.views[MODEL]["inputs"], share.views["teacher"]["inputs"])
    assert torch.equal(before, torch.get_rng_state())
    with own_randomness():
        reseed(3)
    assert torch.equal(before, torch.get_rng_state())


def test_equal_preprocessings_share_a_view():
    views, served = distinct_views({MODEL: Noisy(), "teacher-0": Noisy(), "teacher-1": Noisy(2.0)})
    assert list(views) == [MODEL, "teacher-1"]
    assert served == {MODEL: MODEL, "teacher-0": MODEL, "teacher-1": "teacher-1"}


def test_micro_batches_cover_a_share():
    share = Share(torch.arange(10), {MODEL: {"inputs": torch.arange(20).view(10, 2)}})
    parts = list(share.slices(4))
    assert [len(part.samples) for part in parts] == [3, 3, 4]
    assert torch.equal(torch.cat([part.views[MODEL]["inputs"] for part in parts]), share.views[MODEL]["inputs"])


def test_held_data_is_the_streamed_data_without_augmentation():
    task = make_task(shape=(3, 8, 8), n=20)
    preprocessing = perceptron(0).preprocessing
    held = HeldBatches(
        task.train.inputs, {MODEL: preprocessing}, seed=0, augment=True, workers=0, device=torch.device("cpu")
    )
    streamed = StreamedBatches(task.train.inputs, {MODEL: preprocessing}, seed=0, augment=True, workers=0)
    plan = BatchPlan(20, 6, 0)
    for a, b in zip(held.train(plan, range(8), 0, 1), streamed.train(plan, range(8), 0, 1), strict=True):
        assert torch.equal(a.samples, b.samples)
        assert torch.equal(a.views[MODEL]["inputs"], b.views[MODEL]["inputs"])
    assert held.views[MODEL].images is not None


def test_tuning_from_memory_is_tuning_from_the_source(task):
    streamed, held = (
        tune(task, perceptron(0), method="fine-tune", epochs=2, batch_size=16, data_in_memory=in_memory)
        for in_memory in (False, True)
    )
    for name, value in weights_of(streamed.backbone).items():
        assert torch.equal(value, weights_of(held.backbone)[name])


def test_crops_lie_inside_the_image_and_the_whole_image_is_itself():
    crops = random_crops(np.arange(500), seed=0, view=0)
    x, y, width, height, mirror = crops.unbind(dim=1)
    assert (x.abs() + width <= 1 + 1e-6).all()
    assert (y.abs() + height <= 1 + 1e-6).all()
    assert 0.4 < (mirror < 0).float().mean() < 0.6
    assert (width * height).min() >= 0.3
    images = torch.randint(0, 256, (2, 3, 9, 9), dtype=torch.uint8)
    whole = torch.tensor([[0.0, 0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0, -1.0]])
    found = crop_and_flip(images, whole)
    assert found.dtype == torch.uint8
    assert torch.equal(found[0], images[0])
    assert torch.equal(found[1], images[1].flip(-1))
    quarter = crop_and_flip(images[:1, :, :8, :8].float(), torch.tensor([[-0.5, -0.5, 0.5, 0.5, 1.0]]))
    assert torch.allclose(quarter[..., 0, 0], images[:1, :, 0, 0].float(), atol=64)


def test_uniforms_are_uniform_and_reproducible():
    numbers = uniforms(np.arange(20_000), 3, 1, 2)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    np.testing.assert_allclose(numbers.mean(axis=0), 0.5, atol=0.01)
    assert np.abs(np.corrcoef(numbers.T) - np.eye(3)).max() < 0.03
    np.testing.assert_array_equal(uniforms(np.array([7]), 3, 1, 2)[0], numbers[7])


def test_rows_of_words():
    from hubscout.tasks import Split

    split = Split([["a", "b"], ["c"], ["d", "e", "f"]], [np.array([0, 1]), np.array([2]), np.array([0, 0, 1])])
    rows = Rows.of(split, TaskLoss("tagging", 3))
    assert rows.of_samples(torch.tensor([2, 0])).tolist() == [3, 4, 5, 0, 1]
    assert rows.count(np.array([2, 0])) == 5
    assert rows.targets[rows.of_samples(torch.tensor([1]))].tolist() == [2]
