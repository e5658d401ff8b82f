"""Texts and words become the tokens that the model was trained on."""

from __future__ import annotations

import pytest
import torch
from hub_models import run

from hubscout.errors import InputError
from hubscout.hubs import load


def test_words_are_split_as_they_are_in_a_text(gpt2):
    """GPT-2 marks the space before a word, which a list of words does not have."""
    backbone = load(f"file:{gpt2}")
    words = backbone.preprocessing(["The", "cat", "sits"])
    assert words.ids.tolist() == backbone.preprocessing("The cat sits").ids.tolist()


def test_words_beyond_the_limit_are_counted_and_still_have_rows(bert):
    backbone = load(f"file:{bert}")
    prepared = backbone.preprocessing(["the"] * 40)
    assert prepared.truncated == 40 - 22
    assert len(prepared.words) == 40
    rows = run(backbone, [["the"] * 40]).features
    torch.testing.assert_close(rows[22:], rows[21].expand(18, -1))
    assert (rows.abs().sum(1) > 0).all()


def test_long_texts_are_cut_to_what_the_model_takes_and_counted(bert, gpt2):
    for folder, limit in ((bert, 24), (gpt2, 32)):
        preprocessing = load(f"file:{folder}").preprocessing
        batch = preprocessing.collate([preprocessing("the cat " * 100), preprocessing("the cat")])
        assert batch["input_ids"].shape[1] == limit
        assert batch["truncated"].tolist() == [1, 0]
    short = load(f"file:{bert}?max_length=8").preprocessing
    assert len(short("the cat " * 100)) == 8
    with pytest.raises(InputError, match="more than the 24 tokens"):
        load(f"file:{bert}?max_length=100")


def test_tokenising_in_threads_gives_what_one_thread_gives(bert):
    from concurrent.futures import ThreadPoolExecutor

    preprocessing = load(f"file:{bert}").preprocessing
    texts = [f"the cat {'sits ' * (i % 30)}" for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = [tokens.ids.tolist() for tokens in pool.map(preprocessing, texts)]
    assert found == [preprocessing(text).ids.tolist() for text in texts]
