"""Small real networks for races: one learns in a second."""

from __future__ import annotations

from pathlib import Path

NETWORKS = """
import os
import time

import torch
from torch import nn


calls = []


def stop_once(module, inputs):
    if module.training:
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt


def die(module, inputs):
    if module.training:
        os._exit(9)


def breaks_far_from_its_start(net, most):
    start = net[0].weight.detach().clone()
    net.register_forward_hook(lambda module, _, output: output * float((module[0].weight - start).norm() < most))


def make(width=16, seed=0, broken=False, stops=False, dies=False, pace=0.0, slow_training=0.0, most_moved=0.0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    net.num_features = width
    net.pretrained_cfg = {"input_size": (6,)}
    if pace:
        net.register_forward_pre_hook(lambda module, inputs: time.sleep(pace))
    if slow_training:
        net.register_forward_pre_hook(lambda module, inputs: time.sleep(slow_training) if module.training else None)
    if most_moved:
        breaks_far_from_its_start(net, most_moved)
    if dies:
        net.register_forward_pre_hook(die)
    if stops:
        net.register_forward_pre_hook(stop_once)
    if broken:
        net.register_forward_hook(lambda module, inputs, output: output * float("nan") if module.training else output)
    return net
"""
QUICK = {"steps": 60, "batch_size": 32, "device": "cpu", "bootstrap_resamples": 20}


def names(networks: Path, *options: str) -> list[str]:
    return [f"python:{networks}:make?{option}" for option in options]
