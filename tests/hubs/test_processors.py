"""Recordings and images as the model's own processor prepares them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import CheckpointError, InputError
from hubscout.hubs import load


def test_audio_is_resampled_and_mixed(wav2vec2):
    preprocessing = load(f"file:{wav2vec2}").preprocessing
    stereo = {"array": np.ones((2, 4000), dtype=np.float32), "sampling_rate": 8_000}
    assert preprocessing(stereo).shape == (8000,)
    with pytest.raises(InputError, match="sampling_rate"):
        preprocessing(np.zeros(10))


def test_an_image_is_not_a_text(bert):
    with pytest.raises(InputError, match="Expected a text"):
        load(f"file:{bert}").preprocessing(Image.new("RGB", (4, 4)))


def without_tokenizer(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    for file in (*to.rglob("tokenizer*"), *to.rglob("vocab*"), *to.rglob("merges*")):
        file.unlink()
    return to


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bert_classifier"])
def test_a_folder_without_a_vocabulary_is_refused(name, request, tmp_path):
    folder = without_tokenizer(request.getfixturevalue(name), tmp_path / name)
    with pytest.raises(CheckpointError, match=r"has no vocabulary: none of .*tokenizer\.json"):
        load(f"file:{folder}")


def test_so_is_a_sentence_encoder(repositories, tmp_path):
    folder = without_tokenizer(repositories / "sentence-transformers" / "tiny", tmp_path / "tiny")
    with pytest.raises(CheckpointError, match="has no vocabulary"):
        load(f"file:{folder}")
    load(f"file:{repositories / 'sentence-transformers' / 'tiny'}")


def test_so_is_a_repository(client):
    found = client.attempt("hf/acme/mute")
    assert found["error"] == "CheckpointError"
    assert "hf/acme/mute has no vocabulary: none of" in found["text"]
    assert "vocab.txt" in found["text"]


def test_settings_of_a_tokenizer_are_no_vocabulary(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "bert")
    (folder / "tokenizer.json").unlink()
    assert (folder / "tokenizer_config.json").is_file()
    with pytest.raises(CheckpointError):
        load(f"file:{folder}")


def test_the_vocabulary_of_another_model_is_refused(bert, gpt2, tmp_path):
    from transformers import BertConfig, BertModel

    tiny = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}

    large = shutil.copytree(bert, tmp_path / "large")
    BertModel(BertConfig(vocab_size=30_522, **tiny)).save_pretrained(large)
    with pytest.raises(CheckpointError, match=r"not the model's own: it knows \d+ tokens.*30,522"):
        load(f"file:{large}")
    small = shutil.copytree(bert, tmp_path / "small")
    BertModel(BertConfig(vocab_size=20, pad_token_id=0, **tiny)).save_pretrained(small)
    with pytest.raises(CheckpointError, match="not the model's own"):
        load(f"file:{small}")


def test_an_alphabet_needs_no_files(tmp_path):
    """ByT5 reads bytes."""
    from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    assert load(f"file:{tmp_path}").card.params > 0


def test_a_network_that_was_saved_without_its_processor_says_what_is_missing(vit: Path, tmp_path: Path) -> None:
    shutil.copytree(vit, tmp_path / "alone", ignore=shutil.ignore_patterns("p*rocessor_config.json"))
    with pytest.raises(CheckpointError, match=r"no preprocessor_config\.json in .*alone.*save_pretrained\(FOLDER\)"):
        load(f"file:{tmp_path / 'alone'}")
