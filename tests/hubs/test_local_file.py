from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError
from hubscout.hubs import list_models, load, prepare_torchvision

prepare_torchvision()
timm = pytest.importorskip("timm")


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(0)
    model = timm.create_model("mobilenetv2_035", num_classes=13, pad_type="same").eval()
    # As checkpoints are often stored: large tensors in half precision, counters left out.
    state = {k: v.half() if v.ndim > 1 else v for k, v in model.state_dict().items() if v.is_floating_point()}
    save_file(state, tmp_path / "w.safetensors")
    model.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    return model, tmp_path / "w.safetensors"


def test_weights_with_their_architecture_named(weights):
    model, path = weights
    backbone = load(f"file:{path}?arch=timm/mobilenetv2_035&pad_type=same&mean=0.5&std=0.5&input_size=96")
    pixels = torch.randn(2, 3, 96, 96)
    with torch.inference_mode():
        torch.testing.assert_close(backbone({"pixel_values": pixels}).logits, model(pixels))
    assert backbone.card.source_classes == 13
    assert backbone.module.conv_stem.weight.dtype == torch.float32
    assert backbone.preprocessing.config.std == (0.5, 0.5, 0.5)
    assert backbone.preprocessing.config.input_size == (3, 96, 96)


@pytest.mark.parametrize("extension", ["pth", "pt", "bin"])
def test_torch_files(weights, tmp_path, extension):
    model, _ = weights
    torch.save({"state_dict": model.state_dict()}, tmp_path / f"w.{extension}")
    backbone = load(f"file:{tmp_path}/w.{extension}?arch=timm/mobilenetv2_035&pad_type=same")
    assert backbone.card.source_classes == 13


@pytest.mark.parametrize("attribute", ["model.", "net.", "backbone."])
def test_a_network_that_a_class_had_in_an_attribute(weights, tmp_path, attribute):
    state = weights[0].state_dict()
    torch.save({"state_dict": {attribute + name: value for name, value in state.items()}}, tmp_path / "w.ckpt")
    backbone = load(f"file:{tmp_path / 'w.ckpt'}?arch=timm/mobilenetv2_035&pad_type=same")
    assert torch.equal(backbone.module.state_dict()["conv_stem.weight"], state["conv_stem.weight"])


def test_a_checkpoint_without_a_head(weights, tmp_path):
    model, _ = weights
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("classifier")}
    torch.save(state, tmp_path / "w.pth")
    backbone = load(f"file:{tmp_path / 'w.pth'}?arch=timm/mobilenetv2_035&pad_type=same")
    assert backbone.card.source_classes is None
    assert backbone({"pixel_values": torch.randn(1, 3, 64, 64)}).logits is None


def test_torchvision_architectures(tmp_path):
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.squeezenet1_1(num_classes=5).eval()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    backbone = load(f"file:{tmp_path / 'w.pth'}?arch=torchvision/squeezenet1_1")
    pixels = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        output = backbone({"pixel_values": pixels})
        torch.testing.assert_close(output.logits, model(pixels))
        torch.testing.assert_close(output.features, model.features(pixels).mean((2, 3)))


def test_a_checkpoint_of_another_architecture_lists_what_differs(weights):
    _, path = weights
    with pytest.raises(CheckpointError, match=r"do not fit EfficientNet\. \d+ shapes differ: conv_stem\.weight is"):
        load(f"file:{path}?arch=timm/mobilenetv2_100")
    with pytest.raises(CheckpointError, match="parameters are missing"):
        load(f"file:{path}?arch=timm/resnet10t")


def test_what_can_go_wrong(weights, tmp_path):
    _, path = weights
    with pytest.raises(InputError, match=r"needs its architecture: add \?arch=timm/NAME"):
        load(f"file:{path}")
    with pytest.raises(InputError, match="arch must be"):
        load(f"file:{path}?arch=hf/bert")
    with pytest.raises(ModelNotFoundError, match="no file or folder"):
        load("file:/no/such/file")
    with pytest.raises(ModelNotFoundError, match="Did you mean 'timm/mobilenetv2_035'"):
        load(f"file:{path}?arch=timm/mobilenetv2_35")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="not a folder of timm, transformers or sentence-transformers"):
        load(f"file:{tmp_path / 'folder'}")
    (tmp_path / "folder" / "config.json").write_text("{cut")
    with pytest.raises(CheckpointError, match="not JSON"):
        load(f"file:{tmp_path / 'folder'}")
    (tmp_path / "folder" / "config.json").write_text(json.dumps({"architecture": "resnet10t"}))
    with pytest.raises(ModelNotFoundError, match="No weights"):
        load(f"file:{tmp_path / 'folder'}")
    (tmp_path / "folder" / "config.json").unlink()
    (tmp_path / "folder" / "hubscout.json").write_text("{cut")
    with pytest.raises(CheckpointError, match=r"hubscout\.json is not JSON"):
        load(f"file:{tmp_path / 'folder'}")


@pytest.mark.shared
def test_real_weights_recognise_a_photograph(shared):
    """The temple that scikit-learn ships is a palace (698) to ImageNet; this head has a background class before it."""
    from sklearn.datasets import load_sample_image

    backbone = load(
        f"file:{shared}/hub/weights/mobilenetv2_coral_in1k.safetensors"
        "?arch=timm/mobilenetv2_100&pad_type=same&mean=0.5&std=0.5"
    )
    assert backbone.card.source_classes == 1001
    assert backbone.card.params == 3_506_153
    batch = backbone.preprocessing.collate([backbone.preprocessing(load_sample_image("china.jpg"))])
    with torch.no_grad():
        assert 1 + 698 in backbone(batch).logits.topk(3).indices


def test_a_folder_of_models_is_listed(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    (tmp_path / "net.safetensors").write_bytes(b"")
    (tmp_path / "readme.txt").write_text("x")
    found = [entry.identifier for entry in list_models(f"file:{tmp_path}/*")]
    assert found == [f"file:{tmp_path / name}" for name in ("first", "net.safetensors", "second")]
    assert list_models(f"file:{tmp_path}/none*") == []
