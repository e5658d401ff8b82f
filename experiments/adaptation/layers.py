"""Evidence of several layers at once: the inputs of all convolutions are pooled, and their kernels join the features'.

Mixed: the average of the layers' kernels has a share of 0, 0.1, 0.3, 0.6 or 1, chosen by the evidence. Components: the
features and eight bins of depth have a weight each, and the weights maximise the evidence.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from gaussian import best, frozen_scores, judge, mixtures, unit
from judged import Batch, ask, batches, one_hot
from torch import nn
from torch.nn import functional

from hubscout.hubs import Backbone

IMAGES = 400
BATCH = 50
POSITIONS = (1, 4)
"""Pooled to so many places a side."""
SHARES = (0.0, 0.1, 0.3, 0.6, 1.0)
BINS = 8
UPDATES = 40


def pooled_inputs(backbone: Backbone, whole: Batch) -> tuple[np.ndarray, dict[int, list[np.ndarray]]]:
    """Features, and for each grid the kernels of the convolutions' inputs in the order in which they run."""
    latest: dict[str, torch.Tensor] = {}

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def look(_: nn.Module, inputs: tuple[torch.Tensor, ...], __: torch.Tensor) -> None:
            latest[name] = inputs[0]  # Inception's pooled branches run twice, and the second run counts

        return module.register_forward_hook(look)

    modules = backbone.module.named_modules()
    convolutions = {name: module for name, module in modules if isinstance(module, nn.Conv2d) and module.groups == 1}
    handles = [watch(name, module) for name, module in convolutions.items()]
    found: list[torch.Tensor] = []
    seen: dict[int, dict[str, list[torch.Tensor]]] = {side: defaultdict(list) for side in POSITIONS}
    with torch.no_grad():
        for part in batches(whole, BATCH):
            found.append(backbone.forward(part).features)
            for side, parts in seen.items():
                for name, given in latest.items():
                    parts[name].append(functional.adaptive_avg_pool2d(given, side).flatten(1))
    for handle in handles:
        handle.remove()
    kernels = {side: [kernel(rows) for rows in parts.values()] for side, parts in seen.items()}
    return torch.cat(found).double().numpy(), kernels


def kernel(parts: Sequence[torch.Tensor]) -> np.ndarray:
    """Centred, with a mean diagonal of one; of a layer that says nothing, zero."""
    rows = torch.cat(list(parts))
    rows = rows - rows.mean(dim=0)
    product = rows @ rows.T
    return (product / (product.diagonal().mean() + 1e-12)).numpy()


def components(kernels: Sequence[np.ndarray], Y: np.ndarray) -> tuple[float, np.ndarray]:
    """Evidence of y_c ~ N(m, s_c (Σ w_l K_l + w_0 I)) with the best weights, and Σ w_l K_l.

    All classes share the weights. They are found by multiplicative updates that never lower the evidence.
    """
    n, stacked = len(Y), np.array(kernels).reshape(len(kernels), -1).astype(np.float32)
    centred = Y - Y.mean(axis=0)
    weights, noise = np.full(len(kernels), 0.5 / len(kernels)), 0.5
    evidence = -np.inf
    for _ in range(UPDATES):
        covariance = (weights.astype(np.float32) @ stacked).reshape(n, n).astype(np.float64) + noise * np.eye(n)
        inverse = np.linalg.inv(covariance)
        dual = inverse @ centred
        scale = (centred * dual).sum(axis=0) / (n - 1)
        # Kernels are centred: along the constant direction, which is left out, the covariance is the noise.
        log_determinant = 2 * np.log(np.diag(np.linalg.cholesky(covariance))).sum() - np.log(noise)
        evidence = float((-0.5 * (np.log(scale) + log_determinant / (n - 1) + np.log(2 * np.pi) + 1)).mean())
        inverse -= 1 / (n * noise)
        fit = stacked @ ((dual / scale) @ dual.T / Y.shape[1]).astype(np.float32).ravel()
        cost = stacked @ inverse.astype(np.float32).ravel()
        weights = weights * np.sqrt(np.maximum(fit, 0) / np.maximum(cost, 1e-9))
        noise *= np.sqrt(((dual**2).sum(axis=0) / scale).mean() / np.trace(inverse))
    return evidence, np.tensordot(weights, np.array(kernels), 1)


def measure(set_name: str, model: str) -> tuple[dict[str, float], dict[str, float]]:
    """Scores by name, and seconds."""
    asked = ask(set_name, model, IMAGES)
    Y = one_hot(asked.labels)
    start = time.perf_counter()
    phi, kernels = pooled_inputs(asked.backbone, asked.whole)
    pooled = time.perf_counter()
    frozen, scores = frozen_scores(phi, asked.labels, Y)
    count = len(kernels[1])
    parts = {"all": range(1, count), "last half": range(count // 2, count), "last third": range(2 * count // 3, count)}
    for side, part in ((1, "all"), (1, "last half"), (1, "last third"), (4, "all"), (4, "last third")):
        together = unit(np.mean([kernels[side][layer] for layer in parts[part]], axis=0).astype(np.float64))
        mixed = best(mixtures(frozen, together, Y, SHARES))
        name = f"{part}, {side} x {side}"
        scores |= {name: mixed.evidence, f"{name}, density": mixed.density, f"{name}, accuracy": mixed.accuracy}
    depths = np.array_split(np.arange(1, count), min(BINS, count - 1))
    binned = {
        side: [unit(np.mean([kernels[side][layer] for layer in depth], axis=0).astype(np.float64)) for depth in depths]
        for side in POSITIONS
    }
    for name, given in (("1 x 1", binned[1]), ("1 x 1 and 4 x 4", binned[1] + binned[4])):
        evidence, together = components([frozen, *given], Y)
        scores |= {
            f"components, {name}": evidence,
            f"components, {name}, density": judge(unit(together), Y).density,
        }
    return scores, {"extraction and kernels": pooled - start, "scores": time.perf_counter() - pooled}
