from __future__ import annotations

import json
import math
import os
import re
import select
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hubscout.engines import LocalEngine
from hubscout.errors import (
    EvidenceWarning,
    InputError,
    InterruptedRunError,
    RunError,
    UnknownEngineError,
    UnknownMetricError,
)
from hubscout.evidence import logme
from hubscout.features import extract
from hubscout.features.feature_cache import FeatureCache
from hubscout.hubs import Backbone, load
from hubscout.hubs.model_identifier import Identifier
from hubscout.hubs.model_listing import ModelEntry, ModelListing
from hubscout.ranking import Ranking, rank
from hubscout.ranking.candidates import find_candidates
from hubscout.runs.events import Event, Finished, Started, finished_text
from hubscout.tasks import Task


def test_the_order_is_that_of_what_the_models_see(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    wanted = [models["blind"], models["weak"], models["strong"]]
    ranking = rank(array_task, wanted, cache=tmp_path)
    assert ranking.identifiers == (models["strong"], models["weak"], models["blind"])
    assert ranking.tied_with_best == (models["strong"],)
    assert ranking.best.p_best is not None
    assert ranking.best.p_best > 0.99
    assert ranking[models["blind"]].gain == pytest.approx(0, abs=0.02)
    assert ranking.complete
    assert not ranking.failures
    row = ranking.best
    assert row.n == len(array_task.train)
    assert row.params == 20 * 16 + 16 * 8
    assert row.latency_seconds is not None
    assert 0 < row.latency_seconds < 1
    assert row.samples_per_second is not None
    assert ranking.environment["packages"]["torch"]


def test_the_score_is_logme_of_the_train_features(array_task: Task, models: dict[str, str]) -> None:
    row = rank(array_task, models["strong"], cache=False).best
    features = extract(models["strong"], array_task).features()
    oracle = logme(features, array_task.train.targets, kind="classification", target_names=array_task.target_names)
    assert row.score == pytest.approx(oracle.score, abs=1e-9)
    assert row.gain == pytest.approx(oracle.gain, abs=1e-9)
    np.testing.assert_allclose(row.per_target, oracle.per_target_gain, atol=1e-9)


def test_what_the_other_splits_hold_does_not_matter(array_task: Task, models: dict[str, str]) -> None:
    from dataclasses import replace

    from hubscout.tasks import Split

    class Forbidden(list[np.ndarray]):
        def __getitem__(self, index: object) -> np.ndarray:  # type: ignore[override]
            raise AssertionError("a split other than train was read")

    empty = Split(Forbidden([np.zeros(20)] * 5), np.zeros(5, dtype=np.int64))
    task = replace(array_task, splits={"train": array_task.train, "validation": empty, "test": empty})
    assert len(rank(task, models["strong"], cache=False)) == 1


def test_a_bad_model_does_not_end_the_run(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    events: list[Event] = []
    wanted = [models["broken"], models["strong"], models["crash"], "timm/there-is-no-such-model", "nohub/x"]
    ranking = rank(array_task, wanted, cache=tmp_path, observer=events.append)
    assert ranking.identifiers == (models["strong"],)
    reasons = {failure.identifier: failure for failure in ranking.failures}
    assert set(reasons) == set(wanted) - {models["strong"]}
    assert "cursed" in reasons[models["broken"]].reason
    assert "in the forward pass" in reasons[models["crash"]].reason
    assert reasons["nohub/x"].error == "UnknownHubError"
    assert reasons["timm/there-is-no-such-model"].reason
    told = [event.model for event in events if isinstance(event, Finished) and event.error]
    assert len(told) == 4
    assert "cursed" in str(ranking)


def test_a_model_of_another_modality_is_refused_with_the_reason(models: dict[str, str]) -> None:
    task = Task.from_arrays(["good", "bad", "fine", "awful"] * 5, ["p", "n"] * 10, name="words")
    ranking = rank(task, models["strong"], cache=False)
    assert ranking.failures[0].reason == "This model takes arrays, but the task's inputs are text."


def test_several_metrics(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    metrics = ("logme", "knn", "leep", "ncti", "params")
    ranking = rank(array_task, [models["strong"], models["blind"]], metrics=metrics, cache=tmp_path)
    best = ranking[models["strong"]]
    assert set(best.scores) == {"logme", "knn", "ncti", "params"}  # no source head, no LEEP
    assert "no leep: it needs a source head" in best.notes
    assert best.scores["knn"] > ranking[models["blind"]].scores["knn"]
    agreement = ranking.agreement()
    assert agreement.metrics == metrics
    assert agreement.weighted_tau[0, 1] == 1.0
    assert agreement.models[0, 2] == 0


def test_features_that_hold_the_label_are_said_to(models: dict[str, str], recwarn: pytest.WarningsRecorder) -> None:
    """Three different inputs, one a class: the fit has no noise, so the score has no bound. A note, not a warning."""
    ids = np.arange(60) % 3
    inputs = list(np.random.default_rng(0).normal(size=(3, 20)).astype(np.float32)[ids])
    ranking = rank(Task.from_arrays(inputs, ids, name="copies"), models["strong"], cache=False)
    assert any("without noise" in note and "no bound" in note for note in ranking.best.notes)
    assert "no bound" in str(ranking)
    assert not [warning for warning in recwarn if issubclass(warning.category, EvidenceWarning)]


def test_another_first_metric_orders_by_it(array_task: Task, models: dict[str, str]) -> None:
    ranking = rank(array_task, [models["blind"], models["strong"]], metrics="knn", cache=False)
    assert ranking.best.identifier == models["strong"]
    assert ranking.best.score == ranking.best.scores["knn"]
    assert ranking.best.gain is None
    zoo_level = rank(array_task, [models["blind"], models["strong"]], metrics="ncti", cache=False)
    assert zoo_level.best.identifier == models["strong"]
    assert zoo_level.best.score == zoo_level.best.scores["ncti"]


def test_capacity_is_added_to_logme(array_task: Task, models: dict[str, str]) -> None:
    chosen = [models["strong"], models["blind"]]
    found = rank(array_task, chosen, metrics=("logme-capacity", "logme"), cache=False)
    for row in found:
        assert row.flops is not None
        assert row.score == pytest.approx(row.scores["logme"] + 0.1 * math.log(row.flops / 1e9))
        assert row.p_best is not None
        assert row.gain is not None
        assert np.average(row.block_scores, weights=row.block_sizes) == pytest.approx(row.score, abs=0.1)


def test_layers_are_scanned(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    ranking = rank(array_task, models["strong"], layers="all", cache=tmp_path)
    row = ranking.best
    names = [layer.name for layer in row.layers]
    assert "" in names
    assert len(names) > 1
    final = next(layer for layer in row.layers if layer.name == "")
    assert row.score == final.score
    assert row.best_layer is not None
    assert "best layer" in str(ranking)
    by_best = rank(array_task, models["strong"], layers="all", layer="best", cache=tmp_path).best
    assert by_best.score == max(layer.score for layer in row.layers)
    assert by_best.layer == row.best_layer.name


def test_limit_is_a_stratified_subset(array_task: Task, models: dict[str, str]) -> None:
    ranking = rank(array_task, models["strong"], limit=60, cache=False)
    assert ranking.best.n == 60
    assert ranking.task.fingerprint == array_task.fingerprint
    assert ranking.settings["limit"] == 60
    assert rank(array_task, models["strong"], limit="0.06k", cache=False).settings["limit"] == 60
    assert rank(array_task, models["strong"], limit=10**6, cache=False).best.n == len(array_task.train)


def test_a_second_run_reads_the_cache(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    first = rank(array_task, models["strong"], cache=tmp_path)
    second = rank(array_task, models["strong"], cache=FeatureCache(tmp_path), metrics=("logme", "knn"))
    assert not first.best.from_cache
    assert second.best.from_cache
    assert second.best.score == pytest.approx(first.best.score, abs=1e-12)
    third = rank(array_task, models["strong"], cache=False)
    assert third.best.score == pytest.approx(first.best.score, abs=1e-9)


def test_a_backbone_can_be_given_ready(array_task: Task, models: dict[str, str]) -> None:
    backbone = load(models["strong"])
    ranking = rank(array_task, [backbone, models["strong"]], cache=False)  # the same one twice
    assert ranking.identifiers == (models["strong"],)


def test_the_run_folder_holds_the_ranking_and_the_events(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    ranking = rank(array_task, [models["strong"], models["broken"]], cache=False, out=tmp_path / "run")
    assert Ranking.load(tmp_path / "run") == ranking
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == [
        "started",
        "model-started",
        "model-finished",
        "model-started",
        "model-failed",
        "finished",
    ]


def test_interrupted_and_resumed(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    wanted = [models["strong"], models["interrupt"], models["weak"]]
    with pytest.raises(InterruptedRunError, match="1 of 3 models are finished and saved in") as caught:
        rank(array_task, wanted, cache=False, out=tmp_path)
    assert caught.value.ranking.identifiers == (models["strong"],)  # type: ignore[attr-defined]
    saved = Ranking.load(tmp_path)
    assert not saved.complete
    assert saved.identifiers == (models["strong"],)

    events: list[Event] = []
    ranking = rank(array_task, [models["strong"], models["weak"]], cache=False, out=tmp_path, observer=events.append)
    assert ranking.complete
    assert len(ranking) == 2
    assert {event.model for event in events if isinstance(event, Started)} == {models["weak"]}
    undisturbed = rank(array_task, [models["strong"], models["weak"]], cache=False)
    assert [row.score for row in ranking] == [row.score for row in undisturbed]


def test_interrupted_without_a_folder_says_how_to_have_one(array_task: Task, models: dict[str, str]) -> None:
    with pytest.raises(InterruptedRunError, match="--out"):
        rank(array_task, [models["strong"], models["interrupt"]], cache=False)


def test_another_question_does_not_overwrite_an_answer(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    rank(array_task, models["strong"], cache=False, out=tmp_path, limit=100)
    with pytest.raises(RunError, match="limit is 100 there and 50 here"):
        rank(array_task, models["strong"], cache=False, out=tmp_path, limit=50)
    assert Ranking.load(tmp_path).best.n == 100
    rank(array_task, models["strong"], cache=False, out=tmp_path, limit=50, overwrite=True)
    assert Ranking.load(tmp_path).best.n == 50
    rank(array_task, models["strong"], cache=False, out=tmp_path, limit=50)  # the same question again is fine
    other = Task.from_arrays(np.eye(20, dtype=np.float32), ["a", "b"] * 10, name="other")
    with pytest.raises(RunError, match="whose data is not this data"):
        rank(other, models["strong"], cache=False, out=tmp_path, limit=50)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"metrics": "logmee"}, UnknownMetricError, "Did you mean 'logme'"),
        ({"metrics": ()}, InputError, "metrics is empty"),
        ({"models": []}, InputError, "models is empty"),
        ({"models": [3]}, InputError, "int is not a model"),
        ({"models": "pypi/nothing-like-it*"}, InputError, "matches no model"),
        ({"limit": 1}, InputError, "limit must be a whole number of at least 2"),
        ({"budget": "soon"}, InputError, "budget must be a time"),
        ({"layer": "first"}, InputError, "one of final, best, mean"),
        ({"engine": "steam"}, UnknownEngineError, "local"),
        ({"engine_options": {"wrokers": 2}}, InputError, "Did you mean 'workers'. Available for the engine 'local'"),
    ],
)
def test_bad_arguments(
    array_task: Task, models: dict[str, str], options: dict[str, object], error: type[Exception], words: str
) -> None:
    arguments: dict[str, object] = {"models": models["strong"], "cache": False, **options}
    with pytest.raises(error, match=words):
        rank(array_task, **arguments)  # type: ignore[arg-type]


def test_fewer_samples_than_dimensions(zoo: str) -> None:
    """Labels that are fitted without residue: the uncertainty stays finite and that of the features themselves."""
    generator = np.random.default_rng(5)
    inputs = generator.standard_normal((40, 20)).astype(np.float32)
    targets = np.where(inputs[:, 0] > 0, "p", "n")
    task = Task.from_arrays(inputs, targets, name="few").subset(6)
    model = f"python:{zoo}:look?first=0&last=20"
    kept, not_kept = rank(task, model, cache=False).best, rank(task, model, cache=False, metrics=("logme", "knn")).best
    features = extract(model, task).features()
    assert len(features) < features.shape[1]
    oracle = logme(features, task.train.targets, classes=range(2), target_names=("n", "p"))
    assert kept.score == not_kept.score == pytest.approx(oracle.score, abs=1e-9)
    assert kept.standard_error is not None
    assert 0 < kept.standard_error < 10


def test_regression_does_not_reward_features_for_being_far_from_zero(zoo: str) -> None:
    """One model sees the signal, the other a constant: the target's mean must not make the second one win."""
    generator = np.random.default_rng(6)
    inputs = generator.standard_normal((200, 20)).astype(np.float32)
    inputs[:, 19] = 3.0
    targets = 100 + inputs[:, 0] + 0.1 * generator.standard_normal(200)
    task = Task.from_arrays(inputs, targets, kind="regression", name="offset")
    sees, constant = f"python:{zoo}:look?first=0&last=4", f"python:{zoo}:look?first=18&last=20"
    ranking = rank(task, [sees, constant], cache=False)
    assert ranking.best.identifier == sees
    assert ranking.settings["center"] is True
    assert rank(task, [sees, constant], cache=False, center=False).best.identifier == constant


def test_a_model_that_was_saved_anew_is_not_taken_over(
    array_task: Task, zoo: str, models: dict[str, str], tmp_path: Path
) -> None:
    """Neither the time of a file nor its size says what is in it."""
    code, touched, weights = (tmp_path / name for name in ("code.py", "touched.py", "weights.pt"))
    for file in (code, touched):
        file.write_text(Path(zoo).read_text())
    network = load(models["strong"]).module
    torch.save(network.state_dict(), weights)
    mine = {
        "code": f"python:{code}:look?first=0&last=4",
        "touched": f"python:{touched}:look?first=0&last=4",
        "weights": f"file:{weights}?arch=python:{zoo}:look&first=4&last=8",
    }
    with pytest.raises(InterruptedRunError):
        rank(array_task, [*mine.values(), models["strong"], models["interrupt"]], cache=False, out=tmp_path / "run")
    stamp, size = code.stat().st_mtime_ns, weights.stat().st_size
    code.write_text(code.read_text().replace("/ 4", "/ 8"))
    with torch.no_grad():
        network.out.weight.copy_(network.out.weight.flip(0) ** 3)
    torch.save(network.state_dict(), weights)
    assert weights.stat().st_size == size
    for file in (code, weights):
        os.utime(file, ns=(stamp, stamp))
    later = (tmp_path / "run" / "ranking.json").stat().st_mtime + 5
    os.utime(touched, (later, later))
    events: list[Event] = []
    wanted = [*mine.values(), models["strong"], models["weak"]]
    found = rank(array_task, wanted, cache=False, out=tmp_path / "run", observer=events.append)
    started = {event.model for event in events if isinstance(event, Started)}
    assert started == {mine["code"], mine["weights"], models["weak"]}
    fresh = rank(array_task, wanted, cache=False)
    assert {row.identifier: row.score for row in found} == {row.identifier: row.score for row in fresh}


def test_a_backbone_that_was_changed_in_memory_is_not_taken_over(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    backbones = [load(models["strong"]), load(models["weak"])]
    with pytest.raises(InterruptedRunError):
        rank(array_task, [*backbones, models["interrupt"]], cache=False, out=tmp_path)
    with torch.no_grad():
        backbones[1].module.mix.weight.mul_(2)
    events: list[Event] = []
    rank(array_task, backbones, cache=False, out=tmp_path, observer=events.append)
    assert {event.model for event in events if isinstance(event, Started)} == {models["weak"]}


NETWORK = """
import torch
from torch import nn
from torch.nn import functional
from neighbour import shift

SIDE = 14


class Look(nn.Module):
    def __init__(self, offset):
        super().__init__()
        self.num_features, self.offset = 4, offset

    def forward(self, inputs):
        return functional.relu(inputs[:, SIDE : SIDE + 4] + self.offset + shift())


def make(offset=0.0):
    return Look(offset)
"""


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine.py", "SIDE = 14", "SIDE =  0"),
        ("mine.py", "functional.relu", "functional.silu"),
        ("mine.py", "offset=0.0", "offset=0.9"),
        ("neighbour.py", "return 0.0", "return 0.7"),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_changed_code_is_never_scored_by_what_the_old_one_gave(
    array_task: Task, tmp_path: Path, file: str, old: str, new: str, cached: bool
) -> None:
    """In one process, within a second, in a file of the same size."""
    (tmp_path / "mine.py").write_text(NETWORK)
    (tmp_path / "neighbour.py").write_text("def shift():\n    return 0.0\n")
    model = f"python:{tmp_path}/mine.py:make"
    cache: Any = tmp_path / "cache" if cached else False
    first = rank(array_task, model, cache=cache).best
    source = (tmp_path / file).read_text()
    assert old in source
    (tmp_path / file).write_text(source.replace(old, new))
    second = rank(array_task, model, cache=cache).best
    assert not second.from_cache
    assert second.score != pytest.approx(first.score, abs=1e-4)
    (tmp_path / file).write_text(source)
    third = rank(array_task, model, cache=cache).best
    assert (third.score, third.from_cache) == (first.score, cached)


def test_a_file_of_the_same_name_in_another_project_is_another_model(
    array_task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for project, amount in (("one", "0.0"), ("two", "0.7")):
        (tmp_path / project).mkdir()
        (tmp_path / project / "mine.py").write_text(NETWORK)
        (tmp_path / project / "neighbour.py").write_text(f"def shift():\n    return {amount}\n")
    found = []
    for project in ("one", "two", "one"):
        monkeypatch.chdir(tmp_path / project)
        found.append(rank(array_task, "python:mine.py:make", cache=tmp_path / "cache").best)
    assert [row.from_cache for row in found] == [False, False, True]
    assert found[0].score == found[2].score != found[1].score


@pytest.fixture
def mixed_hub(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with a model for arrays, one for texts, and one of which only opening it shows that it takes images."""
    from hubscout.hubs.hub_registry import HUBS

    class Mixed:
        def load(self, identifier: Identifier) -> Backbone:
            late = identifier.name == "seen-late"
            return load("timm/test_resnet?pretrained=false" if late else models["strong"])

        def list_models(self, pattern: str) -> ModelListing:
            late = ModelEntry(identifier="mixed/seen-late")
            known = ModelEntry(identifier="mixed/known", modalities=("text",))
            return ModelListing([ModelEntry(identifier="mixed/columns"), late, known])

    monkeypatch.setitem(HUBS._entries, "mixed", Mixed())


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.usefixtures("mixed_hub")
def test_a_pattern_leaves_out_models_of_another_modality_without_a_word(array_task: Task, progressive: bool) -> None:
    heard: list[Event] = []
    ranking = rank(array_task, "mixed/*", cache=False, observer=heard.append, progressive=progressive)
    assert ranking.identifiers == ("mixed/columns",)
    assert not ranking.failures
    assert {event.model for event in heard} <= {"mixed/columns", "engine"}
    named = rank(array_task, ["mixed/seen-late", "mixed/columns"], cache=False)
    assert [failure.identifier for failure in named.failures] == ["mixed/seen-late"]


def test_a_pattern_of_which_no_model_takes_the_inputs_is_an_error() -> None:
    with pytest.raises(InputError, match=r"none of the 2 models that match 'pypi/\*minilm\*' takes image inputs"):
        find_candidates("pypi/*minilm*", "image")


def test_models_must_be_named_where_there_is_no_list(array_task: Task) -> None:
    with pytest.raises(InputError, match="no list of models for inputs of the kind 'array'"):
        rank(array_task)


def test_progress_is_shown_in_a_terminal_unless_it_is_unwanted(array_task: Task, models: dict[str, str]) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as screen, redirect_stderr(screen):
        rank(array_task, models["strong"], cache=False, progress=False)
        assert not select.select([ours], [], [], 0.2)[0]
        rank(array_task, models["strong"], cache=False)
        screen.flush()
        assert "models" in os.read(ours, 1 << 16).decode()
    os.close(ours)


def test_a_profile_says_where_each_second_went(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    wanted = [models["strong"], models["weak"]]
    plain = rank(array_task, wanted, cache=tmp_path / "a")
    ranking = rank(array_task, wanted, cache=tmp_path / "b", out=tmp_path / "run", profile=True)
    assert [row.score for row in ranking] == [row.score for row in plain]
    assert all(row.profile is None for row in plain)
    assert "Where the time went" not in str(plain)
    rest = ranking.environment["profile"]
    for row in ranking:
        assert row.profile is not None
        assert {"load", "decode", "forward", "statistics", "latency", "score"} <= set(row.profile.main)
        assert {"decode", "write"} <= set(row.profile.beside)  # other threads
        assert sum(row.profile.main.values()) == pytest.approx(row.profile.seconds)
    assert {"start", "write"} <= set(rest["main"])
    whole = rest["seconds"] + sum(row.profile.seconds for row in ranking if row.profile is not None)
    assert sum(rest["main"].values()) == pytest.approx(rest["seconds"])
    assert whole == pytest.approx(ranking.seconds, abs=0.2)
    assert Ranking.load(tmp_path / "run")[0].profile == ranking[0].profile
    text = str(ranking)
    assert "Where the time went" in text
    assert "between models" in text
    page = ranking.report(tmp_path / "page.html").read_text()
    assert "Where the time went" in page


def test_the_profiles_of_growing_subsets_add_up(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    ranking = rank(
        array_task, [models["strong"], models["weak"]], cache=tmp_path, progressive=True, drop=False, profile=True
    )
    assert len(ranking.stages) > 1
    spent = [row.profile.seconds for row in ranking if row.profile is not None]
    last = [row.seconds or 0.0 for row in ranking]
    assert sum(spent) > sum(last)
    assert sum(spent) <= ranking.seconds


def test_what_ran_a_network_is_in_its_row(array_task: Task, models: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    ranking = rank(array_task, [models["strong"]], cache=False, accelerate="onnxruntime", out=tmp_path)
    assert ranking[0].backend == "onnxruntime"
    assert Ranking.load(tmp_path)[0].backend == "onnxruntime"
    assert "Run by ONNX Runtime: look" in str(ranking)
    assert "onnxruntime" in ranking.report(tmp_path / "page.html").read_text()
    eager = rank(array_task, [models["strong"]], cache=False, accelerate="off")
    assert eager[0].backend == "torch"
    assert "ONNX Runtime" not in str(eager)
    assert abs(eager[0].score - ranking[0].score) < 1e-4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"metrics": "logmee"}, "Did you mean 'logme'"),
        ({"metric": "logme"}, "'metric'. Did you mean 'metrics'?"),
        ({"devise": "cpu"}, "'devise'. Did you mean 'device'?"),
        ({"layer": "first"}, "layer must be one of final, best, mean"),
        ({"precision": "float8"}, "precision must be one of"),
        ({"budget": 60, "progressive": False}, "give one of them"),
        ({"time_limit": 60}, "time_limit=60 is for engine='ray' or for workers"),
        ({"engine": LocalEngine(), "engine_options": {"workers": 2}}, "engine_options are for an engine that is named"),
    ],
)
def test_a_wrong_argument_is_refused_before_data_are_read(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        rank("nowhere/", "timm/resnet18", **arguments)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_params": "100"}, "448 parameters, of at most 100"),
        ({"max_flops": 10}, "nobody knows how many operations per sample it has, and at most 10 are allowed"),
        ({"max_latency": 1e-6}, "per sample, of at most 0.001 ms"),
    ],
)
def test_a_model_over_a_limit_is_not_run(
    array_task: Task, models: dict[str, str], limits: dict[str, Any], reason: str
) -> None:
    heard: list[Event] = []
    ranking = rank(array_task, models["strong"], cache=False, observer=heard.append, **limits)
    assert not len(ranking)
    assert [failure.error for failure in ranking.failures] == ["OverLimitError"]
    assert reason in ranking.failures[0].reason
    assert not any(isinstance(event, Started) for event in heard)
    assert [finished_text(event).partition(":")[0] for event in heard if isinstance(event, Finished)] == [
        "over the limits"
    ]


def test_models_under_the_limits_are_ranked_as_without_them(array_task: Task, models: dict[str, str]) -> None:
    wanted = [models["blind"], models["strong"]]
    free = rank(array_task, wanted, cache=False)
    bounded = rank(array_task, wanted, cache=False, max_params="1M", max_latency="1s")
    assert [(row.identifier, row.score) for row in bounded] == [(row.identifier, row.score) for row in free]


def test_what_the_hub_says_is_far_too_large_is_not_opened(
    array_task: Task, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = ModelListing([ModelEntry(identifier="timm/huge.a", params=10**9, modalities=("array",))])
    monkeypatch.setattr("hubscout.hubs.list_models", lambda *_, **__: entries)
    opened: list[str] = []
    monkeypatch.setattr("hubscout.features.extraction.open_backbone", lambda name, _: opened.append(name))
    ranking = rank(array_task, "timm/huge*", cache=False, max_params="1M")
    assert opened == []
    assert ranking.failures[0].reason == "1G parameters by its hub, of at most 1M"


def test_a_finished_ranking_with_models_over_the_limits_is_not_made_again(
    array_task: Task, models: dict[str, str], tmp_path: Path
) -> None:
    large = tmp_path / "large.py"
    large.write_text(
        "from torch import nn\n\ndef large():\n    net = nn.Linear(20, 64)\n    net.num_features = 64\n    return net\n"
    )
    wanted = [models["strong"], models["weak"], f"python:{large}:large"]
    options: dict[str, Any] = {"cache": False, "out": tmp_path / "run", "progressive": True, "max_params": 500}
    first = rank(array_task, wanted, **options)
    assert [failure.error for failure in first.failures] == ["OverLimitError"]
    heard: list[Event] = []
    again = rank(array_task, wanted, observer=heard.append, **options)
    assert not any(isinstance(event, Started) for event in heard)
    assert (again.rows, again.failures) == (first.rows, first.failures)
