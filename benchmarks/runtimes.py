"""Forward passes in float32 on one thread of a CPU, by what runs them, as ratios to torch's eager channels-last passes.

    python benchmarks/runtimes.py                                # about ten minutes on two quiet cores
    python benchmarks/runtimes.py --models resnet50 --rounds 21
    python benchmarks/runtimes.py --runtimes openvino            # beside eager passes; prints the peak memory of both

Networks with random weights, 16 images at 224 px or 16 texts, features before the classifier. The runtimes take turns,
so that whatever else the machine does falls on all of them; the figure of one is its median of processor seconds.
Beside it: its seconds until it runs (export, conversion, compilation, and what its first passes take longer), and how
far its features are from torch's, as a share of the largest. OpenVINO is left out where it is not installed. It is told
to calculate in float32: by itself it takes bf16 where a processor has instructions for it.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import os
import resource
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # workers that are never waited for would not be counted

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from hubscout.features.static_padding import write_padding_down
from hubscout.hubs.image_preprocessing import prepare_torchvision
from hubscout.optional import require

prepare_torchvision()
import timm  # noqa: E402
import transformers  # noqa: E402

IMAGE_MODELS = ("tf_efficientnet_lite0", "mobilenetv2_100", "resnet50", "convnext_atto", "vit_tiny_patch16_224")
TEXT_LENGTHS = {"bert, 32 tokens": [32], "bert, 8 to 64 tokens": list(range(64, 7, -8))}
BERT = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}

Batches = Sequence[tuple[Tensor, ...]]
Passes = list[Callable[[], Any]]  # one for each batch; what it gives are the features, or begins with them


class Encoder(nn.Module):
    """A BERT of the size of MiniLM, and the mean over its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = transformers.BertModel(transformers.BertConfig(**BERT), add_pooling_layer=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        return (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)


def network_and_batches(model: str) -> tuple[nn.Module, Batches]:
    torch.manual_seed(0)
    if model in IMAGE_MODELS:
        return timm.create_model(model, num_classes=0).eval(), [(torch.randn(16, 3, 224, 224),)]
    masks = [(torch.arange(n) < torch.linspace(n / 2, n, 16)[:, None]).long() for n in TEXT_LENGTHS[model]]
    return Encoder().eval(), [(torch.randint(1000, 30000, mask.shape) * mask, mask) for mask in masks]


def in_torch(network: nn.Module, batches: Batches, way: str) -> Passes:
    layout = torch.channels_last
    network.to(memory_format=layout)  # type: ignore[call-overload]
    laid_out = [[x.contiguous(memory_format=layout) if x.ndim == 4 else x for x in batch] for batch in batches]
    run: Callable[..., Any] = network
    if way == "torchscript":
        traced = torch.jit.trace(network, tuple(laid_out[0]), check_trace=False)
        run = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    elif way != "eager":
        run = torch.compile(network, dynamic=len(batches) > 1, options={"freezing": way == "frozen"})
    return [partial(run, *batch) for batch in laid_out]


def exported(network: nn.Module, example: tuple[Tensor, ...]) -> bytes:
    """An ONNX file with a free number of samples and tokens, calculated as in that of `rank`."""
    names = ["images"] if len(example) == 1 else ["ids", "mask"]
    axes = {name: {axis: f"{name} {axis}" for axis in range(len(names))} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.onnx")
        torch.onnx.export(network, example, str(path), input_names=names, dynamic_axes=axes, dynamo=False)
        if names == ["images"]:
            write_padding_down(path, {"images": example[0][:2].numpy()}, {})
        return path.read_bytes()


def in_onnxruntime(network: nn.Module, batches: Batches) -> Passes:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(exported(network, batches[0]), options, providers=["CPUExecutionProvider"])
    names = [place.name for place in session.get_inputs()]
    inputs = [{name: x.numpy() for name, x in zip(names, batch, strict=True)} for batch in batches]
    return [partial(session.run, None, arrays) for arrays in inputs]


def in_openvino(network: nn.Module, batches: Batches) -> Passes:
    Core = require("openvino", extra="openvino", purpose="The benchmark").Core
    graph = Core().read_model(exported(network, batches[0]))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "ENABLE_CPU_PINNING": False}
    request = Core().compile_model(graph, "CPU", settings).create_infer_request()
    return [partial(request.infer, [x.numpy() for x in batch], share_inputs=True) for batch in batches]


IN_TORCH = {name: partial(in_torch, way=name) for name in ("eager", "torchscript", "inductor", "frozen")}
RUNTIMES: dict[str, Callable[..., Passes]] = {**IN_TORCH, "onnxruntime": in_onnxruntime, "openvino": in_openvino}


def processor_seconds(work: Callable[[], object]) -> float:
    """Those of this process and of the compilers that it calls."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    before = sum(sum(resource.getrusage(one)[:2]) for one in both)
    work()
    return sum(sum(resource.getrusage(one)[:2]) for one in both) - before


def measure(model: str, runtimes: Sequence[str], rounds: int) -> None:
    torch._dynamo.reset()
    network, batches = network_and_batches(model)
    with FlopCounterMode(display=False) as counter:
        exact = [network(*batch) for batch in batches]
    passes: dict[str, Passes] = {}
    errors: dict[str, float] = {}

    def start(name: str) -> None:
        passes[name] = RUNTIMES[name](copy.deepcopy(network), batches)
        pairs = [(one(), expected) for one, expected in zip(passes[name], exact, strict=True)]
        found = [(x if isinstance(x, Tensor) else torch.from_numpy(x[0]), expected) for x, expected in pairs]
        errors[name] = max(float((x - expected).abs().max() / expected.abs().max()) for x, expected in found)

    starts = {name: processor_seconds(partial(start, name)) for name in runtimes}
    seconds: dict[str, list[float]] = {name: [] for name in runtimes}
    for _ in range(rounds):
        for name in runtimes:
            seconds[name].append(processor_seconds(lambda: [one() for one in passes[name]]))  # noqa: B023  called at once
    took = {name: median(several) for name, several in seconds.items()}
    for name, one in took.items():
        speed = f"{took['eager'] / one:.2f} times as fast, {counter.get_total_flops() / one / 1e9:3.0f} GFLOP/s"
        print(
            f"{model:22} {name:12} {speed}; starts in {starts[name] - one:4.1f} s, off by {errors[name]:.0e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[*IMAGE_MODELS, *TEXT_LENGTHS])
    parser.add_argument("--runtimes", nargs="*", default=list(RUNTIMES), choices=list(RUNTIMES))
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    runtimes = list(dict.fromkeys(["eager", *options.runtimes]))
    if importlib.util.find_spec("openvino") is None:
        runtimes = [name for name in runtimes if name != "openvino"]
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    matrix = torch.randn(2048, 2048)
    product = median(processor_seconds(lambda: matrix @ matrix) for _ in range(21))
    print(f"torch multiplies two matrices of 2,048 rows and columns at {2 * 2048**3 / product / 1e9:.0f} GFLOP/s")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # an empty one: compiling is to take what it takes at first
        for model in options.models:
            measure(model, runtimes, options.rounds)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
