"""A backbone with a new head is saved so that its library opens it again."""

from __future__ import annotations

import pytest
import torch
from hub_models import run

from hubscout.hubs import load

timm = pytest.importorskip("timm")


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


def test_a_new_head_keeps_its_logits(tmp_path, image):
    torch.manual_seed(0)
    backbone = load("torchvision/squeezenet1_1?pretrained=false")
    head = torch.nn.Linear(512, 2)
    backbone.save(tmp_path, head=head, target_names=["a", "b"], kind="classification")
    with torch.no_grad():
        expected = head(run(backbone, [image]).features)
    again = load(f"file:{tmp_path}?arch=torchvision/squeezenet1_1")
    torch.testing.assert_close(run(again, [image]).logits, expected)
