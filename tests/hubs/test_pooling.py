from __future__ import annotations

import numpy as np
import pytest
import torch

from hubscout.hubs import load
from hubscout.hubs.pooling import default_pooling, pool, pool_map, state_pooling

TEXTS = ["The cat sits on the mat.", "Shares fell sharply on Monday after a long week of trading."]


def test_states_coarser_than_the_tokens_leave_the_padding_out():
    hidden = torch.arange(8.0).reshape(1, 4, 2)  # four places for eight tokens, of which three are real
    mask = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(pool(hidden, mask, "mean"), hidden[:, :2].mean(1))
    torch.testing.assert_close(pool(hidden, mask, "last"), hidden[:, 1])


def test_layers_of_a_causal_tower_have_seen_the_text(clip):
    # Its first token sees itself alone, and so is the same in every text.
    backbone = load(f"file:{clip}?tower=text")
    batch = backbone.preprocessing.collate([backbone.preprocessing(text) for text in TEXTS])
    with torch.inference_mode():
        layers = backbone(batch, backbone.layer_names).layers
    for name in backbone.layer_names[1:]:
        assert not torch.allclose(layers[name][0], layers[name][1], atol=1e-3)


@pytest.mark.parametrize(
    ("pooling", "model_type", "modality", "causal", "expected"),
    [
        ("pooler", "siglip_vision_model", "image", False, "mean"),  # it has no class token
        ("pooler", "clip_vision_model", "image", False, "cls"),
        ("pooler", "hiera", "image", False, "mean"),
        ("head", "gpt2", "text", True, "last"),
        ("head", "bert", "text", False, "cls"),
        ("max", "bert", "text", False, "max"),
    ],
)
def test_states_are_pooled_as_near_to_the_features_as_can_be(pooling, model_type, modality, causal, expected):
    assert state_pooling(pooling, model_type, modality, causal=causal) == expected


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [("beit", "pooler"), ("hiera", "pooler"), ("ijepa", "mean"), ("pvt", "cls"), ("swin", "mean"), ("vit", "cls")],
)
def test_images_are_pooled_as_the_heads_of_their_family_pool_them(model_type, expected):
    assert default_pooling(model_type, "image", causal=False) == expected


def test_the_axis_of_the_known_width_is_kept():
    values = np.random.default_rng(0).normal(size=(2, 5, 6, 7))
    maps, tokens = torch.from_numpy(values), torch.from_numpy(values[..., 0])
    np.testing.assert_allclose(pool_map(maps, channels=7), values.mean((1, 2)))
    np.testing.assert_allclose(pool_map(maps, channels=5, channels_last=True), values.mean((2, 3)))
    np.testing.assert_allclose(pool_map(maps, channels_last=True), values.mean((1, 2)))
    np.testing.assert_allclose(pool_map(maps), values.mean((2, 3)))
    np.testing.assert_allclose(pool_map(tokens, channels=5), values[..., 0].mean(2))
    np.testing.assert_allclose(pool_map(tokens), values[..., 0].mean(1))
