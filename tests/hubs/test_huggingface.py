"""Models of transformers against what transformers itself computes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hubscout.errors import CheckpointError, InputError, ModelError, ModelNotFoundError, UnsafeCheckpointError
from hubscout.hubs import Backbone, load

TEXTS = ["The cat sits on the mat.", "Shares fell.", ""]
WORDS = [["EU", "rejects", "German", "call"], ["cat"], ["the"] * 40]


def run(backbone: Backbone, samples: list, layers: tuple[str, ...] = ()):
    prepared = [backbone.preprocessing(sample) for sample in samples]
    with torch.inference_mode():
        return backbone(backbone.preprocessing.collate(prepared), layers)


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


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "last"])
def test_padding_and_empty_texts_change_nothing(name, pooling, request):
    backbone = load(f"file:{request.getfixturevalue(name)}?pooling={pooling}")
    together = run(backbone, TEXTS).features
    alone = torch.cat([run(backbone, [text]).features for text in TEXTS])
    assert together.isfinite().all()
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_only_the_encoder_of_an_encoder_decoder_is_kept(t5):
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(t5).get_encoder()
    assert load(f"file:{t5}").card.params == sum(p.numel() for p in encoder.parameters())


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


def test_two_towers(clip, image):
    from transformers import CLIPModel

    vision, text = load(f"file:{clip}"), load(f"file:{clip}?tower=text")
    assert vision.card.modalities == ("image",)
    assert "text" in text.card.modalities
    assert run(vision, [image]).features.shape == (1, 40)
    assert run(text, TEXTS[:2]).features.shape == (2, 32)
    whole = sum(p.numel() for p in CLIPModel.from_pretrained(clip).parameters())
    assert vision.card.params + text.card.params < whole


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


def test_audio_is_resampled_and_mixed(wav2vec2):
    preprocessing = load(f"file:{wav2vec2}").preprocessing
    stereo = {"array": np.ones((2, 4000), dtype=np.float32), "sampling_rate": 8_000}
    assert preprocessing(stereo).shape == (8000,)
    with pytest.raises(InputError, match="sampling_rate"):
        preprocessing(np.zeros(10))


def test_parameters_that_no_checkpoint_filled_are_refused(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(bert, tmp_path / "bert")
    state = load_file(folder / "model.safetensors")
    del state["bert.encoder.layer.1.attention.self.query.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"layer\.1\.attention\.self\.query\.weight"):
        load(f"file:{folder}")


def test_shapes_that_do_not_fit_are_named(bert, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(bert, tmp_path / "bert")
    state = load_file(folder / "model.safetensors")
    state["bert.embeddings.word_embeddings.weight"] = torch.zeros(7, 32)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"word_embeddings.weight is \(7, 32\) in the file"):
        load(f"file:{folder}")


def test_a_pickle_with_code_is_refused_and_not_run(bert, tmp_path):
    import pickle

    class Attack:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    folder = shutil.copytree(bert, tmp_path / "bert")
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"weight": Attack()}, file)
    with pytest.raises(UnsafeCheckpointError):
        load(f"file:{folder}")
    assert not (tmp_path / "executed").exists()


def test_code_of_a_repository_is_not_run_unasked(bert, tmp_path):
    import json

    folder = shutil.copytree(bert, tmp_path / "bert")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "their-own", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'executed')!r}).touch()\n")
    with pytest.raises(ModelError, match="trust_remote_code"):
        load(f"file:{folder}")
    assert not (tmp_path / "executed").exists()


def test_a_model_that_is_not_here_says_what_to_do():
    with pytest.raises(ModelNotFoundError, match="not in the local cache"):
        load("hf/nobody/no-such-model")


def test_unknown_options_poolings_and_layers_are_named(bert):
    with pytest.raises(InputError, match="poolling"):
        load(f"file:{bert}?poolling=mean")
    with pytest.raises(InputError, match="one of cls, mean"):
        load(f"file:{bert}?pooling=average")
    with pytest.raises(InputError, match=r"layer\.9"):
        run(load(f"file:{bert}"), TEXTS, ("layer.9",))


def test_an_unknown_pooling_of_words_is_named(bert):
    with pytest.raises(InputError, match="words must be one of first, last, mean, got 'max'"):
        load(f"file:{bert}?words=max")


def test_an_image_is_not_a_text(bert):
    with pytest.raises(InputError, match="Expected a text"):
        load(f"file:{bert}").preprocessing(Image.new("RGB", (4, 4)))


def test_a_default_that_is_written_out_finds_the_cached_features(bert, tmp_path):
    from hubscout.features import FeatureCache, extract
    from hubscout.tasks import Task

    cache, task = FeatureCache(tmp_path), Task.from_arrays(["a cat", "the mat", "Shares fell."] * 6, [0, 1, 0] * 6)
    extract(f"file:{bert}", task, device="cpu", cache=cache)
    written_out = extract(f"file:{bert}?pairs=cross&pooling=mean", task, device="cpu", cache=cache)
    assert written_out.from_cache
    assert written_out.card.identifier == f"file:{bert}?pairs=cross&pooling=mean"
    for other in ("pooling=max", "max_length=4"):
        assert not extract(f"file:{bert}?{other}", task, device="cpu", cache=cache).from_cache
