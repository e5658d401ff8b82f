from __future__ import annotations

import time

import numpy as np

from hubscout.hubs import load
from hubscout.ranking.latency import measure_latency


def test_a_slow_network_is_measured_as_slow(zoo: str) -> None:
    backbone = load(f"python:{zoo}:look?first=0&last=4")
    sample = np.zeros(20, dtype=np.float32)
    quick = measure_latency(backbone, sample)
    assert backbone.module is not None
    backbone.module.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    slow = measure_latency(backbone, sample)
    assert 0 < quick < slow
    assert 0.05 <= slow < 0.5


def test_the_mode_of_the_network_is_left_as_it_was(zoo: str) -> None:
    backbone = load(f"python:{zoo}:look?first=0&last=4")
    assert backbone.module is not None
    backbone.module.train()
    measure_latency(backbone, np.zeros(20, dtype=np.float32))
    assert backbone.module.training
