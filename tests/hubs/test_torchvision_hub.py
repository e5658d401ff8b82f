from __future__ import annotations

import pytest
import torch

from hubscout.errors import InputError, ModelNotFoundError
from hubscout.hubs import list_models, load, prepare_torchvision

prepare_torchvision()
torchvision = pytest.importorskip("torchvision")


def run(backbone, images, layers=()):
    with torch.no_grad():
        return backbone(backbone.preprocessing.collate([backbone.preprocessing(image) for image in images]), layers)


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet18", 512), ("squeezenet1_1", 512), ("mobilenet_v3_small", 1024), ("vit_b_32", 768), ("googlenet", 1024)],
)
def test_features_are_what_the_last_layer_sees(name, width, image):
    torch.manual_seed(0)
    backbone = load(f"torchvision/{name}?pretrained=false")
    output = run(backbone, [image], backbone.layer_names)
    assert output.features.shape == (1, width)
    assert output.logits.shape == (1, 1000)
    assert backbone.card.feature_dim == width
    assert backbone.card.source_classes == 1000
    assert all(layer.shape[0] == 1 and layer.ndim == 2 for layer in output.layers.values())
    head = backbone.module.get_submodule(backbone.head)
    if isinstance(head, torch.nn.Linear):
        with torch.no_grad():
            torch.testing.assert_close(head(output.features), output.logits)


def test_images_are_prepared_as_the_weights_say(image):
    backbone = load("torchvision/resnet18?pretrained=false")
    theirs = torchvision.models.ResNet18_Weights.DEFAULT.transforms()(image)
    with torch.no_grad():
        expected = backbone({"pixel_values": theirs[None]}).features
    # The one resizes tensors, the other images: a difference of rounding.
    torch.testing.assert_close(run(backbone, [image]).features, expected, atol=0.02, rtol=0.02)


def test_published_weights_are_read_from_the_local_cache(tmp_path, monkeypatch, image):
    """What torch.hub would have downloaded, placed where it keeps it."""
    torch.manual_seed(0)
    model = torchvision.models.shufflenet_v2_x0_5().eval()
    weights = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    torch.save(model.state_dict(), tmp_path / "checkpoints" / weights.url.rpartition("/")[2])
    backbone = load("torchvision/shufflenet_v2_x0_5")
    pixels = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(backbone({"pixel_values": pixels}).logits, model(pixels))
    assert backbone.card.source_data == "ImageNet-1k"
    assert backbone.card.source_accuracy == pytest.approx(0.60552)
    listed = list_models("torchvision/shufflenet*")
    assert [entry.identifier for entry in listed] == ["torchvision/shufflenet_v2_x0_5.IMAGENET1K_V1"]
    assert listed[0].params == 1_366_792
    assert listed[0].on_this_machine
    assert "cannot be reached" in listed.notes[0]


def test_what_can_go_wrong():
    with pytest.raises(ModelNotFoundError, match="Did you mean 'torchvision/resnet50'"):
        load("torchvision/resnet5O")
    with pytest.raises(ModelNotFoundError, match=r"no weights .V9.*IMAGENET1K_V2"):
        load("torchvision/resnet50.V9")


def test_a_new_head_keeps_its_logits(tmp_path, image):
    torch.manual_seed(0)
    backbone = load("torchvision/squeezenet1_1?pretrained=false")
    head = torch.nn.Linear(512, 2)
    backbone.save(tmp_path, head=head, target_names=["a", "b"], kind="classification")
    with torch.no_grad():
        expected = head(run(backbone, [image]).features)
    again = load(f"file:{tmp_path}?arch=torchvision/squeezenet1_1")
    torch.testing.assert_close(run(again, [image]).logits, expected)


@pytest.mark.parametrize("option", ["weights", "weights_backbone", "name", "progress"])
def test_options_that_lead_to_other_weights_are_refused(option):
    with pytest.raises(InputError, match=rf"{option}.*torchvision/NAME\.WEIGHTS.*file:PATH\?arch=torchvision/resnet18"):
        load(f"torchvision/resnet18?pretrained=false&{option}=DEFAULT")


@pytest.mark.parametrize(
    ("name", "widths"), [("swin_t", {"features.1": 96, "features.7": 768}), ("maxvit_t", {"blocks.3": 512})]
)
def test_layers_are_averaged_over_positions_wherever_the_channels_are(name, widths):
    torch.manual_seed(0)
    backbone = load(f"torchvision/{name}?pretrained=false")
    pixels = torch.randn(1, *backbone.config.input_size)
    with torch.inference_mode():
        layers = backbone({"pixel_values": pixels}, tuple(widths)).layers
    assert {layer: values.shape[1] for layer, values in layers.items()} == widths
