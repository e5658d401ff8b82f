from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import InputError
from hubscout.hubs import Identifier

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
