from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hubscout.errors import InputError
from hubscout.evidence import maximize_evidence
from hubscout.features import extract, precision
from hubscout.features.forward import Runner
from hubscout.features.precision import (
    BatchSize,
    Precision,
    compiling_pays,
    is_device_fault,
    is_out_of_memory,
    pick_device,
    pick_precision,
    relative_error,
    wait_until_warm,
    warm_up,
)
from hubscout.hubs import Batch, Output
from hubscout.tasks import Task


def runner_of(backbone: Any, precision: Precision, *, samples: int = 64, tell: Callable[[str], None] = print) -> Runner:
    device = precision.device_type
    return Runner(
        backbone, device=device, precision=precision, layers=(), size=BatchSize(64), samples=samples, tell=tell
    )


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_reduced_formats_leave_the_score_unchanged_to_a_thousandth(
    make_backbone: Any, task: Task, precision: str
) -> None:
    exact = extract(make_backbone(), task, device="cpu", precision="float32")
    reduced = extract(make_backbone(), task, device="cpu", precision=precision)
    assert reduced.precision == precision
    assert reduced.features().dtype == np.float32
    assert not np.array_equal(exact.features(), reduced.features())
    scores = [maximize_evidence(result.statistics[""]).score for result in (exact, reduced)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_a_format_that_agrees_is_kept_after_the_check(backbone: Any, task: Task) -> None:
    told: list[str] = []
    runner = runner_of(backbone, Precision("float16", "cpu", checked=True), tell=told.append)
    samples = [backbone.preprocessing(sample) for sample in task.train.inputs[:64]]
    with runner:
        runner.run(backbone.preprocessing.collate(samples), samples, np.ones(64, dtype=np.int64))
    assert runner.precision == Precision("float16", "cpu")
    assert told == []


def test_overflow_goes_on_in_float32(make_backbone: Any, task: Task) -> None:
    class Large(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Batch, layers: Any = ()) -> Output:
            output = super().forward(batch, layers)
            return Output(self.module["head"](output.features * 1e6), output.logits)

    result = extract(Large(), task, device="cpu", precision="float16")
    assert result.precision == "float32"
    assert result.messages == ("float16 overflows: going on in float32",)
    assert np.isfinite(result.features()).all()


def test_auto_is_exact_on_the_cpu_and_checked_on_cuda() -> None:
    assert pick_precision("auto", "cpu") == Precision("float32", "cpu")
    assert pick_precision("auto", "cuda:1") == Precision("float16", "cuda", checked=True)
    assert pick_precision("bfloat16", "cuda") == Precision("bfloat16", "cuda")


def test_a_device_that_is_not_there_is_said() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert pick_device("auto") in ("cpu", "mps")
    with pytest.raises(InputError, match="no CUDA device"):
        pick_device("cuda:0")


def test_picking_a_device_makes_no_garbage_old_once_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_again(**how: bool) -> None:
        raise AssertionError("all objects would be moved to the oldest generation")

    monkeypatch.setattr(precision, "uncollected", import_again)
    assert pick_device("cpu") == "cpu"


def test_a_device_is_warmed_up_once_whatever_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.Tensor] = []
    solve = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda square: used.append(square) or solve(square))
    monkeypatch.setattr(precision, "_warming", {})
    wait_until_warm("cpu")  # nothing has begun
    for _ in range(2):
        warm_up("cpu")
        wait_until_warm("cpu")
        assert [square.dtype for square in used] == [torch.float64]  # it came to the end
    warm_up("nowhere")
    wait_until_warm("nowhere")


def test_relative_error() -> None:
    exact = torch.tensor([[3.0, 4.0]])
    assert relative_error(exact * 1.01, exact) == pytest.approx(0.01, rel=1e-4)
    assert relative_error(exact / 0.0, exact) == float("inf")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_signs_of_exhausted_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("CUDA error: of another kind"), False),
    ],
)
def test_signs_of_a_device_that_failed(error: Exception, expected: bool) -> None:
    assert is_device_fault(error) is expected


def test_the_cpu_allocator_really_says_so() -> None:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def network(*groups: int) -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Conv2d(8, 8, 3, groups=count) for count in groups))


def test_kernels_of_depthwise_convolutions_are_compiled_for_many_samples_alone() -> None:
    depthwise, other = network(1, 8), network(1, 4)
    assert not compiling_pays(depthwise, "cuda:0", 3_000)
    assert compiling_pays(depthwise, "cuda:0", 200_000)
    assert compiling_pays(other, "cuda", 3_000)
    assert compiling_pays(depthwise, "cpu", 3_000)
    assert compiling_pays(None, "cuda", 3_000)


@pytest.mark.parametrize(("samples", "found"), [(3_000, ("float32", False)), (200_000, ("float16", True))])
def test_few_samples_of_such_a_network_stay_in_float32_and_the_usual_layout(
    backbone: Any, samples: int, found: tuple[str, bool]
) -> None:
    backbone.module = network(1, 8)
    runner = runner_of(backbone, Precision("float16", "cuda", checked=True), samples=samples)
    assert (runner.precision.name, runner._channels_last) == found


def test_a_network_that_takes_a_view_of_its_maps_goes_on_in_the_usual_layout(
    make_backbone: Any, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def viewed(self: Any, batch: Batch, layers: Any = ()) -> Output:
        layouts.append(batch["pixels"].is_contiguous())
        return Output(self.module["stem"](batch["pixels"]).view(len(batch["pixels"]), -1)[:, :40])

    layouts: list[bool] = []
    monkeypatch.setattr(make_backbone, "forward", viewed)
    found = extract(make_backbone(), task, device="cpu", batch_size=64)
    assert layouts[0] is False
    assert all(layouts[1:])
    assert len(layouts) > 2
    pixels = np.stack([np.asarray(make_backbone().preprocessing(x)) for x in task.train.inputs[:5]])
    wanted = make_backbone().module["stem"](torch.as_tensor(pixels)).flatten(1)[:, :40]
    np.testing.assert_allclose(found.features()[:5], wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_arrays_of_a_batch_may_be_fetched_after_the_next_was_begun(backbone: Any, task: Task) -> None:
    runner = runner_of(backbone, Precision("float32", "cpu"))
    samples = [backbone.preprocessing(sample) for sample in task.train.inputs[:64]]
    halves = [samples[:32], samples[32:]]
    ones = np.ones(32, dtype=np.int64)
    with runner:
        alone = [runner.run(backbone.preprocessing.collate(half), half, ones)[""] for half in halves]
        begun = [runner.launch(backbone.preprocessing.collate(half), half, ones) for half in halves]
        for finish, expected in zip(begun, alone, strict=True):
            np.testing.assert_array_equal(finish()[""], expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_a_cpu_gives(make_backbone: Any, task: Task) -> None:
    """With the next batch under way, and a last one that is filled up."""
    on_cpu, on_gpu = (extract(make_backbone(), task, device=device, batch_size=128) for device in ("cpu", "cuda"))
    assert relative_error(torch.from_numpy(on_gpu.features()), torch.from_numpy(on_cpu.features())) < 0.01
    assert np.array_equal(on_cpu.rows, on_gpu.rows)
