from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubscout as hs
from hubscout.errors import InputError
from hubscout.hubs import prepare_torchvision
from hubscout.ranking.candidates import find_candidates
from hubscout.tasks import Task


@pytest.fixture
def look(zoo: str) -> Any:
    spec = importlib.util.spec_from_file_location("zoo_of_objects", zoo)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.look


def test_modules_in_memory_are_ranked_as_the_same_modules_by_name(zoo: str, look: Any, array_task: Task) -> None:
    by_name = hs.rank(array_task, [f"python:{zoo}:look?first=0&last=4", f"python:{zoo}:look?first=9&last=13"])
    modules = {"good": look(0, 4), "poor": look(9, 13)}
    ranking = hs.rank(array_task, modules)
    assert [row.identifier for row in ranking] == ["memory:good", "memory:poor"]
    assert [row.score for row in ranking] == pytest.approx([row.score for row in by_name])
    alone = hs.rank(array_task, modules["good"])
    assert [row.identifier for row in alone] == ["memory:Look"]
    assert len(hs.rank(array_task, list(modules.values()))) == 2


def test_a_broken_module_is_a_failure_and_not_the_end(look: Any, array_task: Task) -> None:
    broken = look(0, 4)
    broken.out = None
    ranking = hs.rank(array_task, {"good": look(0, 4), "broken": broken})
    assert [row.identifier for row in ranking] == ["memory:good"]
    assert [failure.identifier for failure in ranking.failures] == ["memory:broken"]


def test_a_folder_is_gone_on_with_only_while_the_weights_are_the_same(
    look: Any, array_task: Task, tmp_path: Path
) -> None:
    first = look(0, 4)
    before = hs.rank(array_task, {"net": first}, out=tmp_path)
    assert hs.rank(array_task, {"net": first}, out=tmp_path)[0].score == before[0].score
    other = look(9, 13)
    assert hs.rank(array_task, {"net": other}, out=tmp_path)[0].score != before[0].score


def test_a_module_in_memory_is_tuned_with_rows_of_a_ranking(look: Any, array_task: Task) -> None:
    modules = {"good": look(0, 4), "poor": look(9, 13)}
    ranking = hs.rank(array_task, modules)
    before = modules["poor"].mix.weight.clone()
    quick = {"steps": 4, "batch_size": 16, "device": "cpu", "bootstrap_resamples": 20}
    tuned = hs.tune(array_task, modules["poor"], teachers=ranking.top(1), **quick)
    assert (tuned.model, tuned.teachers) == ("memory:Look", ("memory:good",))
    assert (modules["poor"].mix.weight == before).all()
    assert hs.tune(array_task, modules["poor"], teachers=modules["good"], **quick).teachers


def test_data_in_memory_is_ranked_and_tuned(look: Any, array_task: Task) -> None:
    inputs = np.asarray(array_task.train.inputs)
    labels = [array_task.target_names[target] for target in array_task.train.targets]
    module = look(0, 4)
    assert len(hs.rank((inputs, labels), {"net": module})) == 1
    tuned = hs.tune((inputs, labels), module, method="fine-tune", steps=2, device="cpu", bootstrap_resamples=20)
    assert tuned.target_names == array_task.target_names


def test_what_is_no_model() -> None:
    with pytest.raises(InputError, match="float is not a model"):
        find_candidates([3.5])
    with pytest.raises(InputError, match="models is empty"):
        find_candidates({})


def test_a_word_that_names_no_hub_is_refused_with_the_lists_there_are() -> None:
    with pytest.raises(InputError, match=r"'smal' names no hub.*hubscout's own lists: small, base, large"):
        find_candidates(["pypi/alexnet-features", "smal"])


def test_options_behind_a_pattern_are_those_of_every_match(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(b"")
    found = find_candidates(f"file:{tmp_path}/*?arch=timm/mobilenetv2_035&input_size=64").models
    assert [candidate.identifier for candidate in found] == [
        f"file:{tmp_path / name}?arch=timm/mobilenetv2_035&input_size=64" for name in ("a.safetensors", "b.safetensors")
    ]
    assert all(candidate.by_pattern for candidate in found)


def test_models_of_a_pattern_that_read_other_inputs_are_left_out_quietly(
    zoo: str, array_task: Task, tmp_path: Path
) -> None:
    prepare_torchvision()
    timm, safetensors = pytest.importorskip("timm"), pytest.importorskip("safetensors.torch")
    safetensors.save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "net.safetensors")
    images = f"file:{tmp_path}/*.safetensors?arch=timm/test_resnet"
    ranking = hs.rank(array_task, [f"python:{zoo}:look?first=0&last=4", images])
    assert len(ranking) == 1
    assert ranking.failures == ()
    assert any("read other inputs are left out (1)" in note for note in ranking.task.notes)
    named = hs.rank(array_task, [f"file:{tmp_path}/net.safetensors?arch=timm/test_resnet"])
    assert len(named.failures) == 1
