"""Evidence of the linearised network: of a linear model in the gradients of all weights, for small steps of tuning.

Gradients are those of v·φ(x) for one direction v of the features φ: a Gaussian one, or a class-aware one, which is a
sum of LogME's class weights with random signs. Their kernel is a sum over layers. Of a layer's gradient, the product of
the output's gradient and the input, a sketch is kept: both are projected at random to 16 numbers. Mixed: the tangent
kernel joins that of the frozen features with a share that the evidence chooses.
"""

from __future__ import annotations

import time
from collections import defaultdict

import numpy as np
import torch
from gaussian import best, frozen_scores, mixtures, unit
from judged import Batch, ask, batches, features, one_hot
from torch import nn
from torch.nn import functional

from hubscout.evidence import logme
from hubscout.hubs import Backbone

IMAGES = 256
BATCH = 32
LEFT = RIGHT = 16
"""Numbers that are kept of an output's gradient and of an input."""
DEPTHWISE = 4
"""Projections of the input of a convolution of single channels."""
SHARES = (0.0, 0.03, 0.1, 0.3, 0.6, 0.9, 1.0)
DIRECTIONS = ("random", "class-aware")
SAMPLED = (nn.Conv2d, nn.Linear, nn.BatchNorm2d)

Kernels = dict[tuple[int, str, str], np.ndarray]
"""By layer, direction and part: "weight", "relative" (steps in proportion to a filter's size), "offset" (biases and
norms), "pooled" (the outputs themselves, without a direction)."""


class Sketch:
    """What a layer leaves of its gradients."""

    def __init__(self, module: nn.Module, generator: torch.Generator) -> None:
        self.module = module
        self.gradient: torch.Tensor | None = None
        self.inputs: torch.Tensor | None = None
        self.is_norm, self.is_linear = isinstance(module, nn.BatchNorm2d), isinstance(module, nn.Linear)
        self.is_depthwise = isinstance(module, nn.Conv2d) and module.groups > 1
        if self.is_norm:
            return
        weight = module.weight.detach()
        self.size = weight.flatten(1).pow(2).mean(dim=1).sqrt()
        if self.is_depthwise:
            channels = module.in_channels
            if not module.groups == channels == module.out_channels:
                raise ValueError(f"a convolution in groups that are not single channels: {module}")
            shape = (DEPTHWISE * channels, 1, *module.kernel_size)
            self.filters = torch.randn(*shape, generator=generator) / DEPTHWISE**0.5
            kept = LEFT * RIGHT
            self.left = torch.randn(DEPTHWISE * channels, kept, generator=generator) / kept**0.5
        else:
            self.filters = torch.randn(RIGHT, *weight.shape[1:], generator=generator) / RIGHT**0.5
            self.left = torch.randn(LEFT, len(weight), generator=generator) / LEFT**0.5

    def forward_hook(self, module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """Keep the projected input, and ask for the output's gradient."""
        given, made = inputs[0].detach(), output.detach()
        with torch.no_grad():
            self.pooled = made.mean(dim=(2, 3)) if made.ndim == 4 else made
            self.passes = passes(module, made)
            if self.is_norm:
                spread = (module.running_var[:, None, None] + module.eps).sqrt()
                self.inputs = (given - module.running_mean[:, None, None]) / spread
            elif self.is_linear:
                self.inputs = given @ self.filters.T
            else:
                self.inputs = self.convolve(given).flatten(2)
        if output.requires_grad:
            output.register_hook(self.keep)

    def keep(self, gradient: torch.Tensor) -> None:
        self.gradient = gradient.detach()

    def convolve(self, given: torch.Tensor) -> torch.Tensor:
        module = self.module
        groups = module.groups if self.is_depthwise else 1
        options = (None, module.stride, module.padding, module.dilation, groups)
        if type(module).__name__ == "Conv2dSame":
            from timm.layers.conv2d_same import conv2d_same

            return conv2d_same(given, self.filters, *options)
        return functional.conv2d(given, self.filters, *options)

    def collect(self) -> dict[str, torch.Tensor]:
        """Sketches of the gradients of a batch, a row an image."""
        gradient, inputs = self.gradient, self.inputs
        if gradient is None or inputs is None:
            return {}
        if self.passes is not None:
            gradient = gradient * self.passes
        summed = gradient.sum(dim=(2, 3)) if gradient.ndim == 4 else gradient
        if self.is_norm:
            return {"offset": torch.cat([(gradient * inputs).sum(dim=(2, 3)), summed], dim=1)}
        found = {} if self.module.bias is None else {"offset": summed}
        if self.is_depthwise:
            images, channels = gradient.shape[:2]
            split = inputs.view(images, channels, DEPTHWISE, -1)
            each = (split * gradient.flatten(2)[:, :, None]).sum(dim=-1)
            found["weight"] = each.flatten(1) @ self.left
            found["relative"] = (each * self.size[:, None]).flatten(1) @ self.left
            return found
        for name, left in (("weight", self.left), ("relative", self.left * self.size)):
            if self.is_linear:
                found[name] = torch.einsum("bi,bj->bij", gradient @ left.T, inputs).flatten(1)
            else:
                found[name] = (left @ gradient.flatten(2) @ inputs.transpose(1, 2)).flatten(1)
        return found


def passes(module: nn.Module, made: torch.Tensor) -> torch.Tensor | None:
    """Where the activation that some norms bring along lets a gradient through; None without one."""
    activation = type(getattr(module, "act", None)).__name__
    if activation in ("NoneType", "Identity"):
        return None
    return (made > 0) & (made < 6) if activation == "ReLU6" else made > 0


def directions(phi: np.ndarray, labels: np.ndarray, seed: int = 1) -> dict[str, torch.Tensor]:
    """Of length one."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.tensor(logme(phi, labels, jackknife="none").weights, dtype=torch.float32)
    gaussian = torch.randn(phi.shape[1], generator=generator)
    signs = torch.randint(0, 2, (len(weights),), generator=generator) * 2.0 - 1
    return {name: vector / vector.norm() for name, vector in zip(DIRECTIONS, (gaussian, signs @ weights), strict=True)}


def tangent_kernels(backbone: Backbone, whole: Batch, vectors: dict[str, torch.Tensor]) -> Kernels:
    """One pass forward, and one backward a direction."""
    generator = torch.Generator().manual_seed(0)
    network = backbone.module
    sketches = [Sketch(module, generator) for module in network.modules() if isinstance(module, SAMPLED)]
    # Gradients of the first weights need those of every output after them, and of no other weights.
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    first = sketches[0].module.weight.requires_grad_(True)
    handles = [sketch.module.register_forward_hook(sketch.forward_hook) for sketch in sketches]
    kept: dict[tuple[int, str, str], list[torch.Tensor]] = defaultdict(list)
    for part in batches(whole, BATCH):
        for sketch in sketches:
            sketch.inputs = None
        output = backbone.forward(part).features
        for name, vector in vectors.items():
            for sketch in sketches:
                sketch.gradient = None
            torch.autograd.grad((output * vector).sum(), first, retain_graph=True)
            for layer, sketch in enumerate(sketches):
                for what, rows in sketch.collect().items():
                    kept[layer, name, what].append(rows)
        for layer, sketch in enumerate(sketches):
            if (layer, "random", "weight") in kept:
                kept[layer, "", "pooled"].append(sketch.pooled)
    for handle in handles:
        handle.remove()
    found = {key: torch.cat(parts) for key, parts in kept.items()}
    found = {key: rows - rows.mean(dim=0) if key[2] == "pooled" else rows for key, rows in found.items()}
    kernels = {key: (rows @ rows.T).double().numpy() for key, rows in found.items()}
    return {key: K for key, K in kernels.items() if np.trace(K) > 0}


def sums(kernels: Kernels) -> dict[str, np.ndarray]:
    """The kernels of all layers together, in the ways that are compared."""
    layers = sorted({layer for layer, _, what in kernels if what == "weight"})
    late = {layer for place, layer in enumerate(layers) if place / max(len(layers) - 1, 1) > 2 / 3}

    def total(
        *whats: str, direction: str = "class-aware", alike: bool = False, only: set[int] | None = None
    ) -> np.ndarray:
        chosen = [
            K / (np.trace(K) / len(K)) if alike else K
            for (layer, name, what), K in kernels.items()
            if what in whats and name == direction and (only is None or layer in only)
        ]
        return np.sum(chosen, axis=0)

    return {
        "random": total("weight", "offset", direction="random"),
        "class-aware": total("weight", "offset"),
        "class-aware, relative steps": total("relative"),
        "class-aware, layers alike": total("weight", alike=True),
        "class-aware, last third": total("weight", only=late),
        "pooled outputs": total("pooled", direction="", alike=True),
    }


def measure(set_name: str, model: str) -> tuple[dict[str, float], dict[str, float]]:
    """Scores by name, and seconds."""
    asked = ask(set_name, model, IMAGES)
    Y = one_hot(asked.labels)
    start = time.perf_counter()
    phi = features(asked.backbone, asked.whole, BATCH).double().numpy()
    extracted = time.perf_counter()
    kernels = tangent_kernels(asked.backbone, asked.whole, directions(phi, asked.labels))
    sketched = time.perf_counter()
    frozen, scores = frozen_scores(phi, asked.labels, Y)
    for name, K in sums(kernels).items():
        found = mixtures(frozen, unit(K), Y, SHARES)
        mixed = best(found)
        scores |= {
            f"{name}, alone": found[1.0].evidence,
            f"{name}, share 0.3": found[0.3].evidence,
            f"{name}, mixed": mixed.evidence,
            f"{name}, mixed, density": mixed.density,
        }
    return scores, {
        "extraction": extracted - start,
        "sketches": sketched - extracted,
        "scores": time.perf_counter() - sketched,
    }
