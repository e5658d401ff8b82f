from __future__ import annotations

import pytest
import torch
from hub_models import run

from hubscout.errors import InputError, ModelNotFoundError
from hubscout.hubs import list_models, load, prepare_torchvision

prepare_torchvision()
torchvision = pytest.importorskip("torchvision")


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


@pytest.mark.parametrize("option", ["weights", "weights_backbone", "name", "progress"])
def test_options_that_lead_to_other_weights_are_refused(option):
    with pytest.raises(InputError, match=rf"{option}.*torchvision/NAME\.WEIGHTS.*file:PATH\?arch=torchvision/resnet18"):
        load(f"torchvision/resnet18?pretrained=false&{option}=DEFAULT")
