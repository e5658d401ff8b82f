"""The models that are tried where none is named, with a hub on the loopback address and without one."""

from __future__ import annotations

import re

import pytest

from hubscout.errors import InputError
from hubscout.hubs import Identifier, load
from hubscout.hubs.default_models import SIZES, default_lists, default_models
from hubscout.hubs.timm_hub import import_timm

ALL = sorted({one for sizes in default_lists().values() for models in sizes.values() for one in models})
OF_TIMM = [Identifier.parse(one) for one in ALL if one.startswith("timm/")]


def test_every_kind_of_input_has_lists_of_all_sizes_with_reasons():
    for sizes in default_lists().values():
        assert tuple(sizes) == SIZES
        for models in sizes.values():
            assert len(models) >= 2
            for reason in models.values():
                size, why, licence = reason.split("; ")
                assert re.match(r"\d+M( in the encoder)?$", size)
                assert why
                assert licence in ("Apache-2.0", "MIT")


@pytest.mark.parametrize("identifier", OF_TIMM, ids=str)
def test_timm_has_these_weights_and_their_licence_allows_use(identifier):
    timm = import_timm()
    assert identifier.name in timm.list_pretrained()
    told = timm.get_pretrained_cfg(identifier.name)
    (reason,) = {
        models[one] for models in default_lists()["image"].values() for one in models if one == str(identifier)
    }
    if told.license is not None:  # an older timm does not say it of all
        assert reason.rpartition("; ")[2].lower() == told.license
    # timm notes that these weights were trained with another activation than the plain architecture has.
    assert not any("quickgelu" in note for note in told.notes or ()) or "quickgelu" in identifier.name


def test_what_is_said_of_the_sizes_of_image_models_is_true():
    import torch

    timm = import_timm()
    for models in default_lists()["image"].values():
        for identifier, reason in models.items():
            name = Identifier.parse(identifier).name.partition(".")[0]
            try:
                with torch.device("meta"):
                    count = sum(p.numel() for p in timm.create_model(name, num_classes=0).parameters())
            except RuntimeError:
                continue  # an older timm computes with weights while it builds
            assert reason.startswith(f"{count / 1e6:.0f}M;"), (identifier, count)


def test_options_of_a_list_are_understood():
    network = load("timm/vit_small_patch14_dinov2.lvd142m?img_size=224&input_size=224&pretrained=false")
    assert network.config.input_size == (3, 224, 224)


def test_no_list_for_arrays():
    with pytest.raises(InputError, match=r"no list of models for inputs of the kind 'array', only for image, audio"):
        default_models("array", "small")


LISTED = """
from hubscout.hubs.default_models import default_models
found = default_models({!r}, "small")
result = [[entry.identifier for entry in found], list(found.notes)]
"""


def test_with_a_hub_the_list_and_without_one_what_is_here(client):
    names = ("hf/acme/bert", "timm/test_resnet.r160_in1k", "sentence-transformers/tiny")
    assert all("error" not in client.attempt(name) for name in names)
    found, notes = client.run(LISTED.format("image"))
    assert found == list(default_lists()["image"]["small"])
    assert notes == ["Models: the 6 of the list 'small' for image inputs."]
    client.run("from hubscout.hubs import connection; result = connection.note_silence('the hub is gone')")
    try:
        images, notes = client.run(LISTED.format("image"))
        texts, _ = client.run(LISTED.format("text"))
    finally:
        client.forget()
    assert "timm/test_resnet.r160_in1k" in images
    assert "hf/timm/test_resnet.r160_in1k" not in images
    assert "sentence-transformers/tiny" not in images
    assert "hf/acme/bert" in texts
    assert "sentence-transformers/tiny" in texts
    assert not any(name.startswith("timm/") for name in texts)
    assert notes[0].endswith("on this machine, not the list 'small': the hub is gone.")
