"""A tuned model must give, opened by its library, the logits that it gave before it was saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hubscout.hubs import load

TEXTS = ["The cat sits on the mat.", "Shares fell."]
NAMES = ["no", "maybe", "yes"]


def run(backbone, samples):
    with torch.no_grad():
        return backbone(backbone.preprocessing.collate([backbone.preprocessing(s) for s in samples]))


def save(backbone, folder, kind):
    torch.manual_seed(0)
    head = torch.nn.Linear(backbone.card.feature_dim, 3)
    backbone.save(folder, head=head, target_names=NAMES, kind=kind)
    return head


@pytest.mark.parametrize("name", ["bert", "gpt2", "bert_classifier"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max"])
def test_texts_become_a_sentence_encoder_that_ends_in_the_head(name, pooling, tmp_path, request):
    from sentence_transformers import SentenceTransformer

    backbone = load(f"file:{request.getfixturevalue(name)}?pooling={pooling}")
    head = save(backbone, tmp_path, "classification")
    with torch.no_grad():
        expected = head(run(backbone, TEXTS).features)
    again = load(f"file:{tmp_path}")
    torch.testing.assert_close(run(again, TEXTS).logits, expected, atol=1e-4, rtol=1e-3)
    assert again.card.source_classes == 3
    if name != "gpt2":  # whose tokenizer has no padding token for batches
        found = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-3)
    assert json.loads((tmp_path / "hubscout.json").read_text())["target_names"] == NAMES


def test_words_become_a_token_classifier(bert, tmp_path):
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    backbone = load(f"file:{bert}")
    head = save(backbone, tmp_path, "tagging")
    words = ["EU", "rejects", "German", "call"]
    with torch.no_grad():
        expected = head(run(backbone, [words]).features)
        model = AutoModelForTokenClassification.from_pretrained(tmp_path)
        tokens = AutoTokenizer.from_pretrained(tmp_path)(words, is_split_into_words=True, return_tensors="pt")
        logits = model(**tokens).logits[0]
    first = [tokens.word_ids().index(word) for word in range(len(words))]
    torch.testing.assert_close(logits[first], expected, atol=1e-5, rtol=1e-4)
    assert model.config.id2label == dict(enumerate(NAMES))
    torch.testing.assert_close(run(load(f"file:{tmp_path}"), [words]).logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["vit", "convnext"])
def test_images_become_an_image_classifier(name, tmp_path, image, request):
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    backbone = load(f"file:{request.getfixturevalue(name)}")
    head = save(backbone, tmp_path, "classification")
    with torch.no_grad():
        expected = head(run(backbone, [image]).features)
        pixels = AutoImageProcessor.from_pretrained(tmp_path)(image, return_tensors="pt")
        found = AutoModelForImageClassification.from_pretrained(tmp_path)(**pixels).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(run(load(f"file:{tmp_path}"), [image]).logits, expected, atol=1e-5, rtol=1e-4)


def test_sounds_keep_their_head_beside_them(wav2vec2, tmp_path):
    backbone = load(f"file:{wav2vec2}")
    head = save(backbone, tmp_path, "classification")
    sound = {"array": np.random.default_rng(0).normal(size=4000).astype(np.float32), "sampling_rate": 16_000}
    with torch.no_grad():
        expected = head(run(backbone, [sound]).features)
    torch.testing.assert_close(run(load(f"file:{tmp_path}"), [sound]).logits, expected, atol=1e-5, rtol=1e-4)
