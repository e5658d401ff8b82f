from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hub_models import run, save_hub_folder

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError, UnknownHubError
from hubscout.hubs import list_models, load, prepare_torchvision

prepare_torchvision()
timm = pytest.importorskip("timm")


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
    (rexnet,) = list_models("timm/rexnet_100.nav_in1k")
    assert rexnet.licence == "mit"
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
