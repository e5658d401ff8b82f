"""The reference search and the comparison of methods on other processes give what they give here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hubscout.engines import RayEngine
from hubscout.runs.events import Message
from hubscout.tasks import Task
from hubscout.tuning.method_comparison import compare
from hubscout.tuning.reference_search import Grid, reference

pytestmark = pytest.mark.ray

OPTIONS = {"epochs": 1, "batch_size": 32, "workers": 0, "device": "cpu"}


@pytest.fixture
def small() -> Task:
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((300, 20)).astype(np.float32)
    return Task.from_arrays(inputs, np.array(["a", "b"])[(inputs[:, 0] > 0).astype(int)], name="small")


def test_the_reference_search(small: Task, zoo: Path, engine: RayEngine, cluster: object, tmp_path: Path) -> None:
    models = [f"python:{zoo}/zoo.py:look?first={first}&last={first + 4}" for first in (0, 4)]
    grid = Grid((0.01, 0.001), (1e-4,))
    here = reference(small, models, out=tmp_path / "here", grid=grid, **OPTIONS)
    notes: list[object] = []
    there = reference(
        small,
        models,
        out=tmp_path / "there",
        grid=grid,
        engine="ray",
        observer=notes.append,
        engine_options={"address": cluster.address},
        **OPTIONS,  # type: ignore[attr-defined]
    )
    assert there.to_mapping() == here.to_mapping()
    results = {(t.model, t.learning_rate): (t.validation, t.test, t.failure) for t in here.trials}
    assert {(t.model, t.learning_rate): (t.validation, t.test, t.failure) for t in there.trials} == results
    assert sum(isinstance(note, Message) and "validation" in note.text for note in notes) >= 4


def test_the_comparison_of_methods(small: Task, zoo: Path, engine: RayEngine, cluster: object, tmp_path: Path) -> None:
    target, teacher = (f"python:{zoo}/zoo.py:look?first={first}&last={first + 4}" for first in (0, 4))
    chosen: dict[str, object] = {"methods": ("fine-tune", "b-tuning"), "seeds": (0,), **OPTIONS}
    here = compare(small, target, [teacher], **chosen)  # type: ignore[arg-type]
    there = compare(
        small,
        target,
        [teacher],
        out=tmp_path / "there",
        engine="ray",
        engine_options={"address": cluster.address},
        **chosen,  # type: ignore[arg-type, attr-defined]
    )
    assert {(t.method, t.seed): (t.validation, t.test) for t in there.trials} == {
        (t.method, t.seed): (t.validation, t.test) for t in here.trials
    }
    assert not there.failures
