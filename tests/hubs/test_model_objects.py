"""Models in memory: each opens as its library's files do, and the object that was given stays as it was."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hubscout.errors import InputError, ModelNotFoundError
from hubscout.hubs import load
from hubscout.hubs.model_objects import register


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, inputs: Any) -> Any:
        return self.layer(inputs).relu()


def test_a_module_is_copied_and_stays_in_its_mode() -> None:
    network = Small().double().train()
    backbone = load(register(network, "mine"))
    assert (backbone.card.identifier, backbone.card.feature_dim) == ("memory:mine", 4)
    assert backbone.card.modalities == ("array",)
    assert network.training
    assert network.layer.weight.dtype == torch.float64
    assert backbone.module is not network
    assert backbone.card.code_fingerprint


def test_names_are_found_in_the_model_and_kept_apart() -> None:
    first, second = Small(), Small()
    one = register(first)
    two = register(second, taken={one})
    assert (one, two) == ("memory:Small", "memory:Small-2")
    assert load(one).card.weights_fingerprint != load(two).card.weights_fingerprint


def test_a_model_that_is_gone_says_so() -> None:
    network = Small()
    name = register(network, "gone")
    del network
    gc.collect()
    with pytest.raises(ModelNotFoundError, match="Give the model itself"):
        load(name)
    with pytest.raises(ModelNotFoundError, match="Give the model itself"):
        load("memory:never-there")


def test_what_is_no_model() -> None:
    with pytest.raises(InputError, match="int is not a model"):
        register(3)
    network = Small()
    with pytest.raises(InputError, match="takes no options"):
        load(register(network) + "?input_size=3")


def test_a_model_of_timm_is_prepared_as_its_configuration_says() -> None:
    timm = pytest.importorskip("timm")
    network = timm.create_model("mobilenetv3_small_050", pretrained=False)
    backbone = load(register(network))
    assert backbone.card.identifier == "memory:mobilenetv3_small_050"
    assert backbone.card.modalities == ("image",)
    expected = load("timm/mobilenetv3_small_050?pretrained=false")
    assert backbone.preprocessing.key == expected.preprocessing.key


def test_a_classifier_of_torchvision() -> None:
    models = pytest.importorskip("torchvision.models")
    network = models.squeezenet1_0(weights=None)
    assert load(register(network)).card.source_classes == 1000


def test_a_model_of_transformers_finds_its_tokenizer_or_is_given_one(bert: Path) -> None:
    transformers = pytest.importorskip("transformers")
    network = transformers.AutoModel.from_pretrained(bert, add_pooling_layer=False)
    expected = load(f"file:{bert}")
    texts = ["the cat sits on the mat", "shares fell"]

    def features(backbone: Any) -> torch.Tensor:
        samples = [backbone.preprocessing(text) for text in texts]
        with torch.no_grad():
            return backbone(backbone.preprocessing.collate(samples)).features

    torch.testing.assert_close(features(load(register(network))), features(expected))
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    pair = (network, tokenizer)
    network.config._name_or_path = network.name_or_path = ""
    torch.testing.assert_close(features(load(register(pair, "pair"))), features(expected))
    with pytest.raises(InputError, match=r"\(model, tokenizer\)"):
        load(register(network))


def test_a_sentence_transformer(bert: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(bert), device="cpu")
    assert register(encoder) == f"memory:{bert.name}"
    backbone = load(register(encoder, "mine"))
    batch = backbone.preprocessing.collate([backbone.preprocessing("the cat sits on the mat")])
    with torch.no_grad():
        found = backbone(batch).features
    expected = encoder.encode("the cat sits on the mat", convert_to_tensor=True)
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)
