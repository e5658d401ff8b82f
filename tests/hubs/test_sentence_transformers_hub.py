from __future__ import annotations

import pytest
import torch
from hub_models import run

from hubscout.errors import InputError, ModelError, ModelNotFoundError
from hubscout.hubs import Identifier, load
from hubscout.hubs.sentence_transformers_hub import SentenceBackbone

sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = ["The cat sits on the mat.", "Shares fell.", ""]


@pytest.fixture(scope="module")
def encoder_folder(bert, tmp_path_factory):
    from sentence_transformers.models import Normalize, Pooling, Transformer

    network = Transformer(str(bert), max_seq_length=16)
    parts = [network, Pooling(32, pooling_mode="mean"), Normalize()]
    folder = tmp_path_factory.mktemp("encoder")
    sentence_transformers.SentenceTransformer(modules=parts, device="cpu").save(str(folder))
    return folder


def test_features_are_what_the_library_encodes(encoder_folder):
    backbone = load(f"file:{encoder_folder}")
    expected = sentence_transformers.SentenceTransformer(str(encoder_folder), device="cpu").encode(TEXTS)
    torch.testing.assert_close(run(backbone, TEXTS).features, torch.from_numpy(expected), atol=1e-5, rtol=1e-4)
    assert backbone.card.feature_dim == 32
    assert backbone.preprocessing.max_length == 16


def test_layers_come_with_the_same_features(encoder_folder):
    backbone = load(f"file:{encoder_folder}")
    plain, tapped = run(backbone, TEXTS), run(backbone, TEXTS, backbone.layer_names)
    torch.testing.assert_close(plain.features, tapped.features)
    last = tapped.layers["layer.2"]
    torch.testing.assert_close(torch.nn.functional.normalize(last), plain.features, atol=1e-5, rtol=1e-4)


def test_pairs_and_words(encoder_folder):
    backbone = load(f"file:{encoder_folder}")
    assert run(backbone, [("the cat", "a dog")], ("layer.1",)).layers["layer.1"].shape == (1, 128)
    assert run(load(f"file:{encoder_folder}?pairs=cross"), [("the cat", "a dog")]).features.shape == (1, 32)
    assert run(backbone, [["EU", "rejects"], ["the"] * 30]).features.shape == (32, 32)


def test_a_new_head_becomes_the_last_part(encoder_folder, tmp_path):
    backbone = load(f"file:{encoder_folder}")
    head = torch.nn.Linear(32, 3)
    backbone.save(tmp_path, head=head, target_names=["a", "b", "c"], kind="classification")
    with torch.no_grad():
        expected = head(run(backbone, TEXTS).features)
    found = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-4)
    again = load(f"file:{tmp_path}")
    torch.testing.assert_close(run(again, TEXTS).logits, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(run(again, TEXTS).features, run(backbone, TEXTS).features)
    assert again.card.source_classes == 3


@pytest.mark.parametrize(("samples", "width"), [([("the cat", "a dog")], 128), ([["EU", "rejects"]], 32)])
def test_heads_over_pairs_and_words_lie_beside(encoder_folder, tmp_path, samples, width):
    backbone = load(f"file:{encoder_folder}")
    head = torch.nn.Linear(width, 2)
    kind = "tagging" if width == 32 else "regression"
    backbone.save(tmp_path, head=head, target_names=["a", "b"], kind=kind)
    with torch.no_grad():
        expected = head(run(backbone, samples).features)
    torch.testing.assert_close(run(load(f"file:{tmp_path}"), samples).logits, expected, atol=1e-5, rtol=1e-4)


def test_what_can_go_wrong(encoder_folder):
    with pytest.raises(InputError, match="unknown option"):
        load(f"file:{encoder_folder}?pooling=cls")
    with pytest.raises(ModelNotFoundError, match="not in the local cache"):
        load("sentence-transformers/no-such-encoder")
    with pytest.raises(InputError, match="more than the 16 tokens"):
        load(f"file:{encoder_folder}?max_length=99")


def test_an_encoder_without_a_transformer_is_refused(tmp_path):
    from sentence_transformers.models import BoW

    encoder = sentence_transformers.SentenceTransformer(modules=[BoW(vocab=["cat", "dog"])], device="cpu")
    with pytest.raises(ModelError, match="not a transformer over text"):
        SentenceBackbone(encoder, Identifier("file", "x"))
