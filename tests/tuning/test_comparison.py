from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console
from tuning_networks import convolutional, make_task, perceptron

from hubscout.errors import InputError
from hubscout.tuning.comparison import compare

QUICK = {"epochs": 1, "batch_size": 16, "trade_off": 0.1}


def test_all_methods_over_seeds_on_equal_terms(tmp_path):
    task = make_task(shape=(3, 8, 8), n=32)
    found = compare(task, convolutional(0), [convolutional(1)], seeds=(0, 1), out=tmp_path, **QUICK)
    assert {(trial.method, trial.seed) for trial in found.trials} == {
        (method, seed) for method in ("fine-tune", "kd", "zoo", "b-tuning") for seed in (0, 1)
    }
    values = found.values("kd")
    summary = found.record()["summary"]["kd"]
    assert summary["test_mean"] == pytest.approx(values.mean())
    assert summary["test_deviation"] == pytest.approx(np.std(values, ddof=1))
    console = Console(width=120)
    with console.capture() as captured:
        console.print(found.table())
    assert "±" in captured.get()
    again = compare(task, convolutional(0), [convolutional(1)], seeds=(0, 1), out=tmp_path, **QUICK)
    assert again.trials == found.trials  # seconds too: nothing ran again
    with pytest.raises(InputError, match="another comparison"):
        compare(task, convolutional(0), [convolutional(2)], seeds=(0,), out=tmp_path, **QUICK)


def test_a_method_that_cannot_run_is_named_with_its_reason(task):
    found = compare(task, perceptron(0), [perceptron(1, width=24)], methods=("fine-tune", "zoo"), seeds=(0,), **QUICK)
    assert found.methods == ("fine-tune",)
    assert "one architecture" in found.failures["zoo"]
