"""Hidden states of transformers become features, logits and layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hub_models import run

from hubscout.errors import InputError
from hubscout.hubs import cost, load

TEXTS = ["The cat sits on the mat.", "Shares fell.", ""]


WORDS = [["EU", "rejects", "German", "call"], ["cat"], ["the"] * 40]


@torch.inference_mode()
def hidden_states(folder: Path, text: str, pair: str | None = None):
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(folder)(text, pair, return_tensors="pt")
    if "T5" in (folder / "config.json").read_text():
        tokens.pop("token_type_ids")
        return AutoModel.from_pretrained(folder).encoder(**tokens, output_hidden_states=True)
    return AutoModel.from_pretrained(folder)(**tokens, output_hidden_states=True)


@pytest.mark.parametrize(("name", "pooling"), [("bert", "mean"), ("gpt2", "last"), ("t5", "mean")])
def test_text_features_are_pooled_hidden_states(name, pooling, request):
    folder = request.getfixturevalue(name)
    backbone = load(f"file:{folder}")
    output = run(backbone, TEXTS[:2], backbone.layer_names)
    for row, text in enumerate(TEXTS[:2]):
        states = hidden_states(folder, text)
        expected = states.last_hidden_state[0, -1] if pooling == "last" else states.last_hidden_state[0].mean(0)
        torch.testing.assert_close(output.features[row], expected, atol=1e-5, rtol=1e-4)
        for index, layer in enumerate(states.hidden_states):
            pooled = layer[0, -1] if pooling == "last" else layer[0].mean(0)
            torch.testing.assert_close(output.layers[f"layer.{index}"][row], pooled, atol=1e-5, rtol=1e-4)
    assert backbone.card.feature_dim == output.features.shape[1] == 32
    assert backbone.card.modalities == ("text", "text-pair", "tokens")
    assert output.logits is None
    assert backbone.card.flops > 0


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_operations_are_counted_without_a_look_at_the_weights(name, request):
    backbone = load(f"file:{request.getfixturevalue(name)}")
    counted = backbone.card.feature_dim, backbone.card.flops
    assert counted == cost._count_in_a_real_pass(backbone, backbone._example())
    assert counted == cost._count_without_norms(backbone, backbone._example())


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "last"])
def test_padding_and_empty_texts_change_nothing(name, pooling, request):
    backbone = load(f"file:{request.getfixturevalue(name)}?pooling={pooling}")
    together = run(backbone, TEXTS).features
    alone = torch.cat([run(backbone, [text]).features for text in TEXTS])
    assert together.isfinite().all()
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_source_head_gives_logits_in_the_same_pass(bert_classifier):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    backbone = load(f"file:{bert_classifier}")
    output = run(backbone, TEXTS[:2])
    tokens = AutoTokenizer.from_pretrained(bert_classifier)(TEXTS[:2], padding=True, return_tensors="pt")
    model = AutoModelForSequenceClassification.from_pretrained(bert_classifier)
    with torch.inference_mode():
        torch.testing.assert_close(output.logits, model(**tokens).logits, atol=1e-5, rtol=1e-4)
    assert backbone.card.source_classes == 5
    assert run(load(f"file:{bert_classifier}?head=false"), TEXTS[:2]).logits is None


def test_pairs_cross_and_siamese(bert):
    pair = ("The cat sits.", "A kitten is lying on a rug.")
    cross = run(load(f"file:{bert}"), [pair]).features[0]
    torch.testing.assert_close(cross, hidden_states(bert, *pair).last_hidden_state[0].mean(0), atol=1e-5, rtol=1e-4)
    siamese = load(f"file:{bert}?pairs=siamese")
    u, v = run(siamese, list(pair)).features
    torch.testing.assert_close(run(siamese, [pair]).features[0], torch.cat([u, v, (u - v).abs(), u * v]))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_words_have_one_row_each_in_reading_order(name, request):
    backbone = load(f"file:{request.getfixturevalue(name)}")
    output = run(backbone, WORDS, ("layer.1",))
    assert output.features.shape == output.layers["layer.1"].shape == (4 + 1 + 40, 32)
    alone = torch.cat([run(backbone, [words]).features for words in WORDS])
    torch.testing.assert_close(output.features, alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("words", ["first", "last", "mean"])
def test_a_word_is_its_first_token_its_last_or_their_mean(name, words, request):
    backbone = load(f"file:{request.getfixturevalue(name)}?words={words}")
    backend = backbone.preprocessing.tokenizer.backend_tokenizer
    sentence = ["unbelievable", "cat", "rejections"]
    spaced = [f" {word}" if place and name == "gpt2" else word for place, word in enumerate(sentence)]
    word_of_token = backend.encode(spaced, is_pretokenized=True).word_ids
    assert max(word_of_token.count(place) for place in range(3)) > 1
    ids = torch.tensor([backend.encode(spaced, is_pretokenized=True).ids])
    with torch.inference_mode():
        tokens = backbone.module(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
    expected = []
    for place in range(3):
        own = tokens[[position for position, word in enumerate(word_of_token) if word == place]]
        expected.append({"first": own[0], "last": own[-1], "mean": own.mean(0)}[words])
    output = run(backbone, [["cat"], sentence], ("mean",))
    torch.testing.assert_close(output.features[1:], torch.stack(expected), atol=1e-5, rtol=1e-4)
    assert output.layers["mean"].shape == (4, 32)


def test_the_mean_over_layers_leaves_the_embeddings_out(bert):
    backbone = load(f"file:{bert}")
    output = run(backbone, TEXTS, (*backbone.layer_names, "mean"))
    blocks = [output.layers[name] for name in backbone.layer_names[1:]]
    assert len(blocks) > 1
    torch.testing.assert_close(output.layers["mean"], torch.stack(blocks).mean(0), atol=1e-6, rtol=1e-5)
    siamese = load(f"file:{bert}?pairs=siamese")
    u, v = run(siamese, TEXTS[:2], ("mean",)).layers["mean"]
    pair = run(siamese, [tuple(TEXTS[:2])], ("mean",)).layers["mean"][0]
    torch.testing.assert_close(pair, torch.cat([u, v, (u - v).abs(), u * v]))


def test_layers_of_different_shapes_have_no_mean(convnext, image):
    backbone = load(f"file:{convnext}")
    assert not backbone.averages_layers
    with pytest.raises(InputError, match="no mean over layers"):
        run(backbone, [image], ("mean",))


def test_image_transformer_by_class_token_with_its_head(vit, image):
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    backbone = load(f"file:{vit}")
    output = run(backbone, [image, image.rotate(90)], backbone.layer_names)
    model = AutoModelForImageClassification.from_pretrained(vit)
    pixels = AutoImageProcessor.from_pretrained(vit)([image, image.rotate(90)], return_tensors="pt")
    with torch.inference_mode():
        torch.testing.assert_close(output.logits, model(**pixels).logits, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(output.features, model.vit(**pixels).last_hidden_state[:, 0], atol=1e-5, rtol=1e-4)
    assert list(output.layers) == ["layer.0", "layer.1", "layer.2"]
    assert backbone.card.source_classes == 7
    augmented = backbone.preprocessing.augmented()
    batch = augmented.collate([augmented(image), augmented(image)])
    assert batch["pixel_values"].shape == (2, 3, 32, 32)
    assert not torch.equal(*batch["pixel_values"])


def test_maps_by_pooler(convnext, image):
    from transformers import AutoImageProcessor, AutoModel

    output = run(load(f"file:{convnext}"), [image])
    pixels = AutoImageProcessor.from_pretrained(convnext)([image], return_tensors="pt")
    with torch.inference_mode():
        torch.testing.assert_close(output.features, AutoModel.from_pretrained(convnext)(**pixels).pooler_output)


@pytest.mark.parametrize("name", ["wav2vec2", "whisper"])
def test_audio_features_do_not_depend_on_padding(name, request):
    backbone = load(f"file:{request.getfixturevalue(name)}")
    generator = np.random.default_rng(0)
    sounds = [{"array": generator.normal(size=n).astype(np.float32), "sampling_rate": 16_000} for n in (3000, 9000)]
    together = run(backbone, sounds, backbone.layer_names)
    alone = torch.cat([run(backbone, [sound]).features for sound in sounds])
    torch.testing.assert_close(together.features, alone, atol=1e-4, rtol=1e-3)
    assert together.features.shape == (2, 32)
    assert backbone.card.modalities == ("audio",)
