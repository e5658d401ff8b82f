"""One small member of every family; `sweep.py` runs all architectures of timm."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("timm")
pytest.importorskip("transformers")

import known
import timm_models
import transformers_models

import sweep

FAMILIES = {
    "image": (transformers_models.check_image, transformers_models.IMAGES, known.IMAGES),
    "text": (transformers_models.check_text, transformers_models.TEXT, known.TEXT),
}
ALL = [(kind, name) for kind, (_, families, _) in FAMILIES.items() for name in families]

TIMM = [
    "beit_base_patch16_224?depth=1&embed_dim=48&num_heads=3",
    "cait_xxs24_224?depth=1",
    "coat_tiny",
    "convit_tiny?depth=2&local_up_to_layer=1",
    "crossvit_9_240",
    "dpn48b",
    "edgenext_xx_small",
    "eva02_tiny_patch14_224?depth=1",
    "gcvit_xxtiny",
    "ghostnet_050",
    "hgnetv2_b0",
    "lcnet_035",
    "levit_128s",
    "mixer_s32_224",
    "mobilevitv2_050",
    "pit_ti_224",
    "qwen3_vit_88m_enc?depth=1&embed_dim=48&num_heads=3",
    "samvit_base_patch16_224?depth=2&embed_dim=48&num_heads=3",
    "selecsls42b",
    "test_byobnet",
    "test_convnext",
    "test_efficientnet",
    "test_mambaout",
    "test_nfnet",
    "test_resnet",
    "test_vit",
    "tiny_vit_5m_224",
    "tnt_s_legacy_patch16_224?depth=1",
    "twins_svt_small",
    "xcit_nano_12_p16_224",
]


def happens(check, name, *arguments) -> str:
    """What is wrong with a model: nothing, or the error, or the disagreements."""
    try:
        return "; ".join(check(name, *arguments)["wrong"])
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("kind", "name"), [pair for pair in ALL if pair[1] not in FAMILIES[pair[0]][2]])
def test_a_family_of_transformers_gives_its_own_features(kind, name, tmp_path):
    assert happens(FAMILIES[kind][0], name, tmp_path) == ""


@pytest.mark.parametrize(("kind", "name"), [pair for pair in ALL if pair[1] in FAMILIES[pair[0]][2]])
def test_a_known_gap_is_still_one(kind, name, tmp_path):
    check, _, gaps = FAMILIES[kind]
    assert gaps[name].symptom in happens(check, name, tmp_path)


def test_stages_of_several_maps_are_the_known_gap_of_timm():
    assert known.TIMM["hrnet*"].symptom in happens(timm_models.check, "hrnet_w18_small")


@pytest.mark.parametrize("name", TIMM)
def test_a_family_of_timm_gives_its_own_features(name):
    assert happens(timm_models.check, name) == ""


def test_every_gap_names_a_model_that_there_is():
    assert known.IMAGES.keys() <= transformers_models.IMAGES.keys()
    assert known.TEXT.keys() <= transformers_models.TEXT.keys()
    assert all(timm_models.timm.list_models(pattern) for pattern in known.TIMM)


def test_the_sweep_reports_what_is_new_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    out = tmp_path / "sweep.jsonl"
    out.with_suffix(".plan.json").write_text(json.dumps({"all": ["test_vit", "test_resnet"]}))
    sweep.write(out, {"name": "test_vit", "family": "some_family", "error": "ValueError: made up"})
    monkeypatch.setattr("sys.argv", ["sweep.py", "--out", str(out)])
    assert sweep.main() == 1
    assert "UNKNOWN  test_vit: ValueError: made up" in capsys.readouterr().out
    assert [line["name"] for line in sweep.read(out)] == ["test_vit", "test_resnet"]
    monkeypatch.setitem(known.TIMM, "test_vit", known.Gap("made up", "for this test"))
    assert sweep.main() == 0
    monkeypatch.setitem(known.TIMM, "test_res*", known.Gap("nothing", "for this test"))
    assert sweep.main() == 1
    assert "WORKS  test_resnet" in capsys.readouterr().out
