"""Groups of similar length cost the least, and change nothing but the padding."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hubscout.features import extract
from hubscout.hubs import load
from hubscout.hubs.length_groups import forward_by_length, group_ends, length_groups, trimmed
from hubscout.hubs.processors import LENGTHS
from hubscout.hubs.text_preprocessing import IDS, MASK, SECOND, WORDS
from hubscout.tasks import Task


def cost(lengths, ends, per_group):
    starts = [0, *ends[:-1]]
    return sum((end - start) * lengths[start] + per_group for start, end in zip(starts, ends, strict=True))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_no_other_cut_costs_less(lengths, per_group):
    longest_first = np.sort(lengths)[::-1].copy()
    inside = range(1, len(lengths))
    every = [[*cuts, len(lengths)] for count in range(len(lengths)) for cuts in combinations(inside, count)]
    least = min(cost(longest_first, ends, per_group) for ends in every)
    assert cost(longest_first, group_ends(longest_first, per_group), per_group) == least


def texts(lengths):
    width = max(lengths)
    mask = (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).long()
    return {IDS: mask * torch.arange(1, len(lengths) + 1)[:, None], MASK: mask}


def test_rows_come_back_in_the_order_of_the_batch_words_among_them():
    batch = texts([3, 400, 2, 5])
    seen = []

    def forward(part):
        seen.append(tuple(part[IDS].shape))
        return part[IDS].sum(dim=1, keepdim=True)

    assert forward_by_length(forward, batch, "cpu").flatten().tolist() == [3, 800, 6, 20]
    assert seen == [(1, 400), (3, 5)]
    batch[WORDS] = torch.where(batch[MASK] > 0, torch.arange(400), -1)
    said = forward_by_length(lambda part: part[IDS][part[WORDS] >= 0], batch, "cpu")
    assert said.tolist() == [1] * 3 + [2] * 400 + [3] * 2 + [4] * 5


def test_sounds_are_cut_into_groups_too_and_spectra_are_not():
    lengths = torch.tensor([18_000, 160_000, 3_000, 20_000])
    waves = (torch.arange(160_000)[None] < lengths[:, None]) * torch.arange(1.0, 5.0)[:, None]
    seen = []

    def forward(part):
        seen.append((tuple(part["input_values"].shape), part[LENGTHS].tolist()))
        return part["input_values"].sum(dim=1, keepdim=True)

    found = forward_by_length(forward, {"input_values": waves, LENGTHS: lengths}, "cpu")
    assert found.flatten().tolist() == [18_000, 320_000, 9_000, 80_000]
    assert seen == [((1, 160_000), [160_000]), ((3, 20_000), [20_000, 18_000, 3_000])]
    short = {"input_values": waves, LENGTHS: torch.tensor([900, 700, 800, 1_000])}
    assert trimmed(short)["input_values"].shape == (4, 16_000)
    spectra = {"input_features": torch.zeros(4, 80, 3000), LENGTHS: torch.full((4,), 80)}
    assert length_groups(spectra, "cpu") is None
    assert trimmed(spectra)["input_features"].shape == (4, 80, 3000)


def test_features_of_sounds_are_computed_group_by_group(wav2vec2):
    backbone, generator = load(f"file:{wav2vec2}"), np.random.default_rng(0)
    lengths = (18_000, 60_000, 17_000, 16_500)
    sounds = [{"array": generator.normal(size=n).astype(np.float32), "sampling_rate": 16_000} for n in lengths]
    whole = backbone.preprocessing.collate([backbone.preprocessing(sound) for sound in sounds])
    with torch.no_grad():
        expected = backbone.forward(whole, backbone.layer_names)
    seen = []
    backbone.module.register_forward_pre_hook(
        lambda _, given, named: seen.append(tuple(named["input_values"].shape)), with_kwargs=True
    )
    task = Task.from_arrays(sounds, ["a", "b"] * 2, test_size=0, validation_size=0)
    found = extract(backbone, task, layers="all", statistics=False, batch_size=4, device="cpu")
    assert (1, 60_000) in seen
    assert max(length for rows, length in seen if rows > 1) == 18_000
    for layer in ("", *backbone.layer_names):
        wanted = expected.layers[layer] if layer else expected.features
        np.testing.assert_allclose(found.features(layer), wanted.numpy(), atol=1e-5)


def test_networks_that_hear_the_padding_run_whole_batches(wav2vec2):
    backbone = load(f"file:{wav2vec2}")
    assert backbone.ignores_padding
    backbone._config.feat_extract_norm = "group"
    assert not backbone.ignores_padding
    backbone._config.feat_extract_norm = "layer"
    backbone.preprocessing.extractor.return_attention_mask = False
    assert not backbone.ignores_padding


def test_padding_on_the_left_is_left_alone():
    """The view of a teacher with a preprocessing of its own, beside a model's that is cut into groups."""
    left = {name: value.flip(1) for name, value in texts([3, 2]).items()} | {"other": torch.zeros(2, 3)}
    batch = {name: torch.nn.functional.pad(value, (4, 0)) for name, value in left.items()}
    assert {name: value.shape[1] for name, value in trimmed(batch).items()} == {IDS: 7, MASK: 7, "other": 7}


def test_what_is_short_or_no_text_or_padded_on_the_left_stays_one_batch():
    assert length_groups(texts([3, 9, 2, 5]), "cpu") is None
    assert length_groups(texts([3, 400, 2, 5]), "cuda") is None
    assert length_groups({"pixel_values": torch.zeros(4, 3, 8, 8)}, "cpu") is None
    left = {name: value.flip(1) for name, value in texts([3, 400, 2, 5]).items()}
    assert length_groups(left, "cpu") is None
    assert length_groups(texts([3, 400, 2, 5]) | {"positions": torch.zeros(4, 400)}, "cpu") is None


def test_of_pairs_that_are_read_apart_each_side_has_its_own_length():
    batch = texts([3, 2]) | {SECOND + name: value for name, value in texts([4, 50]).items()}
    first = trimmed({name: value[:1] for name, value in batch.items()})
    assert (first[IDS].shape, first[SECOND + MASK].shape) == ((1, 3), (1, 4))
