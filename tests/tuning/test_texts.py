"""Texts: what a target is tuned as, and what its folder opens with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hubscout.errors import InputError
from hubscout.hubs import load, prepare_torchvision
from hubscout.tasks import Split, Task
from hubscout.tuning import Tuned, tune

WORDS = ("good", "fine", "bad", "poor", "film", "book", "a", "the")
QUICK = {"epochs": 1, "batch_size": 8, "bootstrap_resamples": 5, "workers": 0}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    prepare_torchvision()
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ["input_ids", "token_type_ids", "attention_mask"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16, model_input_names=names
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
    )
    folder = tmp_path_factory.mktemp("bert")
    BertForMaskedLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return f"file:{folder}"


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 2
        texts = [f"a {generator.choice(WORDS[2 * k : 2 * k + 2])} {generator.choice(WORDS[4:6])}" for k in labels]
        return Split(texts, labels)

    splits = {"train": split(24), "validation": split(8), "test": split(8)}
    return Task("opinions", "classification", "text", ("bad", "good"), splits, "opinions")


def test_a_text_encoder_is_tuned_and_saved_as_a_plain_classifier(bert, task, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tuned = tune(task, bert, method="fine-tune", learning_rate=1e-2, **QUICK)
    assert any("pooling=head" in note for note in tuned.notes)
    tuned.save(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "library_name: transformers" in card
    assert "BertForSequenceClassification.from_pretrained" in card
    assert "pooling=head" in card
    expected = tuned.predict(task.test.inputs).values
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokens = AutoTokenizer.from_pretrained(tmp_path)(list(task.test.inputs), padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model(**tokens).logits.double().softmax(1)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(Tuned.load(tmp_path).predict(task.test.inputs).values, expected, atol=1e-6)
    # The pooler is part of what is tuned, and of what is saved.
    before = load(f"{bert}?pooling=head").module.state_dict()
    assert not torch.equal(before["bert.pooler.dense.weight"], model.state_dict()["bert.pooler.dense.weight"])


@pytest.mark.parametrize("options", [{"freeze": "all"}, {"head_init": "posterior"}, {"lora_rank": 2}])
def test_what_rests_on_the_features_as_they_are_keeps_the_mean(bert, task, options):
    tuned = tune(task, bert, method="fine-tune", **options, **QUICK)
    assert tuned.backbone.pooling == "mean"
    assert not any("pooling=head" in note for note in tuned.notes)


def test_a_pooling_that_was_asked_for_stays(bert, task):
    assert tune(task, f"{bert}?pooling=mean", method="fine-tune", **QUICK).backbone.pooling == "mean"
    assert tune(task, load(bert), method="fine-tune", **QUICK).backbone.pooling == "mean"


def test_pairs_that_are_read_apart_are_refused_with_a_way_out(bert):
    split = Split([("a film", "a book"), ("the film", "the book")] * 8, np.array([[0.0], [1.0]] * 8))
    splits = {"train": split, "validation": split, "test": split}
    task = Task("pairs", "regression", "text-pair", ("likeness",), splits, "pairs")
    with pytest.raises(InputError, match=r"pairs=cross"):
        tune(task, f"{bert}?pairs=siamese", method="fine-tune", **QUICK)
