"""Models of transformers against what transformers itself computes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from hub_models import run

from hubscout.errors import CheckpointError, InputError, ModelError, ModelNotFoundError, UnsafeCheckpointError
from hubscout.hubs import load

TEXTS = ["The cat sits on the mat.", "Shares fell.", ""]


def test_only_the_encoder_of_an_encoder_decoder_is_kept(t5):
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(t5).get_encoder()
    assert load(f"file:{t5}").card.params == sum(p.numel() for p in encoder.parameters())


def test_two_towers(clip, image):
    from transformers import CLIPModel

    vision, text = load(f"file:{clip}"), load(f"file:{clip}?tower=text")
    assert vision.card.modalities == ("image",)
    assert "text" in text.card.modalities
    assert run(vision, [image]).features.shape == (1, 40)
    assert run(text, TEXTS[:2]).features.shape == (2, 32)
    whole = sum(p.numel() for p in CLIPModel.from_pretrained(clip).parameters())
    assert vision.card.params + text.card.params < whole


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
    with pytest.raises(InputError, match="words must be one of first, last, mean; got 'max'"):
        load(f"file:{bert}?words=max")


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


def test_opening_a_model_leaves_all_generators_as_they_were(bert, monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.manual_seed(3)
    seeded.clear()
    before = torch.get_rng_state()
    load(f"file:{bert}?pooling=head")
    load(f"file:{bert}")
    assert torch.equal(torch.get_rng_state(), before)
    assert not seeded
