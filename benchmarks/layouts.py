"""A step of training on a CPU by memory layout and number format, as ratios to what torch does by itself.

    python benchmarks/layouts.py
    python benchmarks/layouts.py --models resnet50 convnext_tiny --input-size 224

Architectures of timm with random weights, 32 images, one thread, processor seconds. The ways take turns, so that
whatever else the machine does falls on all of them; the figure of a way is its quickest step. `tune` trains images in
channels-last, and in bf16 with `mixed_precision="bf16"`, which pays on processors that have instructions for it.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from hubscout.hubs.image_preprocessing import prepare_torchvision

prepare_torchvision()
import timm  # noqa: E402

MODELS = (
    "mobilenetv2_100",
    "tf_efficientnet_lite0",
    "resnet18",
    "resnet50",
    "mobilenetv3_small_100",
    "regnety_002",
    "densenet121",
    "convnext_atto",
    "vit_tiny_patch16_224",
)
WAYS = {
    "usual": (torch.contiguous_format, False),
    "channels-last": (torch.channels_last, False),
    "channels-last, bf16": (torch.channels_last, True),
}


class Training:
    """One network that is trained in one way on the same images again and again."""

    def __init__(self, model: str, way: str, pixels: int, images: int) -> None:
        layout, self.bf16 = WAYS[way]
        torch.manual_seed(0)
        resizes = {"img_size": pixels} if model.startswith("vit") else {}
        self.network = timm.create_model(model, num_classes=10, **resizes).train().to(memory_format=layout)
        self.images = torch.randn(images, 3, pixels, pixels).contiguous(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-4, momentum=0.9)

    def step(self) -> float:
        began = time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.network(self.images).float().square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--input-size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for model in options.models:
        runs = {way: Training(model, way, options.input_size, options.batch_size) for way in WAYS}
        for run in runs.values():
            run.step()  # warms up
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, run in runs.items():
                times[way].append(run.step())
        usual, *others = (min(found) for found in times.values())
        ratios = ", ".join(f"{way} {usual / found:.2f}" for way, found in zip(list(WAYS)[1:], others, strict=True))
        print(f"{model:24} usual {usual:.3f} s; times as fast: {ratios}", flush=True)


if __name__ == "__main__":
    main()
