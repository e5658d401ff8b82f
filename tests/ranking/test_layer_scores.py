"""Ranking by the last layer, the best one, or the mean of all."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from hubscout.errors import InputError
from hubscout.evidence import logme, maximize_evidence
from hubscout.features import extract
from hubscout.features.result import BlockAccumulator
from hubscout.hubs.model_objects import register
from hubscout.ranking import rank
from hubscout.ranking.layer_scores import MARGIN, POINTS, LayerEvidence, convergence_of, scan_layers
from hubscout.report.sections.provenance import repeat_code
from hubscout.runs.record_types import converted
from hubscout.runs.row import Convergence, LayerScore
from hubscout.tasks import Task

NAMES = ["Ann", "Bob", "Eve", "Tom", "Mia", "Sam"]
VERBS = ["sings", "runs", "reads", "sleeps"]
QUICK = {"measure_latency": False, "accelerate": "off", "progress": False}


@pytest.fixture(scope="module")
def sentences() -> Task:
    rng = np.random.default_rng(0)
    words = [[str(rng.choice(NAMES)), str(rng.choice(VERBS)), str(rng.choice(NAMES))] for _ in range(200)]
    labels = ["music" if verb == "sings" else "sport" if verb == "runs" else "rest" for _, verb, _ in words]
    labels = [str(rng.choice(["music", "sport", "rest"])) if rng.random() < 0.4 else label for label in labels]
    return Task.from_arrays([" ".join(one) for one in words], labels, modality="text", kind="classification")


@pytest.mark.parametrize("cached", [True, False])
def test_the_mean_over_layers_ranks(sentences: Task, word_encoder: str, cached: bool, tmp_path: Path) -> None:
    found = extract(word_encoder, sentences, layers="all", accelerate="off")
    average = (found.features("layer.1") + found.features("layer.2")) / 2
    expected = logme(average, found.targets, classes=range(3)).score
    for again in (False, True):
        row = rank(sentences, word_encoder, layer="mean", cache=tmp_path if cached else False, **QUICK).best
        assert row.layer == "mean"
        assert row.score == pytest.approx(expected, abs=1e-5)
        assert [layer.name for layer in row.layers] == ["", "mean"]
        assert row.layers_by_depth == (row.layers[0],)
        assert row.from_cache is (cached and again)
    beside = rank(sentences, word_encoder, layers=["layer.1", "mean"], layer="final", cache=False, **QUICK).best
    assert {layer.name for layer in beside.layers} == {"", "layer.1", "mean"}
    assert beside.score == next(layer.score for layer in beside.layers if not layer.name)


def test_the_best_layer_is_looked_for_among_all(sentences: Task, word_encoder: str) -> None:
    ranking = rank(sentences, word_encoder, layer="best", cache=False, **QUICK)
    row = ranking.best
    assert [layer.name for layer in row.layers] == ["", "layer.0", "layer.1", "layer.2"]
    assert row.score == max(layer.score for layer in row.layers)
    assert "layers='all', layer='best'" in repeat_code(ranking)


def test_the_spectra_of_layers_that_are_not_chosen_do_not_stay(sentences: Task, word_encoder: str) -> None:
    found = extract(word_encoder, sentences, layers="all", accelerate="off")
    alive = []

    def choose(layers: Sequence[LayerScore]) -> str:
        alive.append(sum(type(one) is LayerEvidence for one in gc.get_objects()))
        return "layer.1" if len(layers) > 1 else ""

    gc.collect()
    layers, chosen = scan_layers([found], sentences, choose, center=True, blocks=10)
    assert [layer.name for layer in layers] == ["", "layer.0", "layer.1", "layer.2"]
    assert max(alive) == 2  # the one before and the new one
    assert chosen is not None
    score = next(layer.score for layer in layers if layer.name == "layer.1")
    assert chosen.evidence.score == pytest.approx(score, abs=1e-12)


def made_up(n: int, dim: int, kind: str) -> tuple[torch.nn.Module, Task]:
    """A network that gives `dim` features of its six inputs, all different, and what it is to explain."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(n, 6)).astype("float32")
    labels = inputs[:, 0] + 0.5 * rng.normal(size=n)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, dim), torch.nn.Tanh())
    task = Task.from_arrays(inputs, labels if kind == "regression" else labels > 0, kind=kind)
    return network, task


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("dim", [40, 200])
def test_few_rows_are_scored_themselves_as_their_sums_would_be(
    dim: int, kind: str, cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, task = made_up(120, dim, kind)
    with monkeypatch.context() as patched:
        patched.setattr(BlockAccumulator, "add", lambda *_: pytest.fail("sums were made"))
        row = rank(task, network, cache=tmp_path if cached else False, **QUICK).best
    sums = maximize_evidence(extract(register(network), task).statistics[""])
    assert row.score == pytest.approx(sums.score, abs=1e-9)
    assert row.standard_error == pytest.approx(sums.standard_error, rel=0.3 if dim > 90 else 1e-4)
    assert len(row.block_scores) == 10


def test_many_rows_are_scored_from_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    network, task = made_up(120, 6, "classification")
    row = rank(task, network, cache=False, **QUICK).best
    monkeypatch.setattr("hubscout.features.result._FEW_ROWS", 0)
    monkeypatch.setattr("hubscout.evidence.logme", lambda *_, **__: pytest.fail("rows were taken"))
    summed = rank(task, network, cache=False, **QUICK).best
    assert summed.score == pytest.approx(row.score, abs=1e-9)
    assert summed.expected == row.expected


def test_models_without_layers_have_no_mean_and_layers_have_names() -> None:
    task = Task.from_arrays(np.eye(8, dtype=np.float32), ["a", "b"] * 4)
    from torch import nn

    with pytest.raises(InputError, match="layer must be one of final, best, mean; got 'first'"):
        rank(task, nn.Linear(8, 4), layer="first", **QUICK)  # type: ignore[arg-type]
    failed = rank(task, nn.Linear(8, 4), layer="mean", cache=False, **QUICK)
    assert "has no mean over layers" in failed.failures[0].reason


def test_a_layer_that_fits_without_noise_is_not_the_best(word_encoder: str) -> None:
    """The first layers know each word: labels that are words leave no noise there, and a score without bound."""
    words = [[name, verb] for name in NAMES for verb in VERBS] * 3
    tags = [["NAME", "sings" if verb == "sings" else "VERB"] for _, verb in words]
    task = Task.from_arrays(words, tags, kind="tagging", modality="tokens")
    row = rank(task, word_encoder, layer="best", cache=False, **QUICK).best
    without_noise = [layer.name for layer in row.layers if layer.unbounded]
    assert without_noise
    assert row.layer not in without_noise or len(without_noise) == len(row.layers)
    assert row.best_layer is not None
    assert row.best_layer.name == row.layer


@pytest.fixture
def features() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 12, 400)
    return np.eye(12)[labels] @ generator.standard_normal((12, 8)) + generator.standard_normal((400, 8)), labels


def test_the_iteration_stands_still_at_the_fixed_points(features: tuple[np.ndarray, np.ndarray]) -> None:
    found = convergence_of(logme(*features))
    assert found is not None
    assert len(found.targets) == 6
    assert len(found.t) == POINTS
    for mapped, fixed in zip(found.mapped, found.fixed_points, strict=True):
        assert fixed is not None
        at_fixed_point = np.exp(np.interp(np.log(fixed), np.log(found.t), np.log(mapped)))
        assert at_fixed_point == pytest.approx(fixed, rel=0.02)
        assert found.t[0] < fixed / MARGIN * 1.01
        assert found.t[-1] > fixed * MARGIN * 0.99


def test_the_best_and_the_worst_explained_target_are_among_them(features: tuple[np.ndarray, np.ndarray]) -> None:
    evidence = logme(*features)
    found = convergence_of(evidence)
    gains = dict(zip(evidence.targets, evidence.per_target_gain, strict=True))
    assert found.targets[0] == str(max(gains, key=gains.get))
    assert found.targets[-1] == str(min(gains, key=gains.get))


def test_it_survives_json(features: tuple[np.ndarray, np.ndarray]) -> None:
    found = convergence_of(logme(*features))
    assert converted(Convergence, json.loads(json.dumps(asdict(found))), "it") == found


def test_nothing_without_a_spectrum_or_without_a_finite_t(features: tuple[np.ndarray, np.ndarray]) -> None:
    assert convergence_of(logme(*features).without_spectrum()) is None
    balanced = np.array([0, 1] * 50)
    alternating = np.array([1.0, 1.0, -1.0, -1.0] * 25)[:, None]  # orthogonal to both one-hot columns
    assert convergence_of(logme(alternating, balanced)) is None
