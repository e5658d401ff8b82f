"""Small networks that take a given time, by a clock that nothing else moves: however busy the machine is."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from tuning_networks import Images, perceptron

from hubscout.hubs import Backbone


class Clock:
    """A clock that goes on with each pass of a network, and with nothing else."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


class Pass(nn.Module):
    """Takes a given time; another one after some passes."""

    def __init__(self, seconds: float, later: float, after: int) -> None:
        super().__init__()
        self.seconds, self.later, self.after, self.passes = seconds, later, after, 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        CLOCK.now += self.later if self.passes > self.after else self.seconds
        return inputs


def slow(seconds: float, later: float | None = None, after: int = 10) -> Backbone:
    backbone = perceptron(0)
    backbone.module.body.insert(0, Pass(seconds, seconds if later is None else later, after))
    return backbone


class PerSample(nn.Module):
    """Takes a given time for each sample, three times that with the backward pass."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, inputs: Tensor) -> Tensor:
        CLOCK.now += self.seconds * len(inputs) * (3 if torch.is_grad_enabled() else 1)
        return inputs


def heavy(seconds: float, seed: int = 0) -> Backbone:
    backbone = perceptron(seed)
    backbone.module.body.insert(0, PerSample(seconds))
    return backbone


class Evenly(PerSample):
    """As long without a backward pass as with one, as where reading the samples takes the time."""

    def forward(self, inputs: Tensor) -> Tensor:
        CLOCK.now += self.seconds * len(inputs)
        return inputs


class ImagesPerSample(Images):
    """The same over images."""

    def __init__(self, seconds: float, seed: int) -> None:
        super().__init__(seed, 8)
        self.seconds = seconds

    def forward(self, images: Tensor) -> Tensor:
        CLOCK.now += self.seconds * len(images) * (3 if torch.is_grad_enabled() else 1)
        return super().forward(images)


def heavy_on_images(seconds: float, seed: int = 0) -> nn.Module:
    return ImagesPerSample(seconds, seed)
