from __future__ import annotations

import copy
import gc
import json
import resource
from functools import partial

import numpy as np
import pytest
import torch
from tuning_networks import image_task, images, make_task, perceptron

from hubscout.errors import CheckpointError, InputError, ModelError, ModelNotFoundError, RunError, TuningError
from hubscout.hubs import Identifier, load, prepare_torchvision
from hubscout.ranking import rank
from hubscout.tuning import Tuned, tune

IMAGES = "python:tuning_networks:images?seed=1"
QUICK = {"epochs": 1, "batch_size": 8, "bootstrap_resamples": 10}


@pytest.fixture(scope="module")
def timm_tuned():
    """A real timm architecture with random weights, at 32 pixels."""
    prepare_torchvision()
    import timm

    from hubscout.hubs.timm_hub import wrap

    torch.manual_seed(0)
    module = timm.create_model("mobilenetv2_035", num_classes=7)
    backbone = wrap(module, Identifier.parse("timm/mobilenetv2_035"), image_options={"input_size": 32}, facts={})
    return tune(image_task(), backbone, [backbone], method="b-tuning", trade_off=1e-3, **QUICK)


def test_a_timm_folder_opens_again_here_and_in_plain_timm(timm_tuned, tmp_path):
    import timm

    task = image_task()
    timm_tuned.save(tmp_path / "model")
    expected = timm_tuned.predict(task.test.inputs)
    again = Tuned.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(task.test.inputs).values, expected.values, rtol=1e-5, atol=1e-7)
    assert again.target_names == ("blue", "green", "red")
    assert again.metrics == timm_tuned.metrics
    assert again.curves == timm_tuned.curves
    plain = timm.create_model(
        "mobilenetv2_035", num_classes=3, checkpoint_path=str(tmp_path / "model" / "model.safetensors")
    ).eval()
    folder = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True).eval()
    assert tuple(folder.pretrained_cfg["input_size"]) == (3, 32, 32)
    batch = again.backbone.preprocessing.collate([again.backbone.preprocessing(x) for x in task.test.inputs])
    config = folder.pretrained_cfg
    mean, std = (torch.tensor(config[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    inputs = (batch["pixel_values"].float() / 255 - mean) / std
    with torch.no_grad():
        for network in (plain, folder):
            np.testing.assert_allclose(network(inputs).double().softmax(1), expected.values, rtol=1e-4, atol=1e-6)


def test_who_may_read_the_folder_may_read_the_weights(timm_tuned, tmp_path):
    """The writer of safetensors lets only the user read them, and another one serves the model."""
    folder = timm_tuned.save(tmp_path / "model")
    (tmp_path / "new").touch()
    modes = {path.name: oct(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {oct((tmp_path / "new").stat().st_mode)}, modes


def test_the_card_says_target_teachers_data_and_metrics(timm_tuned, tmp_path):
    text = (timm_tuned.save(tmp_path) / "README.md").read_text()
    for part in (
        "`timm/mobilenetv2_035`",
        "b-tuning, teachers",
        "colours, 24 train",
        "| test | accuracy |",
        "local-dir",
    ):
        assert part in text
    record = json.loads((tmp_path / "tuning.json").read_text())
    assert record["metrics"]["test"]["accuracy"]["value"] == timm_tuned.metric().value


def test_a_record_that_does_not_say_which_step_was_best_is_no_linear_probe(timm_tuned, tmp_path):
    record = json.loads((timm_tuned.save(tmp_path) / "tuning.json").read_text())
    (tmp_path / "tuning.json").write_text(json.dumps(record | {"best_step": None}))
    assert Tuned.load(tmp_path).best_step == timm_tuned.steps > 0


def test_onnx_agrees_with_torch(timm_tuned, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert timm_tuned.export_onnx(tmp_path / "model.onnx") < 1e-3
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    images = [image_task().test.inputs[i] for i in range(3)]
    preprocessing = timm_tuned.backbone.preprocessing
    pixels = preprocessing.collate([preprocessing(image) for image in images])["pixel_values"].numpy()
    (logits,) = session.run(None, {session.get_inputs()[0].name: pixels})
    expected = timm_tuned.predict(images).values
    np.testing.assert_allclose(torch.as_tensor(logits).double().softmax(1), expected, rtol=1e-3, atol=1e-5)


def test_bare_networks_and_regression_in_their_own_units(tmp_path):
    task = image_task()
    numbers = {
        name: type(split)(split.inputs, np.stack([100.0 + split.targets, -split.targets], axis=1))
        for name, split in task.splits.items()
    }
    regression = type(task)("numbers", "regression", "image", ("up", "down"), numbers, "numbers")
    tuned = tune(regression, "python:tuning_networks:images?seed=1", method="fine-tune", **QUICK)
    tuned.save(tmp_path)
    assert "allow_code=True" in (tmp_path / "README.md").read_text()
    again = Tuned.load(tmp_path, allow_code=True)
    expected = tuned.predict(task.test.inputs)
    np.testing.assert_allclose(again.predict(task.test.inputs).values, expected.values, rtol=1e-5, atol=1e-5)
    assert abs(expected.values[:, 0].mean() - 101) < 3
    assert set(expected.labels[0]) == {"up", "down"}
    assert load(f"file:{tmp_path}?arch=python:tuning_networks:images").card.feature_dim == 8


def test_a_network_that_was_in_memory_is_given_again_to_open_its_weights(tmp_path):
    task, network = image_task(), images(seed=1)
    tuned = tune(task, network, method="fine-tune", **QUICK)
    tuned.save(tmp_path)
    assert tuned.model == "memory:Images"
    assert 'Tuned.load("THIS FOLDER", model=network)' in (tmp_path / "README.md").read_text()
    del network
    gc.collect()  # as in another process: nobody holds it any more
    with pytest.raises(ModelNotFoundError, match=r"memory:Images.*in memory.*Tuned\.load\(folder, model=network\)"):
        Tuned.load(tmp_path)
    built, expected = images(seed=2), tuned.predict(task.test.inputs).values
    before = {name: value.clone() for name, value in built.state_dict().items()}
    for given in (built, load("python:tuning_networks:images?seed=3")):
        again = Tuned.load(tmp_path, model=given)
        np.testing.assert_allclose(again.predict(task.test.inputs).values, expected, rtol=1e-5, atol=1e-6)
        assert again.model == "memory:Images"
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())
    with pytest.raises(InputError, match="is not a model"):
        Tuned.load(tmp_path, model=3)


def test_numbers_are_in_their_own_units_in_plain_timm_and_in_onnx_as_well(timm_tuned, tmp_path):
    import timm

    onnxruntime = pytest.importorskip("onnxruntime")
    task = image_task()
    numbers = {
        name: type(split)(split.inputs, np.stack([1000.0 + 50 * split.targets, 1e-3 * split.targets], axis=1))
        for name, split in task.splits.items()
    }
    regression = type(task)("numbers", "regression", "image", ("large", "small"), numbers, "numbers")
    tuned = tune(regression, timm_tuned.backbone, method="fine-tune", out=tmp_path, **QUICK)
    tuned.export_onnx(tmp_path / "model.onnx")
    expected = tuned.predict(task.test.inputs).values
    assert 900 < expected[:, 0].mean() < 1200
    plain = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    pixels = tuned.backbone.preprocessing.collate([tuned.backbone.preprocessing(x) for x in task.test.inputs])
    mean, std = (torch.tensor(plain.pretrained_cfg[name]).view(1, 3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        found = plain((pixels["pixel_values"].float() / 255 - mean) / std)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (outputs,) = session.run(None, {session.get_inputs()[0].name: pixels["pixel_values"].numpy()})
    np.testing.assert_allclose(outputs, expected, rtol=1e-3, atol=1e-6)


def _fail(words, *given):
    raise RuntimeError(words)


def test_predictions_by_kind(task):
    tuned = tune(task, perceptron(0), method="fine-tune", **QUICK)
    found = tuned.predict(task.test.inputs[:5])
    np.testing.assert_allclose(found.values.sum(axis=1), 1.0)
    assert len(found) == len(found.labels) == 5
    record = found.records(top=2)[0]
    assert next(iter(record["probabilities"])) == record["prediction"] == found.labels[0]
    several = tune(make_task("multilabel"), perceptron(0), method="fine-tune", **QUICK)
    assert all(set(labels) <= {"a", "b", "c"} for labels in several.predict(task.test.inputs[:5]).labels)
    with pytest.raises(InputError, match="nothing to predict"):
        tuned.predict([])
    with pytest.raises(InputError, match=r"does not take these inputs \(.* \(5, 3\)\).*such as those"):
        tuned.predict(task.test.inputs[:5, :3])
    for words, told in (
        ("CUDA error: an illegal memory access was encountered", "cpu failed while the network ran: CUDA error"),
        ("DefaultCPUAllocator: can't allocate memory", "Out of memory on cpu .* smaller batch_size than 7"),
    ):
        hook = tuned.head.register_forward_pre_hook(partial(_fail, words))
        with pytest.raises(ModelError, match=told):
            tuned.predict(task.test.inputs[:5], batch_size=7)
        hook.remove()
    with pytest.raises(InputError, match="no finite numbers for 1 of 5 rows, the first is row 2"):
        tuned.predict(np.where(np.arange(5)[:, None] == 2, np.nan, task.test.inputs[:5]))
    with pytest.raises(InputError, match="measured were validation, test"):
        tuned.metric("train")


def test_folders_that_are_no_model(tmp_path):
    with pytest.raises(RunError, match=r"no tuning\.json"):
        Tuned.load(tmp_path)
    (tmp_path / "tuning.json").write_text("{")
    with pytest.raises(RunError, match="is not JSON"):
        Tuned.load(tmp_path)


def test_a_damaged_evaluation_does_not_keep_the_weights_from_being_opened(timm_tuned, tmp_path):
    timm_tuned.save(tmp_path)
    assert Tuned.load(tmp_path).evaluation == timm_tuned.evaluation
    (tmp_path / "evaluation.json").write_text("{")
    again = Tuned.load(tmp_path)
    assert again.evaluation is None
    assert "evaluation.json is not JSON" in again.notes[-1]
    inputs = image_task().test.inputs
    np.testing.assert_allclose(again.predict(inputs).values, timm_tuned.predict(inputs).values, rtol=1e-5, atol=1e-7)


def test_a_full_disk_leaves_the_old_model(timm_tuned, tmp_path):
    timm_tuned.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limit[1]))
    try:
        with pytest.raises(TuningError, match=r"could not be saved.*no room on the disk"):
            timm_tuned.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_tuned_model_is_not_mixed_up_with_what_it_was_tuned_from(task, tmp_path):
    """By its name, its fingerprint, in rankings, in the cache, as a teacher and in checkpoints."""
    options = {"epochs": 3, "batch_size": 16, "learning_rate": 1e-2, "method": "fine-tune", "keep_best": False}
    original = perceptron(0)
    first, second = (tune(task, original, **options, seed=seed) for seed in (0, 1))
    name = original.card.identifier
    names = [one.backbone.card.identifier for one in (first, second)]
    assert (first.model, original.card.identifier) == (name, name)
    assert len({name, *names}) == 3
    assert all("-tuned" in one for one in names)
    prints = {one.card.weights_fingerprint for one in (original, first.backbone, second.backbone)}
    assert len(prints) == 3

    cache = tmp_path / "cache"
    ranking = rank(task, [original, first, second.backbone], cache=cache)
    assert sorted(ranking.identifiers) == sorted([name, *names])
    alone = {one.card.identifier: rank(task, one, cache=False)[0].score for one in (original, first.backbone)}
    for identifier, score in alone.items():
        assert ranking[identifier].score == score
        assert rank(task, original if identifier == name else first, cache=cache)[0].score == score
    taught = tune(task, original, [ranking[one] for one in names], **options | {"method": "kd"})
    assert taught.teachers == tuple(names)

    run = {**options, "method": "kd", "out": tmp_path / "run"}
    own = tune(task, original, [original], **run)
    assert any("among its own teachers" in note for note in own.notes)
    with pytest.raises(CheckpointError, match="teachers"):
        tune(task, original, [first], **run)
    other = tune(task, original, [first], **run | {"out": tmp_path / "other"})
    assert not any("among its own teachers" in note for note in other.notes)
    # Networks that were trained by hand have the card that they came with.
    by_hand = copy.deepcopy(original)
    with torch.no_grad():
        next(by_hand.module.parameters()).add_(0.1)
    assert len(rank(task, [original, by_hand], cache=cache)) == 2
    with pytest.raises(CheckpointError, match="model"):
        tune(task, by_hand, [original], **run)


def test_a_tuned_model_in_a_folder_is_called_by_it(tmp_path):
    tuned = tune(image_task(), IMAGES, method="fine-tune", steps=2, out=tmp_path / "mine", bootstrap_resamples=0)
    saved = Tuned.load(tmp_path / "mine", allow_code=True)
    for one in (tuned, saved):
        assert one.backbone.card.identifier != one.model
        assert one.model == IMAGES
        assert one.backbone.card.identifier.startswith("memory:images-tuned")  # its folder alone does not open it
    again = tmp_path / "again"
    saved.save(again)
    assert Tuned.load(again, allow_code=True).model == IMAGES


def test_a_tuned_timm_model_in_a_folder_is_called_by_it(timm_tuned, tmp_path):
    again = tune(image_task(), timm_tuned.backbone, method="fine-tune", out=tmp_path / "again", **QUICK)
    assert again.backbone.card.identifier == f"file:{tmp_path / 'again'}"
    assert timm_tuned.backbone.card.identifier.startswith("memory:mobilenetv2_035-tuned")
    assert again.model == timm_tuned.model == "timm/mobilenetv2_035"  # what its network is built by
    opened = load(again.backbone.card.identifier)
    assert (opened.card.architecture, opened.card.feature_dim) == ("mobilenetv2_035", 1280)


def test_a_tuned_model_has_one_origin_however_it_is_opened(timm_tuned, tmp_path):
    timm_tuned.save(tmp_path / "first")
    place = f"file:{tmp_path / 'first'}"
    ways = [timm_tuned.backbone, Tuned.load(tmp_path / "first").backbone, load(place)]
    assert [one.card.tuned_from for one in ways] == ["timm/mobilenetv2_035"] * 3
    assert load(f"{place}?arch=timm/mobilenetv2_035").card.tuned_from == "timm/mobilenetv2_035"
    again = [tune(image_task(), one, method="fine-tune", **QUICK) for one in (*ways, place)]
    assert [one.model for one in again] == ["timm/mobilenetv2_035"] * 4
