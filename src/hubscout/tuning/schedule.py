"""Learning rates over time, and the groups of parameters they belong to."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.network import Network


def rate_factor(step: int, steps: int, schedule: str, warmup: float = 0.0, cooldown: float = 0.2) -> float:
    """What the learning rates are multiplied by at a step, from 0.

    >>> [round(rate_factor(step, 4, "cosine"), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [round(rate_factor(step, 8, "wsd", warmup=0.25, cooldown=0.5), 3) for step in range(8)]
    [0.333, 0.667, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    done = (step - rising) / max(steps - rising, 1)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    if schedule == "wsd":
        falling = cooldown_steps(steps, cooldown)
        return cooled(step - (steps - falling), falling)
    if schedule == "step":
        return 1.0 if done < 0.6 else 0.1 if done < 0.85 else 0.01
    return 1.0


def cooldown_steps(steps: int, cooldown: float) -> int:
    """How many of a run's steps have a falling rate.

    >>> cooldown_steps(300, 0.2)
    60
    """
    return max(1, round(cooldown * steps))


def cooled(step: int, steps: int) -> float:
    """The factor at a step of a linear cool-down, whose first step is 0; before it 1.

    >>> [cooled(step, 4) for step in (-1, 0, 1, 2, 3)]
    [1.0, 0.8, 0.6, 0.4, 0.2]
    """
    return 1.0 if step < 0 else round(1 - (step + 1) / (steps + 1), 12)


def build_optimizer(network: Network, arguments: TuningArguments) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum or AdamW, with the backbone's and the new modules' own rates in `initial_lr`."""
    fresh = {id(parameter) for parameter in network.new_parameters()}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in network.parameters():
        if parameter.requires_grad:
            spared = arguments.optimizer == "adamw" and parameter.ndim < 2
            groups.setdefault((id(parameter) in fresh, spared), []).append(parameter)
    settings: list[dict[str, Any]] = []
    for (new, spared), parameters in groups.items():
        rate = arguments.head_learning_rate if new else arguments.learning_rate
        # L2-SP takes the place of weight decay where the weights have a starting point.
        decay = 0.0 if spared or (arguments.l2_sp and not new) else arguments.weight_decay
        settings.append({"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay})
    if arguments.optimizer == "adamw":
        return torch.optim.AdamW(settings)
    return torch.optim.SGD(settings, lr=1.0, momentum=arguments.momentum, nesterov=arguments.momentum > 0)


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Scale every group's own rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor
