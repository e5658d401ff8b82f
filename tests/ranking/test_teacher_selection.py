from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hubscout.errors import InputError, ModelError
from hubscout.evidence import logme
from hubscout.ranking import greedy_joint, rank, select_teachers
from hubscout.tasks import Task


@pytest.fixture
def features() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Two strong models that are copies (one in other units and turned), a weaker one that sees something else."""
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((300, 6)), generator.standard_normal((300, 6))
    rotation, _ = np.linalg.qr(generator.standard_normal((6, 6)))
    targets = (a[:, 0] + 0.6 * b[:, 0] > 0).astype(int)
    return {
        "strong": a,
        "copy": 1000 * (a + 1e-3 * b) @ rotation,
        "other": b,
        "noise": generator.standard_normal((300, 6)),
    }, targets


def test_joint_takes_the_complement_where_top_takes_the_copy(
    features: tuple[dict[str, np.ndarray], np.ndarray],
) -> None:
    matrices, targets = features
    alone = {name: logme(matrix, targets, kind="classification").score for name, matrix in matrices.items()}
    top = sorted(alone, key=lambda name: -alone[name])[:2]
    assert set(top) == {"strong", "copy"}
    teachers = greedy_joint(matrices, targets, 2, kind="classification", target_names=("n", "p"))
    assert teachers.identifiers[0] in {"strong", "copy"}
    assert teachers.identifiers[1] == "other"

    def joint(names: list[str]) -> float:
        scaled = [matrices[name] / np.sqrt(matrices[name].var(axis=0).sum()) for name in names]
        return logme(np.concatenate(scaled, axis=1), targets, kind="classification").score

    assert teachers.steps[1].score == pytest.approx(joint(list(teachers)), abs=1e-9)
    assert joint(list(teachers)) > joint(top) + 0.02
    assert teachers.steps[1].added == pytest.approx(teachers.steps[1].score - teachers.steps[0].score)


def test_units_do_not_matter(features: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    matrices, targets = features
    options = {"kind": "classification", "target_names": ("n", "p")}
    plain = greedy_joint(matrices, targets, 3, **options)
    scaled = {name: matrix * scale for (name, matrix), scale in zip(matrices.items(), (1e-4, 1, 50, 1e6), strict=True)}
    other = greedy_joint(scaled, targets, 3, **options)
    assert plain.identifiers == other.identifiers
    np.testing.assert_allclose([s.score for s in plain.steps], [s.score for s in other.steps], atol=1e-8)


def test_inputs_are_left_alone_and_constants_refused(features: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    matrices, targets = features
    kept = {name: matrix.copy() for name, matrix in matrices.items()}
    greedy_joint(matrices, targets, 2, kind="classification", target_names=("n", "p"))
    for name, matrix in matrices.items():
        np.testing.assert_array_equal(matrix, kept[name])
    with pytest.raises(ModelError, match="flat are the same for every sample"):
        greedy_joint({"flat": np.ones((300, 2))}, targets, 1, kind="classification", target_names=("n", "p"))


@pytest.mark.parametrize("progressive", [False, True])
def test_from_a_ranking_and_its_cache(array_task: Task, zoo: str, tmp_path: Path, progressive: bool) -> None:
    strong, copy = f"python:{zoo}:look?first=0&last=4", f"python:{zoo}:look?first=0&last=4&seed=5"
    other = f"python:{zoo}:look?first=4&last=8"
    ranking = rank(array_task, [other, copy, strong], cache=tmp_path / "cache", out=tmp_path, progressive=progressive)
    if progressive:
        assert len(ranking.stages) == 2
    assert set(select_teachers(ranking, 2)) == {strong, copy}
    events: list[object] = []
    teachers = select_teachers(ranking, 2, "joint", task=array_task, observer=events.append)
    assert teachers[1] == other
    assert teachers.n == len(array_task.train)
    assert not any(type(event).__name__ == "Advanced" for event in events), "the cache was not read"
    few = select_teachers(ranking, 2, "joint", task=array_task, max_samples=150)
    assert few.n == 150
    assert few[1] == other


def test_what_joint_needs_is_said(array_task: Task, zoo: str, tmp_path: Path) -> None:
    model = f"python:{zoo}:look?first=0&last=4"
    ranking = rank(array_task, model, cache=False)
    with pytest.raises(InputError, match="was in memory: give task="):
        select_teachers(ranking, 1, "joint")
    with pytest.raises(InputError, match="made without one"):
        select_teachers(ranking, 1, "joint", task=array_task)
    with pytest.raises(InputError, match="not what was ranked"):
        select_teachers(ranking, 1, "joint", task=array_task.subset(50))
    with pytest.raises(InputError, match="one of top, joint"):
        select_teachers(ranking, 1, "best")
    with pytest.raises(InputError, match="k must be at least 1"):
        select_teachers(ranking, 0)
    assert select_teachers(ranking, 3).identifiers == (model,)
