from __future__ import annotations

import pytest
import torch
from hub_models import run
from torch import nn

from hubscout.errors import CheckpointError, InputError, ModelNotFoundError
from hubscout.hubs import load

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Classifier(nn.Module):
    def __init__(self, softmax: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(8, 5)
        self.softmax = softmax

    def forward(self, x):
        logits = self.fc(self.body(x))
        return logits.softmax(1) if self.softmax else logits


def export(module: nn.Module, path, example, **options):
    torch.onnx.export(module.eval(), example, str(path), dynamo=True, external_data=False, verbose=False, **options)


@pytest.mark.parametrize("softmax", [False, True])
def test_the_last_linear_layer_is_the_source_head(tmp_path, image, softmax):
    torch.manual_seed(0)
    module = Classifier(softmax)
    batch = torch.export.Dim("batch")
    export(module, tmp_path / "m.onnx", (torch.zeros(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    backbone = load(f"onnx:{tmp_path / 'm.onnx'}?mean=0.5&std=0.5")
    assert backbone.module is None
    assert backbone.card.source_classes == 5
    assert backbone.card.feature_dim == 8
    assert backbone.card.params >= sum(p.numel() for p in module.parameters())
    pixels = torch.randn(3, 3, 32, 32)
    output = backbone({"pixel_values": pixels})
    with torch.no_grad():
        torch.testing.assert_close(output.features, module.body(pixels), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(output.logits, module.fc(module.body(pixels)), atol=1e-5, rtol=1e-4)
    assert run(backbone, [image]).features.shape == (1, 8)
    assert backbone.preprocessing.config.input_size == (3, 32, 32)
    with pytest.raises(InputError, match="none to tap"):
        backbone({"pixel_values": pixels}, ("body",))


def test_a_network_without_a_head_gives_its_output(tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU())
    export(module, tmp_path / "m.onnx", (torch.zeros(1, 3, 32, 32),))
    backbone = load(f"file:{tmp_path / 'm.onnx'}")
    pixels = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone({"pixel_values": pixels}).features, module(pixels).mean((2, 3)))
    assert backbone.card.source_classes is None


def test_a_text_encoder_with_its_tokenizer_beside_it(bert, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(bert, add_pooling_layer=False, attn_implementation="eager")

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    example = (torch.ones(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long))
    n, length = torch.export.Dim("n"), torch.export.Dim("length", max=24)
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["tokens"]}
    export(Encoder(), tmp_path / "m.onnx", example, dynamic_shapes=({0: n, 1: length}, {0: n, 1: length}), **names)
    with pytest.raises(ModelNotFoundError, match="tokenizer=PATH"):
        load(f"onnx:{tmp_path / 'm.onnx'}")
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path)
    ours, reference = load(f"onnx:{tmp_path / 'm.onnx'}"), load(f"file:{bert}")
    texts = ["The cat sits on the mat.", "Shares fell."]
    with torch.no_grad():
        torch.testing.assert_close(run(ours, texts).features, run(reference, texts).features, atol=1e-4, rtol=1e-3)
        words = [["EU", "rejects", "German"], ["cat", "sits"]]
        torch.testing.assert_close(run(ours, words).features, run(reference, words).features, atol=1e-4, rtol=1e-3)
    assert ours.card.modalities == ("text", "text-pair", "tokens")


def test_what_can_go_wrong(tmp_path):
    with pytest.raises(ModelNotFoundError, match="no ONNX file"):
        load("onnx:/no/such.onnx")
    (tmp_path / "m.onnx").write_bytes(b"not a graph")
    with pytest.raises(CheckpointError, match="not a valid ONNX model"):
        load(f"onnx:{tmp_path / 'm.onnx'}")
    export(nn.Linear(4, 3), tmp_path / "m.onnx", (torch.zeros(1, 4),))
    with pytest.raises(InputError, match="no tensor 'nowhere'"):
        load(f"onnx:{tmp_path / 'm.onnx'}?features=nowhere")
    with pytest.raises(InputError, match="unknown option"):
        load(f"onnx:{tmp_path / 'm.onnx'}?fetures=x")
