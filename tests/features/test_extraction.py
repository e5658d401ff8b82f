from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hubscout.errors import InputError, ModelError, TaskError
from hubscout.evidence.statistics import Statistics
from hubscout.features import extract
from hubscout.features.extraction_plan import assign_blocks
from hubscout.hubs import Batch, Output
from hubscout.runs.events import Advanced, Event, Finished, Message, Started
from hubscout.tasks import Split, Task


def bare_forward(backbone: Any, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """The oracle: no threads, no shards, one batch."""
    backbone.module.eval()
    prepared = [backbone.preprocessing(task.train.inputs[i]) for i in range(len(task.train))]
    with torch.inference_mode():
        output = backbone.forward(backbone.preprocessing.collate(prepared))
    return output.features.numpy(), output.logits.numpy()


def assert_same_statistics(left: Statistics, right: Statistics) -> None:
    assert left.n == right.n
    assert sorted(left.blocks) == sorted(right.blocks)
    for index, block in left.blocks.items():
        block, other = block.about_zero(), right.blocks[index].about_zero()
        for name in ("gram", "cross", "target_squares", "feature_sum", "target_sum"):
            np.testing.assert_allclose(getattr(block, name), getattr(other, name), rtol=1e-9, atol=1e-9)


def test_features_and_logits_are_those_of_a_bare_forward_pass(backbone: Any, task: Task) -> None:
    features, logits = bare_forward(backbone, task)
    result = extract(backbone, task, device="cpu", batch_size=37)
    np.testing.assert_allclose(result.features(), features, atol=1e-6)
    assert result.logits is not None
    np.testing.assert_allclose(result.logits, logits, atol=1e-6)
    np.testing.assert_array_equal(result.targets, task.train.targets)
    assert (result.n, result.layers, result.from_cache, result.device) == (700, ("",), False, "cpu")
    assert result.samples_per_second > 0
    assert max(backbone.batches[1:]) == 37


def test_statistics_are_those_of_the_features_block_by_block(backbone: Any, task: Task) -> None:
    result = extract(backbone, task, device="cpu")
    blocks = assign_blocks(700, 10, task.fingerprint)
    expected = Statistics("classification", task.target_names)
    for block in range(10):
        expected.update(result.features()[blocks == block], result.targets[blocks == block], block=block)
    assert_same_statistics(result.statistics[""], expected)


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_other_kinds_of_targets(backbone: Any, make_image_task: Callable[..., Task], kind: str) -> None:
    task = make_image_task(50, kind=kind)
    result = extract(backbone, task, device="cpu")
    total = result.statistics[""].total().about_zero()
    np.testing.assert_allclose(total.cross, task.train.targets.T @ result.features().astype(float), rtol=1e-9)


def test_layers_come_in_the_same_pass(backbone: Any, task: Task) -> None:
    result = extract(backbone, task, device="cpu", layers="all", batch_size=100)
    assert result.layers == ("", "stem", "body")
    assert sum(backbone.batches) == 700
    np.testing.assert_array_equal(result.features("body"), result.features())
    assert result.features("stem").shape == (700, 8)
    assert result.statistics["stem"].feature_dim == 8
    assert_same_statistics(result.statistics["body"], result.statistics[""])


def test_statistics_alone_keep_no_features(backbone: Any, make_backbone: Any, task: Task) -> None:
    lean = extract(backbone, task, device="cpu", keep_features=False, layers=("stem",))
    full = extract(make_backbone(), task, device="cpu", layers=("stem",))
    for layer in ("", "stem"):
        assert_same_statistics(lean.statistics[layer], full.statistics[layer])
    assert lean.logits is None
    with pytest.raises(InputError, match="keep_features=True"):
        lean.features()


def test_shards_merge_to_the_whole(make_backbone: Any, task: Task) -> None:
    whole = extract(make_backbone(), task, device="cpu", shard_rows=100)
    parts = [extract(make_backbone(), task, device="cpu", shard_rows=100, shards=[s]) for s in (3, 0, 6, 2, 1, 5, 4)]
    merged = parts[0].statistics[""]
    for part in parts[1:]:
        merged = merged + part.statistics[""]
    assert_same_statistics(merged, whole.statistics[""])
    in_order = sorted(parts, key=lambda part: part.rows[0])
    np.testing.assert_allclose(np.concatenate([part.features() for part in in_order]), whole.features(), atol=1e-6)


def test_indices_keep_the_blocks_of_the_whole_split(backbone: Any, task: Task) -> None:
    rows = np.array([9, 3, 400, 77])
    result = extract(backbone, task, device="cpu", indices=rows)
    features, _ = bare_forward(backbone, task)
    np.testing.assert_allclose(result.features(), features[rows], atol=1e-6)
    np.testing.assert_array_equal(result.targets, np.asarray(task.train.targets)[rows])
    blocks = assign_blocks(700, 10, task.fingerprint)[rows]
    assert {block: part.n for block, part in result.statistics[""].blocks.items()} == {
        block: int((blocks == block).sum()) for block in set(blocks.tolist())
    }


def test_tagging_flattens_sentences_and_keeps_them_in_one_block(make_tagger: Any, make_tagging_task: Any) -> None:
    task, backbone = make_tagging_task(), make_tagger()
    result = extract(backbone, task, device="cpu", batch_size=16)
    words = [word for sentence in task.train.inputs for word in sentence]
    ids = torch.tensor([sum(map(ord, word)) % 97 for word in words])
    np.testing.assert_array_equal(result.features(), backbone.module(ids).detach().numpy())
    np.testing.assert_array_equal(result.targets, np.concatenate(task.train.targets))
    assert result.n == len(words) > len(result.rows) == 400
    lengths = np.array([len(sentence) for sentence in task.train.inputs])
    blocks = assign_blocks(400, 10, task.fingerprint)
    for index, block in result.statistics[""].blocks.items():
        assert block.n == lengths[blocks == index].sum()


def test_texts_are_batched_by_length(make_tagger: Any) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join("ab" for _ in range(rng.integers(1, 60))) for _ in range(256)]
    split = Split(texts, rng.integers(0, 2, 256))
    task = Task("texts", "classification", "text", ("no", "yes"), {"train": split}, "texts")
    backbone = make_tagger(words=False)
    result = extract(backbone, task, device="cpu", batch_size=16)
    padded = sum(backbone.widths) * 16
    assert padded < 1.15 * sum(len(text.split()) for text in texts)
    assert backbone.widths == sorted(backbone.widths, reverse=True)
    expected = backbone.module(torch.tensor([sum(map(ord, "ab")) % 97])).detach().numpy()
    np.testing.assert_allclose(result.features(), np.repeat(expected, 256, 0), rtol=1e-5)


def test_where_batches_are_cut_does_not_depend_on_when_memory_ran_out(make_backbone: Any, make_image_task: Any) -> None:
    class Small(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Any, layers: Any = ()) -> Any:
            if len(batch["pixels"]) > 6:
                time.sleep(0.2)  # batches are prepared meanwhile, by the size that was asked for
                raise RuntimeError("out of memory")
            return super().forward(batch, layers)

    backbone = Small()
    extract(backbone, make_image_task(250), device="cpu", batch_size=22)
    # The first is halved twice on the way; every other one is cut alike, however early it was prepared.
    assert backbone.batches == [5, 5, 1, 5, 5, 1] + 10 * [5, 5, 5, 5, 2] + [5, 3]


def test_memory_running_out_halves_the_batch_and_says_so(make_backbone: Any, task: Task) -> None:
    class Tight(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Batch, layers: Any = ()) -> Output:
            if len(batch["pixels"]) > 20:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().forward(batch, layers)

    backbone = Tight()
    result = extract(backbone, task, device="cpu", batch_size=128)
    features, _ = bare_forward(make_backbone(), task)
    np.testing.assert_allclose(result.features(), features, atol=1e-6)
    assert result.batch_size == 16
    assert result.messages == (
        "out of memory with 128 samples at once: going on with 64",
        "out of memory with 64 samples at once: going on with 32",
        "out of memory with 32 samples at once: going on with 16",
    )


def test_a_model_that_fits_no_sample_is_a_model_error(make_backbone: Any, task: Task) -> None:
    class Huge(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Batch, layers: Any = ()) -> Output:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(ModelError, match="single sample"):
        extract(Huge(), task, device="cpu")


def test_features_that_are_not_finite_are_refused(make_backbone: Any, task: Task) -> None:
    class Broken(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Batch, layers: Any = ()) -> Output:
            output = super().forward(batch, layers)
            return Output(output.features / 0.0 * 0.0, output.logits)

    with pytest.raises(ModelError, match="not finite"):
        extract(Broken(), task, device="cpu")


class Broken(list):  # type: ignore[type-arg]
    """Inputs of which one cannot be read."""

    def __getitem__(self, index: Any) -> Any:
        if index == 301:
            raise OSError("image file is truncated (12 bytes not processed)")
        return super().__getitem__(index)


def test_a_broken_sample_is_named(backbone: Any, task: Task) -> None:
    bad = replace(task, splits={"train": Split(Broken(task.train.inputs), task.train.targets)})
    with pytest.raises(TaskError, match=r"Sample 301 of split 'train' of task 'noise'.*truncated.*skip_bad=True"):
        extract(backbone, bad, device="cpu")


def test_a_broken_sample_can_be_left_out(backbone: Any, task: Task) -> None:
    bad = replace(task, splits={"train": Split(Broken(task.train.inputs), task.train.targets)})
    result = extract(backbone, bad, device="cpu", skip_bad=True)
    keep = np.arange(700) != 301
    features, _ = bare_forward(backbone, task)
    np.testing.assert_allclose(result.features(), features[keep], atol=1e-6)
    np.testing.assert_array_equal(result.targets, np.asarray(task.train.targets)[keep])
    assert result.skipped == (301,)
    reason = "image file is truncated (12 bytes not processed)"
    assert result.messages == (f"sample 301 cannot be read and is left out: {reason}",)
    assert result.statistics[""].n == 699


def test_preprocessing_that_fails_is_the_models_fault(backbone: Any, task: Task) -> None:
    shapes = [*task.train.inputs[:-1], "no array"]
    odd = replace(task, splits={"train": Split(shapes, task.train.targets)})
    with pytest.raises(ModelError, match="preprocessing fails on sample 699"):
        extract(backbone, odd, device="cpu", skip_bad=True)


def test_training_mode_is_put_back(backbone: Any, task: Task) -> None:
    backbone.module.train()
    backbone.module["norm"].eval()
    before = backbone.module["norm"].running_mean.clone()
    extract(backbone, task, device="cpu")
    assert backbone.module.training
    assert backbone.module["stem"].training
    assert not backbone.module["norm"].training
    assert torch.equal(before, backbone.module["norm"].running_mean)


def test_progress_is_told(backbone: Any, task: Task) -> None:
    events: list[Event] = []
    extract(backbone, task, device="cpu", observer=events.append)
    assert events[0] == Started("test/conv", 700)
    assert isinstance(events[-1], Finished)
    assert sum(event.rows for event in events if isinstance(event, Advanced)) == 700
    assert not [event for event in events if isinstance(event, Message)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "valid"}, "split must be one of train"),
        ({"layers": ("stam",)}, "has no layer 'stam'. It has: stem, body"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"indices": [0, 700]}, "between 0 and 699"),
        ({"indices": [1, 1]}, "twice"),
        ({"shards": [9]}, "shards must lie between 0 and 2"),
        ({"device": "tpu9"}, "device must be"),
        ({"precision": "int8"}, "precision must be one of"),
        ({"blocks": 0}, "blocks must be at least 1"),
    ],
)
def test_bad_arguments(backbone: Any, task: Task, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extract(backbone, task, **{"device": "cpu", **options})
