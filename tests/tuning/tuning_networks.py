"""Small real networks and data for the tests of tuning: nothing is downloaded, a run takes a fraction of a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from hubscout.hubs import Backbone, Batch, ModelCard, Output
from hubscout.hubs.vision import ARRAYS, ArrayPreprocessing
from hubscout.tasks import Split, Task

if TYPE_CHECKING:
    from hubscout.tuning import Tuned


class SmallBackbone(Backbone):
    """A network over arrays, with a source head that tuning does not use."""

    def __init__(self, module: nn.Module, name: str, feature_dim: int) -> None:
        self.module = module.eval()
        self.source_head = None
        self.preprocessing = ArrayPreprocessing()
        params = sum(p.numel() for p in module.parameters())
        weights = torch.cat([p.detach().flatten() for p in module.state_dict().values()]).double()
        self.card = ModelCard(
            identifier=f"small/{name}",
            architecture="small",
            modalities=("array",),
            feature_dim=feature_dim,
            params=params,
            bytes=4 * params,
            weights_fingerprint=f"{float((weights * torch.arange(1, len(weights) + 1)).sum()):.17g}",
        )

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        x = batch[ARRAYS]
        features = self.module.body(x)
        return Output(features, self.module.head(features))


class Layers(nn.Module):
    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, 5)


def perceptron(
    seed: int = 0, *, width: int = 16, inputs: int = 8, norm: bool = False, dropout: float = 0.0
) -> Backbone:
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width)]
    if norm:
        layers.insert(1, nn.BatchNorm1d(width))
    return SmallBackbone(Layers(nn.Sequential(*layers), width), f"perceptron-{seed}-{width}", width)


def convolutional(seed: int = 0, *, width: int = 8) -> Backbone:
    """Convolution, depthwise convolution and batch norm, on 3×8×8 arrays."""
    torch.manual_seed(seed)
    body = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return SmallBackbone(Layers(body, width), f"convolutional-{seed}", width)


def make_task(kind: str = "classification", n: int = 96, *, shape: tuple[int, ...] = (8,), seed: int = 0) -> Task:
    """Three classes (labels, columns) that a linear map of the inputs explains, with a little noise."""
    generator = np.random.default_rng(seed)
    total = n + 64
    inputs = generator.normal(size=(total, *shape)).astype(np.float32)
    scores = inputs.reshape(total, -1) @ generator.normal(size=(int(np.prod(shape)), 3))
    scores += 0.1 * generator.normal(size=scores.shape)
    targets: np.ndarray = {
        "classification": lambda: scores.argmax(axis=1).astype(np.int64),
        "multilabel": lambda: (scores > 0).astype(np.int64),
        "regression": lambda: 100 + 5 * scores,
    }[kind]()
    cuts = {"train": slice(0, n), "validation": slice(n, n + 32), "test": slice(n + 32, None)}
    return Task(
        name="small",
        kind=kind,  # type: ignore[arg-type]
        modality="array",
        target_names=("a", "b", "c"),
        splits={name: Split(inputs[part], targets[part]) for name, part in cuts.items()},
        fingerprint=f"{kind}-{n}-{shape}-{seed}",
    )


def weights_of(backbone: Backbone) -> dict[str, Tensor]:
    assert backbone.module is not None
    return {name: value.detach().clone() for name, value in backbone.module.state_dict().items()}


class Images(nn.Module):
    """A small network over 16×16 images that says, as timm's do, what it takes."""

    def __init__(self, seed: int, width: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}
        self.num_features = width
        self.convolution = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(width)
        with torch.no_grad():
            self.convolution.weight.normal_(generator=generator)
            nn.init.zeros_(self.convolution.bias)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.norm(self.convolution(images))).mean(dim=(2, 3))


def images(seed: int = 0, width: int = 8) -> nn.Module:
    """For identifiers: `python:tuning_networks:images?seed=1`."""
    return Images(seed, width)


def image_task(n: int = 24) -> Task:
    """Red, green and blue noise."""
    generator = np.random.default_rng(0)

    def split(count: int) -> tuple[np.ndarray, list[str]]:
        labels = np.arange(count) % 3
        pixels = generator.integers(0, 120, size=(count, 16, 16, 3))
        pixels[np.arange(count), :, :, labels] += 100
        return pixels.astype(np.uint8), [("blue", "green", "red")[2 - label] for label in labels]

    return Task.from_arrays(*split(n), validation=split(12), test=split(12), name="colours", modality="image")


def assert_same(first, second, *, exact=True) -> None:
    """The same weights, of backbone and head."""
    for (name, a), b in zip(
        {**weights_of(first.backbone), "head": first.head.weight}.items(),
        {**weights_of(second.backbone), "head": second.head.weight}.values(),
        strict=True,
    ):
        assert torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-6), name


def softmax(z: np.ndarray) -> np.ndarray:
    exponents = np.exp(z - z.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def outputs(tuned: Tuned, task: Task) -> np.ndarray:
    """What the head gives for the train split."""
    inputs = torch.as_tensor(np.asarray(task.train.inputs))
    with torch.no_grad():
        return tuned.head(tuned.backbone.module.body(inputs)).double().numpy()


def write_images(root: Path) -> Path:
    """The images of `image_task` in a folder per split and class."""
    task = image_task()
    for part, split in task.splits.items():
        for number in range(len(split)):
            place = root / part / task.target_names[split.targets[number]]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(split.inputs[number])).save(place / f"{number}.png")
    return root
