"""Texts: what a target is tuned as, and what its folder opens with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hubscout.hubs import load
from hubscout.tasks import Split, Task
from hubscout.tuning import Tuned, tune
from small_models import WORDS, save_bert

QUICK = {"epochs": 1, "batch_size": 8, "bootstrap_resamples": 5, "workers": 0}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def task():
    generator = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 2
        texts = [f"a {generator.choice(WORDS[2 * k : 2 * k + 2])} {generator.choice(WORDS[4:6])}" for k in labels]
        return Split(texts, labels)

    splits = {"train": split(24), "validation": split(8), "test": split(8)}
    return Task("opinions", "classification", "text", ("bad", "good"), splits, "opinions")


def test_a_text_encoder_is_tuned_from_the_features_that_it_is_ranked_by(bert, task, tmp_path):
    """What a ranking expects of its frozen features is what tuning starts from and compares itself with."""
    from hubscout.tuning.baselines import probe
    from hubscout.tuning.frozen_features import FrozenFeatures

    ranked = load(bert)
    tuned = tune(task, bert, linear_probe=True, out=tmp_path / "run", **QUICK)
    assert (tuned.backbone.pooling, ranked.pooling) == ("mean", "mean")
    told = tuned.curves[-1]["probes"]["model"]
    assert told["metrics"] == probe(FrozenFeatures(task), ranked).metrics
    assert told["model"] == bert
    # Word by word, the model to tune, its teachers and the row of a ranking are one model.
    assert tune(task, bert, [bert], **QUICK).notes[0].endswith("is among its own teachers.")


def test_a_text_encoder_by_its_mean_is_the_same_wherever_it_is_opened(bert, task, tmp_path):
    pytest.importorskip("onnxruntime")
    from sentence_transformers import SentenceTransformer

    tuned = tune(task, bert, learning_rate=1e-2, out=tmp_path / "run", **QUICK | {"epochs": 4})
    texts, expected = list(task.test.inputs), tuned.predict(task.test.inputs).values
    logits = SentenceTransformer(str(tmp_path / "run"), device="cpu").encode(texts, convert_to_tensor=True).double()
    np.testing.assert_allclose(logits.softmax(1), expected, atol=1e-5)
    opened = Tuned.load(tmp_path / "run")
    np.testing.assert_allclose(opened.predict(texts).values, expected, atol=1e-6)
    assert "library_name: sentence-transformers" in (tmp_path / "run" / "README.md").read_text()
    for name, one in {"tuned": tuned, "opened": opened}.items():
        one.export_onnx(tmp_path / f"{name}.onnx")
        import onnxruntime

        batch = opened.backbone.preprocessing.collate([opened.backbone.preprocessing(text) for text in texts])
        session = onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"))
        wanted = {place.name for place in session.get_inputs()}
        (found,) = session.run(None, {key: value.numpy() for key, value in batch.items() if key in wanted})
        np.testing.assert_allclose(torch.tensor(found).double().softmax(1), expected, atol=1e-5)
    # Tuned once more, and as a teacher, it is the same network with its own features.
    again = tune(task, f"file:{tmp_path / 'run'}", [f"file:{tmp_path / 'run'}"], **QUICK)
    assert again.head.in_features == 16


def test_a_text_encoder_is_tuned_and_saved_as_a_plain_classifier_if_that_is_asked_for(bert, task, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tuned = tune(task, f"{bert}?pooling=head", method="fine-tune", learning_rate=1e-2, **QUICK)
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


@pytest.mark.parametrize("pooling", ["cls", "max", "head"])
def test_a_pooling_that_was_asked_for_stays(bert, task, pooling):
    assert tune(task, f"{bert}?pooling={pooling}", method="fine-tune", **QUICK).backbone.pooling == pooling


def pair_task(kind):
    generator = np.random.default_rng(1)

    def split(count):
        pairs = [tuple(generator.choice(WORDS, 2)) for _ in range(count)]
        alike = np.array([WORDS.index(a) // 4 == WORDS.index(b) // 4 for a, b in pairs])
        return Split(pairs, 5.0 * alike[:, None] if kind == "regression" else alike.astype(np.int64))

    splits = {"train": split(48), "validation": split(16), "test": split(16)}
    names = ("likeness",) if kind == "regression" else ("other", "same")
    return Task("pairs", kind, "text-pair", names, splits, f"pairs-{kind}")


@pytest.fixture(scope="module")
def sentence_encoder(bert, tmp_path_factory):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    network = Transformer(bert.removeprefix("file:"), max_seq_length=16)
    folder = tmp_path_factory.mktemp("sentences")
    SentenceTransformer(modules=[network, Pooling(16, pooling_mode="mean")], device="cpu").save(str(folder))
    return f"file:{folder}"


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("encoder", ["bert", "sentence_encoder"])
def test_pairs_that_are_read_apart_are_tuned_saved_and_predicted(request, encoder, kind, tmp_path):
    model, task = f"{request.getfixturevalue(encoder)}?pairs=siamese", pair_task(kind)
    before = load(model)
    tuned = tune(task, model, method="fine-tune", learning_rate=1e-3, **QUICK | {"epochs": 6})
    assert tuned.head.in_features == 4 * before.card.feature_dim
    assert not torch.equal(
        next(iter(before.module.state_dict().values())), next(iter(tuned.backbone.module.state_dict().values()))
    )
    pairs = list(task.test.inputs)
    found = tuned.predict(pairs).values
    # What ranking describes a pair by, and the head: by hand.
    encode = tuned.backbone.forward
    collate, prepare = tuned.backbone.preprocessing.collate, tuned.backbone.preprocessing
    with torch.no_grad():
        u, v = (encode(collate([prepare(str(pair[side])) for pair in pairs])).features for side in (0, 1))
        outputs = tuned.head(torch.cat([u, v, (u - v).abs(), u * v], dim=1))
    np.testing.assert_allclose(found, tuned.loss.decode(outputs), atol=1e-5)
    tuned.save(tmp_path)
    np.testing.assert_allclose(Tuned.load(tmp_path).predict(pairs).values, found, atol=1e-4)


@pytest.mark.parametrize("encoder", ["bert", "sentence_encoder"])
def test_an_encoder_that_was_tuned_on_joined_pairs_reads_them_joined(request, encoder, tmp_path):
    task = pair_task("classification")
    tuned = tune(task, f"{request.getfixturevalue(encoder)}?pairs=cross", method="fine-tune", **QUICK)
    tuned.save(tmp_path)
    pairs = list(task.test.inputs)
    np.testing.assert_allclose(Tuned.load(tmp_path).predict(pairs).values, tuned.predict(pairs).values, atol=1e-5)


@pytest.mark.parametrize("method", ["b-tuning", "kd", "logit-kd"])
def test_pairs_that_are_read_apart_are_taught(bert, method):
    tuned = tune(
        pair_task("classification"),
        f"{bert}?pairs=siamese",
        [f"{bert}?pairs=siamese&pooling=max", f"{bert}?pairs=cross"],
        method=method,
        **QUICK,
    )
    assert tuned.head.in_features == 64
    assert tuned.curves[0]["parts"]["teachers"] > 0


def test_pairs_that_are_read_apart_are_probed_and_adapted(bert):
    options = {**QUICK, "head_init": "posterior", "lora_rank": 2, "linear_probe": True}
    tuned = tune(pair_task("classification"), f"{bert}?pairs=siamese", method="fine-tune", **options)
    assert tuned.head.in_features == 64


def with_long_texts(modality, words=300):
    """Sixteen short samples for each split, two of them long; their labels follow from their first word."""
    generator = np.random.default_rng(3)

    def split():
        inputs, labels = [], []
        for row in range(16):
            text = generator.choice(WORDS, words if row in (3, 12) else int(generator.integers(1, 6))).tolist()
            if modality == "tokens":
                inputs.append(text)
                labels.append(np.array([WORDS.index(word) // 4 for word in text]))
            else:
                inputs.append(" ".join(text) if modality == "text" else (" ".join(text), "a film"))
                labels.append(WORDS.index(text[0]) // 4)
        return Split(inputs, labels if modality == "tokens" else np.array(labels))

    kind = "tagging" if modality == "tokens" else "classification"
    splits = {name: split() for name in ("train", "validation", "test")}
    return Task("long", kind, modality, ("bad", "good"), splits, f"long-{modality}")


@pytest.mark.parametrize(
    ("modality", "options"), [("text", ""), ("tokens", "?words=mean"), ("text-pair", "?pairs=siamese")]
)
def test_a_long_text_does_not_make_its_batch_as_long_and_the_steps_stay_what_they_are(
    tmp_path, monkeypatch, modality, options
):
    from transformers.models.bert.modeling_bert import BertEmbeddings

    from hubscout.hubs import length_groups

    bert = save_bert(tmp_path / "bert", longest=512, dropout=0.0) + options
    task, real, seen = with_long_texts(modality), BertEmbeddings.forward, []

    def counted(self, input_ids=None, **others):
        seen.append(input_ids.numel())
        return real(self, input_ids=input_ids, **others)

    monkeypatch.setattr(BertEmbeddings, "forward", counted)
    settings = {
        "method": "fine-tune",
        "learning_rate": 1e-2,
        "keep_best": False,
        **QUICK,
        "epochs": 3,
        "batch_size": 16,
    }
    told, tokens = {}, {}
    for name, per_pass in {"cut": 64, "whole": 10**9}.items():
        monkeypatch.setitem(length_groups.TOKENS_PER_PASS, "cpu", per_pass)
        seen.clear()
        tuned = tune(task, bert, **settings)
        told[name], tokens[name] = tuned, sum(seen)
        # The order of what is predicted is that of what was asked.
        alone = [tuned.predict([sample]).values for sample in task.test.inputs]
        np.testing.assert_allclose(tuned.predict(task.test.inputs).values, np.concatenate(alone), atol=1e-5)
    assert tokens["cut"] < 0.35 * tokens["whole"]
    assert told["cut"].metrics_record()["test"].keys() == told["whole"].metrics_record()["test"].keys()
    for name, value in told["whole"].backbone.module.state_dict().items():
        torch.testing.assert_close(told["cut"].backbone.module.state_dict()[name], value, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        told["cut"].metrics["test"]["accuracy"].value, told["whole"].metrics["test"]["accuracy"].value, atol=1e-9
    )
