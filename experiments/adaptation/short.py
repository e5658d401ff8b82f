"""Adapted evidence: tuning cut short after twenty steps, then LogME on rows that were not trained on.

SGD with Nesterov momentum, batches of 32, a cosine from a learning rate of 0.001 (ten times that for the new head);
norms keep their statistics, as in the reference. Images are not augmented.
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from judged import choose, features, pixels
from references import vision_identifier
from torch.nn import functional

from hubscout.evidence import logme
from hubscout.hubs import load

IMAGES = 256
STEPS = 20
BATCH = 32
RATE = 0.001
HEAD = 10.0
"""The head's learning rate, as a multiple."""


def measure(set_name: str, model: str) -> tuple[dict[str, float], dict[str, float]]:
    """Scores by name, and seconds."""
    rows = choose(set_name)
    chosen, labels = rows.judged[:IMAGES], torch.tensor(rows.labels)
    backbone = load(vision_identifier(model))
    backbone.module.eval()
    judged, trained = pixels(backbone, set_name, chosen), pixels(backbone, set_name, rows.trained)
    right, taught = labels[chosen], labels[rows.trained]
    start = time.perf_counter()
    now = features(backbone, judged)
    seconds = {"extraction": time.perf_counter() - start, "steps": 0.0}
    scores = {"step 0": evidence(now, right)}

    torch.manual_seed(0)
    head = torch.nn.Linear(now.shape[1], int(labels.max()) + 1)
    groups = [
        {"params": list(backbone.module.parameters()), "lr": RATE, "highest": RATE},
        {"params": head.parameters(), "lr": HEAD * RATE, "highest": HEAD * RATE},
    ]
    optimiser = torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True)
    losses = []
    for step in range(STEPS):
        start = time.perf_counter()
        batch = torch.arange(step * BATCH, (step + 1) * BATCH) % len(taught)
        for group in optimiser.param_groups:
            group["lr"] = group["highest"] * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        output = head(backbone.forward({name: part[batch] for name, part in trained.items()}).features)
        loss = functional.cross_entropy(output, taught[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        seconds["steps"] += time.perf_counter() - start
        if step + 1 in (STEPS // 2, STEPS):
            now = features(backbone, judged)
            scores[f"step {step + 1}"] = evidence(now, right)
    with torch.no_grad():
        output = head(now)
    scores["accuracy of the head"] = float((output.argmax(dim=1) == right).double().mean())
    scores["log likelihood of the head"] = -functional.cross_entropy(output, right).item()
    scores["training loss, negative"] = -float(np.mean(losses))
    return scores, seconds


def evidence(now: torch.Tensor, labels: torch.Tensor) -> float:
    return logme(now.double().numpy(), labels.numpy(), jackknife="none").score
