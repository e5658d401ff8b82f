"""Identifiers of models: what is written is read again, and what a model would run is known by its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import InputError
from hubscout.hubs.model_identifier import Identifier, code_wanted

values = st.one_of(
    st.integers(-1000, 1000),
    st.booleans(),
    st.none(),
    st.floats(0.001, 1000),
    st.sampled_from(["mean", "timm/mobilenetv2_100", "python:zoo:build", "a b", "x&y=z?", "100%"]),
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
)


@given(
    st.sampled_from(["timm", "hf", "file", "python", "onnx", "sentence-transformers", "mine"]),
    st.sampled_from(["resnet50.a1_in1k", "facebook/dinov2-small", "folder/w.safetensors", "zoo:build", "what?.pth"]),
    st.dictionaries(st.sampled_from(["arch", "mean", "pooling", "num_classes"]), values),
)
def test_what_is_written_is_read_again(hub, name, options):
    identifier = Identifier(hub, name, options)
    assert Identifier.parse(str(identifier)) == identifier


@pytest.mark.parametrize("text", ["resnet50", "", "/absolute/path", "./folder", "timm/", "timm"])
def test_a_string_without_a_hub_says_how_to_write_one(text):
    with pytest.raises(InputError, match="hub/NAME"):
        Identifier.parse(text)


def test_an_option_without_a_value_is_refused():
    with pytest.raises(InputError, match=r"'pooling' .* key=value"):
        Identifier.parse("hf/x?max_length=3&pooling")


def test_values_that_look_like_text_stay_text():
    assert Identifier.parse("file:w.pth?arch=timm/resnet18&pad_type=same").options == {
        "arch": "timm/resnet18",
        "pad_type": "same",
    }


def test_an_unknown_option_names_those_that_there_are():
    identifier = Identifier.parse("hf/acme/bert?poling=mean")
    with pytest.raises(InputError, match="unknown option 'poling'; allowed: pooling, pairs"):
        identifier.check_options(("pooling", "pairs"))
    Identifier.parse("hf/acme/bert?pairs=cross").check_options(("pooling", "pairs"))


@pytest.mark.parametrize(
    ("identifier", "wants"),
    [
        ("python:os:system?command=ls", "the function os:system"),
        ("hf/evil/remote?trust_remote_code=true", "custom code"),
        ("hf/evil/remote?trust_remote_code=1", "custom code"),
        ("hf/evil/remote?trust_remote_code=yes", "custom code"),
        ("file:folder?trust_remote_code=true", "custom code"),
        ("file:folder?trust_remote_code=%74rue", "custom code"),
        ("sentence-transformers/x?pairs=cross&trust_remote_code=TRUE", "custom code"),
        ("file:w.pth?arch=python:os:system", "the function os:system"),
        ("file:w.pth?arch=python%3Aos%3Asystem", "the function os:system"),
        ("file:w.pth?arch=%70ython:os:system&command=ls", "the function os:system"),
        ("file:w.pth?arch=file:v.pth%3Farch=python:os:system", "the function os:system"),
        ("hf/facebook/dinov2-small", None),
        ("hf/a?trust_remote_code=false", None),
        ("hf/a?trust_remote_code=0", None),
        ("file:w.pth?arch=timm/resnet18", None),
        ("onnx:w.onnx", None),
    ],
)
def test_what_would_run_code(identifier, wants):
    assert code_wanted(Identifier.parse(identifier)) == wants


def test_a_path_that_is_there_is_told_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"names no hub\. Did you mean 'file:{re.escape(str(tmp_path))}'\? Write"):
        Identifier.parse(str(tmp_path))
    with pytest.raises(InputError, match=r"names no hub\. Write hub/NAME"):
        Identifier.parse(str(tmp_path / "nothing"))
