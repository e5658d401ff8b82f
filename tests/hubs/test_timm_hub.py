from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError, UnknownHubError
from hubscout.hubs import list_models, load, prepare_torchvision

prepare_torchvision()
timm = pytest.importorskip("timm")


def run(backbone, images, layers=()):
    batch = backbone.preprocessing.collate([backbone.preprocessing(image) for image in images])
    with torch.inference_mode():
        return backbone(batch, layers)


def save_hub_folder(architecture: str, folder: Path, **arguments) -> torch.nn.Module:
    torch.manual_seed(0)
    model = timm.create_model(architecture, **arguments).eval()
    from timm.models import save_for_hf

    save_for_hf(model, str(folder), model_args=arguments, safe_serialization=True)
    return model


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


def test_operations_are_counted_without_running(image):
    # He et al. (2016), table 1: 1.8 billion multiply-adds for 18 layers at 224 pixels.
    assert load("timm/resnet18?pretrained=false").card.flops == pytest.approx(2 * 1.81e9, rel=0.02)


def test_a_folder_that_timm_saved(tmp_path, image):
    model = save_hub_folder("mobilenetv2_035", tmp_path, num_classes=11, pad_type="same")
    backbone = load(f"file:{tmp_path}")
    pixels = torch.randn(2, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(backbone({"pixel_values": pixels}).logits, model(pixels))
    assert backbone.card.source_classes == 11
    assert backbone.card.identifier == f"file:{tmp_path}"
    assert load(backbone.card.identifier).card == backbone.card


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

    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=model))
    with torch.inference_mode():
        torch.testing.assert_close(model(transform(image)[None]), expected, atol=1e-4, rtol=1e-3)
    assert model.pretrained_cfg["label_names"] == ["cat", "dog", "owl"]

    again = load(f"file:{tmp_path}")
    torch.testing.assert_close(run(again, [image]).logits, expected)
    assert again.card.source_classes == 3
    assert again.preprocessing.config.input_size == (3, 64, 64)


def test_the_weights_of_a_name_are_never_random():
    with pytest.raises(ModelNotFoundError, match="not in the local cache, and the hub is switched off"):
        load("timm/resnet10t.c3_in1k")
    with pytest.raises(ModelNotFoundError, match=r"file:PATH"):
        load("timm/resnet10t")


def test_names_that_timm_does_not_have():
    with pytest.raises(ModelNotFoundError, match=r"Did you mean 'timm/resnet50'"):
        load("timm/resnett50")
    with pytest.raises(ModelNotFoundError, match=r"no weights 'a9_in1k'.*a1_in1k"):
        load("timm/resnet50.a9_in1k")
    with pytest.raises(UnknownHubError, match="Did you mean 'timm'"):
        load("tim/resnet50")


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


def test_listing_offline_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = list_models("timm/mobilenetv2*")
    assert "switched off" in found.notes[0]
    assert all(entry.on_this_machine for entry in found)


def test_listing_by_size(monkeypatch):
    from hubscout.hubs import timm_hub

    monkeypatch.setattr(timm_hub, "hub_silence", lambda: None)
    monkeypatch.setattr(timm_hub, "downloads_of_owner", lambda owner: {f"{owner}/mobilenetv2_050.lamb_in1k": 42})
    found = list_models("timm/mobilenetv2_*", max_params=3_000_000)
    names = {entry.identifier: entry for entry in found}
    assert names["timm/mobilenetv2_050.lamb_in1k"].params == 1_968_680
    assert names["timm/mobilenetv2_050.lamb_in1k"].source_data == "ImageNet-1k"
    assert names["timm/mobilenetv2_050.lamb_in1k"].licence == "apache-2.0"
    assert names["timm/mobilenetv2_050.lamb_in1k"].downloads == 42
    assert "timm/mobilenetv2_100.ra_in1k" not in names
    assert not any(entry.params > 3_000_000 for entry in found)


def test_options_that_the_architecture_does_not_take(tmp_path):
    save_hub_folder("mobilenetv2_035", tmp_path)
    with pytest.raises(CheckpointError, match="cannot build"):
        load(f"file:{tmp_path}?no_such_option=3")


def test_a_transposed_image_array_is_the_same_image(image):
    backbone = load("timm/mobilenetv2_035?pretrained=false")
    torch.testing.assert_close(run(backbone, [image]).features, run(backbone, [np.asarray(image)]).features)


@pytest.mark.parametrize(
    "option",
    ["checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "features_only", "file", "url"],
)
def test_options_that_lead_to_other_weights_are_refused(tmp_path, option):
    model = save_hub_folder("resnet10t", tmp_path)
    with pytest.raises(InputError, match=rf"{option}.*file:PATH\?arch=timm/resnet10t"):
        load(f"timm/resnet10t?pretrained=false&{option}={tmp_path / 'model.safetensors'}")
    # What a folder says of its own network passes by no rule either.
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_args": {option: "/etc/passwd"}}))
    with pytest.raises(CheckpointError, match=rf"config\.json.*{option}"):
        load(f"file:{tmp_path}")
    with pytest.raises(InputError, match=option):
        load(f"file:{tmp_path / 'model.safetensors'}?arch=timm/resnet10t&{option}=/etc/passwd")
    assert model is not None


def test_a_folder_is_named_as_a_file_and_not_through_timm(tmp_path):
    save_hub_folder("resnet10t", tmp_path)
    with pytest.raises(InputError, match=rf"file:{tmp_path}"):
        load(f"timm/local-dir:{tmp_path}")
    other = tmp_path / "other"
    save_hub_folder("resnet10t", other)
    config = json.loads((other / "config.json").read_text())
    for architecture in (f"local-dir:{tmp_path}", "hf-hub:evil/code", "hf_hub:evil/code"):
        (other / "config.json").write_text(json.dumps({**config, "architecture": architecture}))
        with pytest.raises((InputError, ModelNotFoundError), match=r"file:|has no model"):
            load(f"file:{other}")
