"""A race between small real networks: the one that can learn the task wins, though its frozen features say nothing."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from racing_networks import QUICK, names

from hubscout.engines import LocalEngine
from hubscout.engines.job import forget
from hubscout.errors import DivergedError, InputError, InterruptedRunError, RunError, TaskError
from hubscout.racing import race
from hubscout.racing.arms import LONGEST_FAILURE, Arm, failed_look
from hubscout.racing.rungs import Rung
from hubscout.ranking import rank
from hubscout.runs.events import Raced, Started
from hubscout.tasks import Split, Task
from hubscout.tuning import Tuned


def test_the_network_that_can_learn_wins_and_is_saved(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=2", "width=64", "width=3&seed=1")
    found = race(task, models, out=tmp_path / "run", learning_rate=0.05, **QUICK)
    assert found.winner.model == models[1]
    assert found.tuned is not None
    assert found.tuned.metric("test").value > 0.8
    assert [one.rank for one in found.order] == [1, 2, 3]
    assert found.order[0].model == models[1]
    assert sum(one.p_best or 0.0 for one in found.order) == pytest.approx(1.0)
    assert "width=64 won at a learning rate of" in found.answer
    assert "P(best)" in str(found)
    alone = replace(found, looks=tuple(look for look in found.looks if look.arm.model == models[1]))
    assert {one.p_best for one in alone.order} == {None}
    assert "It is the only one that there was time to tune; by evidence it is " in alone.answer
    two = replace(found, looks=tuple(look for look in found.looks if look.arm.model != models[0]))
    assert "Of the 2 models that were tuned, out of 3, it is the best with a probability of" in two.answer
    again = Tuned.load(tmp_path / "run" / "winner", allow_code=True)
    np.testing.assert_allclose(
        again.predict(list(task.test.inputs)).values, found.tuned.predict(list(task.test.inputs)).values, atol=1e-5
    )
    record = json.loads((tmp_path / "run" / "race.json").read_text())
    assert record["winner"]["model"] == models[1]
    assert set(record["seconds"]) == {"evidence", "rungs", "winner"}


def test_an_arm_goes_on_where_it_stopped(task: Task, networks: Path, tmp_path: Path) -> None:
    """The same call after a kill gives the same looks and the same winner, whether arms are in memory or on disk."""
    models = names(networks, "width=8", "width=32")
    whole = race(task, models, out=tmp_path / "whole", learning_rate=0.05, **QUICK)
    heard = []

    def stop(event: Any) -> None:
        heard.append(event)
        if sum(isinstance(each, Raced) and each.line["event"] == "look" for each in heard) == 7:
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError, match="The best so far"):
        race(task, models, out=tmp_path / "cut", learning_rate=0.05, observer=stop, **QUICK)
    usable = Tuned.load(tmp_path / "cut" / "winner", allow_code=True)
    assert len(usable.predict(list(task.test.inputs))) == len(task.test)
    forget()
    resumed = race(task, models, out=tmp_path / "cut", learning_rate=0.05, **QUICK)
    assert resumed.winner == whole.winner
    seen = {(look.arm, look.rung): look.metric for look in whole.looks}
    assert {(look.arm, look.rung): look.metric for look in resumed.looks} == seen


def test_of_tied_arms_the_one_ahead_so_far_wins_though_the_other_was_looked_at_first(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=32", "width=33&seed=1")
    race(task, models, out=tmp_path / "whole", learning_rate=0.05, **QUICK)
    lines = [json.loads(line) for line in (tmp_path / "whole" / "race.jsonl").open()]
    ahead, behind = next(line for line in lines if line["event"] == "rung" and line["rung"] == 1)["going_on"]
    seen = next(line for line in lines if line["event"] == "look" and line["rung"] == 2 and line["arm"] == behind)
    seen |= {"metric": 1.0, "log_likelihoods": [-5.0] * len(seen["log_likelihoods"])}  # often right and never sure
    kept = [line for line in lines if line.get("rung", 0) < 2 and line["event"] in ("race", "look", "rung")]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*kept, seen]))
    found = race(task, models, out=tmp_path / "cut", learning_rate=0.05, **QUICK)
    assert found.winner.model == ahead["model"]


def test_ctrl_c_in_the_middle_of_training_puts_no_arm_out(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8", "stops=true")
    with pytest.raises(InterruptedRunError, match="Run the same command again"):
        race(task, models, out=tmp_path / "run", **QUICK)
    found = race(task, models, out=tmp_path / "run", **QUICK)
    assert not any(look.failure for look in found.looks)


def test_a_model_that_breaks_down_is_out_and_the_race_goes_on(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "broken=true", "width=32")
    found = race(task, models, out=tmp_path / "run", **QUICK)
    assert found.winner.model == models[1]
    failure = found.order[-1].failure
    assert failure.startswith("At step ")
    assert failure.endswith(".")
    assert "trade_off" not in failure


def test_the_reason_of_a_failure_ends_with_a_word() -> None:
    arm, rung = Arm("a", 0.1), Rung(0, 8, 10)
    whole = failed_look(arm, rung, 1.0, ValueError("words\nand words"))
    assert whole.failure == "ValueError: words and words"
    diverged = failed_look(arm, rung, 1.0, DivergedError("At step 3 it broke.", "Lower the rate."))
    assert diverged.failure == "At step 3 it broke."
    cut = failed_look(arm, rung, 1.0, ValueError("many words " * 100)).failure
    assert len(cut) <= len("ValueError: ") + LONGEST_FAILURE
    assert cut.endswith((" many …", " words …"))
    path = failed_look(arm, rung, 1.0, ValueError(f"no {'/folder' * 100}")).failure
    assert path.startswith("ValueError: no /folder/folder")
    assert len(path) == len("ValueError: ") + LONGEST_FAILURE


@pytest.mark.parametrize(
    ("deploy", "option", "told"),
    [
        (None, {"label_share": 0.2}, r"label_share=0\.2 is for a model to deploy: give deploy="),
        (None, {"kd_temperature": 4.0}, r"kd_temperature=4\.0 is for method 'distill-weighted' or 'logit-kd'"),
        ("timm/resnet18", {"zoo_lite": True}, "zoo_lite=True is for method 'zoo'"),
    ],
)
def test_what_nothing_in_a_race_would_heed_is_refused_before_data_are_read(deploy, option, told, tmp_path) -> None:
    with pytest.raises(InputError, match=told):
        race("nowhere/", ["timm/resnet18"], out=tmp_path / "run", deploy=deploy, **option)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_evidence_alone_puts_no_model_out(networks: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(2500, 6)).astype(np.float32)
    task = Task.from_arrays(inputs, (inputs[:, 0] > 0).astype(int), kind="classification", name="halves")
    models = names(networks, "width=64", "width=1")
    assert rank(task, models, progressive=True, cache=False).rows[-1].dropped
    found = race(task, models, budget=600, out=tmp_path / "run", **QUICK)
    assert not any(row.dropped for row in found.ranking)
    assert len({row.n for row in found.ranking}) == 1
    assert {look.arm.model for look in found.looks} == set(models)


def test_a_model_over_the_limits_costs_no_time(task: Task, networks: Path, tmp_path: Path) -> None:
    models, heard = names(networks, "width=8", "width=64"), []
    found = race(task, models, out=tmp_path / "run", max_params=1000, observer=heard.append, **QUICK)
    assert found.winner.model == models[0]
    assert found.ranking.identifiers == (models[0],)
    assert {event.model for event in heard if isinstance(event, Started)} == {models[0]}  # the other never ran
    assert any("1 of 2 models is over the limits: it does not race" in note for note in found.notes)
    assert "failed" not in str(found.ranking)
    with pytest.raises(RunError, match="holds another ranking"):
        race(task, models, out=tmp_path / "run", max_params=100_000, **QUICK)
    with pytest.raises(InputError, match=r"No model is left to race: all 2 are over the limits \(.*width=8: 128 param"):
        race(task, models, out=tmp_path / "none", max_params=1, **QUICK)


def test_an_unknown_option_is_named_before_anything_runs(task: Task) -> None:
    with pytest.raises(InputError, match="Did you mean 'budget'"):
        race(task, "no/such/model", bugdet="1min")


def test_the_acceleration_of_the_evidence_can_be_chosen(task: Task, networks: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="accelerate must be one of auto, off, onnxruntime, openvino; got 'tpu'"):
        race(task, names(networks, "width=8"), out=tmp_path / "run", accelerate="tpu", **QUICK)


def test_a_folder_of_another_race_is_left_alone(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "width=8")
    race(task, models, out=tmp_path / "run", **QUICK)
    with pytest.raises(RunError, match="another race"):
        race(task, models, out=tmp_path / "run", **{**QUICK, "steps": 30})
    anew = race(task, models, out=tmp_path / "run", overwrite=True, **{**QUICK, "steps": 30})
    assert anew.steps == 30
    with pytest.raises(InputError, match="holds no run to resume"):
        race(task, models, out=tmp_path / "other", resume=True, **QUICK)


def test_what_the_folder_names_does_not_race(task: Task, networks: Path, tmp_path: Path) -> None:
    first, second = names(networks, "width=8", "width=16")
    race(task, first, out=tmp_path / "run", **QUICK)
    (tmp_path / "run" / "race.jsonl").unlink()
    shutil.rmtree(tmp_path / "run" / "arms")
    assert [one.model for one in race(task, second, out=tmp_path / "run", **QUICK).order] == [second]
    file = tmp_path / "run" / "race.jsonl"
    touched = tmp_path / "executed"
    stranger = f"python:{networks}:os.system?command=touch {touched}"
    start, *rest = file.read_text().splitlines()
    planted = json.loads(start)
    planted["field"]["models"] = [stranger]
    file.write_text("\n".join([json.dumps(planted), *rest]) + "\n")
    with pytest.raises(RunError, match="damaged or of another race"):
        race(task, second, out=tmp_path / "run", **QUICK)
    assert not touched.exists()


def test_the_same_call_after_the_end_gives_the_same_and_trains_nothing(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=8", "width=32")
    first = race(task, models, out=tmp_path / "run", **QUICK)
    lines = (tmp_path / "run" / "race.jsonl").read_text().count('"event": "look"')
    again = race(task, models, out=tmp_path / "run", **QUICK)
    assert again.winner == first.winner
    assert again.tuned is not None
    assert again.tuned.metric("test") == first.tuned.metric("test")
    assert again.seconds == pytest.approx(first.seconds)
    assert (tmp_path / "run" / "race.jsonl").read_text().count('"event": "look"') == lines


def test_the_same_call_after_the_end_keeps_the_notes_and_adds_no_line(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=8", "width=16")
    first = race(task, models[0], out=tmp_path / "run", deploy=models[1], **QUICK)
    record, journal = tmp_path / "run" / "race.json", tmp_path / "run" / "race.jsonl"
    record.write_text(json.dumps({**json.loads(record.read_text()), "notes": ["time was short"]}))
    lines = journal.read_text()
    again = race(task, models[0], out=tmp_path / "run", deploy=models[1], **QUICK)
    assert journal.read_text() == lines
    assert again.notes == ("time was short",)
    assert json.loads(record.read_text())["notes"] == ["time was short"]
    assert first.deployed is not None
    without = race(task, models[0], out=tmp_path / "run", **QUICK)  # another call: its notes are its own
    assert without.notes == first.notes
    assert journal.read_text() == lines


def test_a_race_that_goes_on_says_who_did_not_start_and_what_was_not_looked_at(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=8", "width=16", "width=24")
    race(task, models, out=tmp_path / "whole", budget=600, **QUICK)
    start, *rest = [json.loads(line) for line in (tmp_path / "whole" / "race.jsonl").open()]
    first = min(line["rung"] for line in rest if line["event"] == "look")
    looks = [line for line in rest if line["event"] == "look" and line["rung"] == first]
    (tmp_path / "cut").mkdir()
    kept = [{**start, "left_out": 2}, *looks[:-1]]
    kept[-1]["elapsed"] = 600.0  # the time is over
    (tmp_path / "cut" / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    found = race(task, models, out=tmp_path / "cut", budget=600, **QUICK)
    assert "2 models of least evidence did not start: the budget is too short" in found.notes
    assert f"time was short: 1 arm was not looked at after {looks[0]['steps']} steps" in found.notes


def test_a_race_in_a_folder_that_was_removed_starts_anew(task: Task, networks: Path, tmp_path: Path) -> None:
    """Networks of the race before may still be in memory; they are not taken up."""
    models = names(networks, "width=8", "width=32")
    first = race(task, models, out=tmp_path / "run", **QUICK)
    shutil.rmtree(tmp_path / "run")
    again = race(task, models, out=tmp_path / "run", **QUICK)
    assert [look.metric for look in again.looks] == [look.metric for look in first.looks]


@pytest.mark.slow
def test_a_model_that_could_not_be_ranked_in_time_does_not_make_it_another_race(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    """What is ranked when the race goes on may be more than before; the arms are in the same folders."""
    slow = names(networks, "width=8", "pace=1.5&width=9")
    options = {**QUICK, "steps": 20}

    def stop(event: Any) -> None:
        if isinstance(event, Raced) and event.line["event"] == "look":
            raise KeyboardInterrupt

    with pytest.raises(InterruptedRunError):
        race(task, slow, out=tmp_path / "run", budget=8, observer=stop, **options)
    before = sorted(path.name for path in (tmp_path / "run" / "arms").iterdir())
    found = race(task, slow, out=tmp_path / "run", budget=16, deploy=names(networks, "width=4")[0], **options)
    assert not [look.failure for look in found.looks if look.failure]
    assert set(before) <= {path.name for path in (tmp_path / "run" / "arms").iterdir()}


def test_two_processes_do_not_race_in_one_folder(task: Task, networks: Path, tmp_path: Path) -> None:
    from hubscout.runs.run_folder import FolderLock

    lock = FolderLock(tmp_path / "run")
    lock.take()
    with pytest.raises(RunError, match="is being written by"):
        race(task, names(networks, "width=8"), out=tmp_path / "run", **QUICK)
    lock.release()


def test_samples_that_cannot_be_read_are_left_out_of_all_stages(networks: Path, tmp_path: Path) -> None:
    class Broken(list):
        def __getitem__(self, index: Any) -> Any:
            if index == 7:
                raise OSError("a bad sector")
            return super().__getitem__(index)

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(300, 6)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    splits = {"train": Split(Broken(rows[:200]), labels[:200]), "test": Split(list(rows[200:]), labels[200:])}
    task = Task(
        "broken", "classification", "array", ("no", "yes"), {**splits, "validation": Split([], labels[:0])}, "b"
    )
    with pytest.raises(TaskError, match="bad sector"):
        race(task, names(networks, "width=8"), out=tmp_path / "none", **QUICK)
    found = race(task, names(networks, "width=8"), out=tmp_path / "run", skip_bad=True, **QUICK)
    assert found.winner.model.endswith("width=8")
    assert any("bad sector" in note for note in found.notes)


@pytest.mark.slow
def test_an_arm_whose_process_dies_is_out_and_the_race_goes_on(task: Task, networks: Path, tmp_path: Path) -> None:
    models = names(networks, "dies=true", "width=16")
    with closing(LocalEngine(workers=1)) as engine:
        found = race(task, models, out=tmp_path / "run", engine=engine, **QUICK)
    assert found.winner.model == models[1]
    assert "EngineError" in found.order[-1].failure
    assert found.tuned is not None
    assert found.tuned.metric("test").value > 0.4


def test_what_a_race_needs_no_more_is_removed(task: Task, networks: Path, tmp_path: Path) -> None:
    race(task, names(networks, "width=8", "width=16"), out=tmp_path / "run", **QUICK)
    assert list((tmp_path / "run").glob("arms/*/metrics.jsonl"))
    assert not list((tmp_path / "run").glob("**/step-*.pt"))


def test_networks_in_memory_race(networks: Path, task: Task) -> None:
    from hubscout.hubs.python_callable import find_function

    make = find_function(f"{networks}:make")
    modules = {"wide": make(width=64), "narrow": make(width=2)}
    inputs = np.concatenate([np.asarray(part.inputs) for part in task.splits.values()])
    labels = np.concatenate([part.targets for part in task.splits.values()])
    found = race((inputs, labels), modules, learning_rate=0.05, **QUICK)
    assert found.winner.model == "memory:wide"
    assert found.tuned is not None
    assert found.tuned.model == "memory:wide"


def test_tied_finalists_are_judged_on_all_folds_and_the_race_goes_on_after_a_stop(
    task: Task, networks: Path, tmp_path: Path
) -> None:
    models = names(networks, "width=32", "width=33&seed=1")  # hardly to be told apart
    found = race(task, models, out=tmp_path / "run", folds=3, learning_rate=0.05, **QUICK)
    lines = [json.loads(line) for line in (tmp_path / "run" / "race.jsonl").open()]
    on_folds = [line for line in lines if line["event"] == "fold"]
    pooled = [look for look in found.looks if look.rung == len(found.told.rungs)]
    assert {line["fold"] for line in on_folds} == {1, 2}
    assert len(pooled) >= 2
    first = next(look for look in found.looks if look.arm == pooled[0].arm and look.rung == pooled[0].rung - 1)
    others = [line for line in on_folds if line["arm"]["model"] == pooled[0].arm.model]
    assert pooled[0].metric == pytest.approx(np.mean([first.metric, *(line["metric"] for line in others)]))
    assert len(pooled[0].log_likelihoods) == 3 * len(first.log_likelihoods)
    assert sum(one.p_best or 0.0 for one in found.order) == pytest.approx(1.0)
    kept = [line for line in lines if line["event"] not in ("winner", "stage", "finished")][:-2]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "race.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    again = race(task, models, out=tmp_path / "cut", folds=3, learning_rate=0.05, **QUICK)
    assert again.winner == found.winner


def test_a_fold_that_no_group_is_left_for_does_not_count(task: Task, networks: Path) -> None:
    models = names(networks, "width=32", "width=33&seed=1")
    inputs, labels, groups = np.asarray(task.train.inputs), task.train.targets, np.arange(len(task.train)) % 3
    grouped = Task.from_arrays(inputs, labels, groups=groups, test_size=0)
    found = race(grouped, models, folds=3, learning_rate=0.05, **QUICK)
    pooled = [look for look in found.looks if look.rung == len(found.told.rungs)]
    assert sorted(found.told.folds) == [1]
    assert pooled
    assert all(look.metric is not None and np.isfinite(look.metric) for look in pooled)
    assert "there are too few groups for more than 2 folds" in found.notes
