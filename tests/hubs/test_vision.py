"""Networks over images: features, logits and layers in one pass."""

from __future__ import annotations

import pytest
import torch
from hub_models import run, save_hub_folder
from packaging import version

from hubscout.errors import InputError
from hubscout.hubs import load

timm = pytest.importorskip("timm")


@pytest.mark.parametrize(
    "architecture",
    ["resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "vgg11"],
)
def test_features_and_logits_are_those_of_the_two_halves(architecture, image):
    torch.manual_seed(0)
    backbone = load(f"timm/{architecture}?pretrained=false")
    model = backbone.module
    output = run(backbone, [image, image.rotate(180)], backbone.layer_names)
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    batch = torch.stack([transform(image), transform(image.rotate(180))])
    with torch.inference_mode():
        expected = model.forward_head(model.forward_features(batch), pre_logits=True)
        torch.testing.assert_close(output.features, expected, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(output.logits, model(batch), atol=1e-4, rtol=1e-3)
    assert backbone.card.feature_dim == expected.shape[1] == model.head_hidden_size
    assert backbone.card.source_classes == 1000
    assert backbone.card.params == sum(p.numel() for p in model.parameters())
    assert len(output.layers) == len(model.feature_info)
    for info in model.feature_info:
        assert output.layers[info["module"]].shape == (2, info["num_chs"])


def test_layers_that_are_not_there(image):
    backbone = load("timm/resnet10t?pretrained=false")
    with pytest.raises(InputError, match=r"no layer 'layer9'.*layer4"):
        run(backbone, [image], ("layer9",))


def test_the_fingerprint_covers_weights_and_normalisation(tmp_path):
    save_hub_folder("mobilenetv2_035", tmp_path)
    prints = [
        load(f"file:{tmp_path}{options}").card.weights_fingerprint for options in ("", "", "?mean=0.5", "?std=0.5")
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_gradients_flow_and_mode_is_left_to_the_caller(image):
    backbone = load("timm/mobilenetv2_035?pretrained=false")
    assert not backbone.module.training
    backbone.module.train()
    batch = backbone.preprocessing.collate([backbone.preprocessing(image)] * 2)
    backbone(batch).features.sum().backward()
    assert backbone.module.training
    assert backbone.module.conv_stem.weight.grad.abs().sum() > 0


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


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_backbone_with_a_new_head_opens_in_timm(tmp_path, kind, image):
    torch.manual_seed(0)
    backbone = load("timm/mobilenetv2_035?pretrained=false&pad_type=same", mean=0.5, std=0.25, input_size=64)
    head = torch.nn.Linear(backbone.card.feature_dim, 3)
    before = backbone.module.state_dict()["classifier.weight"].clone()
    backbone.save(tmp_path, head=head, target_names=["cat", "dog", "owl"], kind=kind)
    assert torch.equal(backbone.module.state_dict()["classifier.weight"], before)
    with torch.inference_mode():
        expected = head(run(backbone, [image]).features)

    if version.parse(timm.__version__) >= version.parse("1.0.26"):  # older: all files are pickles
        model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
        transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
        with torch.inference_mode():
            torch.testing.assert_close(model(transform(image)[None]), expected, atol=1e-4, rtol=1e-3)
        assert model.pretrained_cfg["label_names"] == ["cat", "dog", "owl"]

    again = load(f"file:{tmp_path}")
    torch.testing.assert_close(run(again, [image]).logits, expected)
    assert again.card.source_classes == 3
    assert again.preprocessing.config.input_size == (3, 64, 64)


def test_a_new_head_keeps_its_logits(tmp_path, image):
    torch.manual_seed(0)
    backbone = load("torchvision/squeezenet1_1?pretrained=false")
    head = torch.nn.Linear(512, 2)
    backbone.save(tmp_path, head=head, target_names=["a", "b"], kind="classification")
    with torch.no_grad():
        expected = head(run(backbone, [image]).features)
    again = load(f"file:{tmp_path}?arch=torchvision/squeezenet1_1")
    torch.testing.assert_close(run(again, [image]).logits, expected)
