"""Listings of a hub on the loopback address."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hub_client import environment

from hubscout.errors import InputError
from hubscout.hubs import load
from hubscout.hubs.hub_registry import Identifier
from hubscout.hubs.model_listing import DEFAULTS, SIZES, default_models
from hubscout.hubs.timm_hub import import_timm


@pytest.fixture(scope="module")
def shelf(hub, repositories):
    """Three hundred models of known sizes, in pages of a hundred; the smallest are downloaded least."""
    folder = repositories / "acme" / "bert"
    for number in range(300):
        facts = {"downloads": number, "safetensors": {"parameters": {"F32": number * 10}, "total": number * 10}}
        hub.add(f"shelf/net-{number}", folder, **facts, tags=["transformers", "license:mit", "dataset:wikipedia"])
    yield hub
    for number in range(300):
        del hub.repositories[f"shelf/net-{number}"]


def listing(client, call: str):
    code = "from hubscout.hubs import list_models\nfrom dataclasses import asdict\n"
    return client.run(f"{code}found = {call}\nresult = [[asdict(e) for e in found], list(found.notes)]")


def test_what_the_hub_tells_is_listed(client, shelf):
    entries, notes = listing(client, "list_models('hf/shelf/net-299')")
    assert entries == [
        {
            "identifier": "hf/shelf/net-299",
            "params": 2990,
            "flops": None,
            "source_data": "wikipedia",
            "licence": "mit",
            "downloads": 299,
            "input_size": None,
            "on_this_machine": False,
            "modalities": [],
        }
    ]
    assert notes == []


def test_a_list_that_is_cut_says_so_and_can_be_longer(client, shelf):
    entries, notes = listing(client, "list_models('hf/shelf/*')")
    assert len(entries) == 200
    assert "the 200 most downloaded were looked at. --limit" in notes[0]
    assert entries[0]["downloads"] == 299
    assert len(listing(client, "list_models('hf/shelf/*', limit=5)")[0]) == 5
    entries, notes = listing(client, "list_models('hf/shelf/*', limit=300)")
    assert len(entries) == 300
    assert notes == []


def test_sizes_are_asked_for(client, shelf):
    entries, notes = listing(client, "list_models('hf/shelf/*', max_params=1500)")
    assert [entry["params"] for entry in entries] == list(range(1500, 990, -10))
    assert notes
    entries, _ = listing(client, "list_models('hf/shelf/*', max_params=50, limit=1000)")
    assert [entry["params"] for entry in entries] == [50, 40, 30, 20, 10, 0]


def test_what_is_here_is_marked(client, hub):
    client.attempt("hf/acme/bert")
    entries, _ = listing(client, "list_models('hf/acme/*')")
    here = {entry["identifier"] for entry in entries if entry["on_this_machine"]}
    assert "hf/acme/bert" in here
    assert "hf/acme/mute" not in here


def test_what_is_here_is_listed_however_little_is_looked_at(client, shelf):
    client.attempt("hf/acme/bert")
    entries, _ = listing(client, "list_models('hf/*', limit=1)")
    assert entries[0]["identifier"] == "hf/shelf/net-299"
    assert "hf/acme/bert" in [entry["identifier"] for entry in entries if entry["on_this_machine"]]


def test_sentence_encoders_are_listed_by_their_own_names(client, hub):
    entries, _ = listing(client, "list_models('sentence-transformers/*')")
    assert [entry["identifier"] for entry in entries] == ["sentence-transformers/tiny"]


def test_popularity_of_timm_models_is_asked_for_at_once(client, hub):
    hub.requests.clear()
    entries, _ = listing(client, "list_models('timm/test_resnet*')")
    assert [entry["downloads"] for entry in entries] == [7]
    assert sum("/api/models" in request for request in hub.requests) == 1


def test_a_hub_that_refuses_to_search_says_why(client, hub):
    with hub.fault("/api/models?", status=429, headers={"Retry-After": "0"}):
        code = "from hubscout.hubs import list_models\ntry:\n    list_models('hf/acme/*')\n"
        said = client.run(code + "except HubscoutError as error:\n    result = str(error)")
    assert "asked too often (429)" in said


def test_the_command_lists_by_size(shelf, tmp_path):
    words = [sys.executable, "-m", "hubscout", "models", "hf/shelf/*", "--max-params", "30", "--limit", "300", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(shelf.url, tmp_path), timeout=100)
    assert [entry["params"] for entry in json.loads(done.stdout)["models"]] == [30, 20, 10, 0]
    words = [sys.executable, "-m", "hubscout", "models", "hf/shelf/*", "--max-params", "30"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(shelf.url, tmp_path), timeout=100)
    assert "No model matches 'hf/shelf/*' with at most 30 parameters." in done.stderr
    assert "--limit" in done.stderr


def test_what_a_model_is_for_tells_what_it_takes(client, hub):
    uses = {"pictures": "image-classification", "speech": "audio-classification", "words": "fill-mask", "some": None}
    for name, use in uses.items():
        facts = {} if use is None else {"pipeline_tag": use}
        hub.add(f"uses/{name}", hub.repositories["acme/bert"].folders["main"], **facts)
    try:
        entries, _ = listing(client, "list_models('hf/uses/*')")
    finally:
        for name in uses:
            del hub.repositories[f"uses/{name}"]
    taken = {entry["identifier"].removeprefix("hf/uses/"): entry["modalities"] for entry in entries}
    assert taken == {"pictures": ["image"], "speech": ["audio"], "words": ["text", "text-pair", "tokens"], "some": []}


ALL = sorted({one for sizes in DEFAULTS.values() for models in sizes.values() for one in models})
OF_TIMM = [Identifier.parse(one) for one in ALL if one.startswith("timm/")]


def test_every_kind_of_input_has_lists_of_all_sizes_with_reasons():
    for sizes in DEFAULTS.values():
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
    (reason,) = {models[one] for models in DEFAULTS["image"].values() for one in models if one == str(identifier)}
    if told.license is not None:  # an older timm does not say it of all
        assert reason.rpartition("; ")[2].lower() == told.license
    # timm notes that these weights were trained with another activation than the plain architecture has.
    assert not any("quickgelu" in note for note in told.notes or ()) or "quickgelu" in identifier.name


def test_what_is_said_of_the_sizes_of_image_models_is_true():
    import torch

    timm = import_timm()
    for models in DEFAULTS["image"].values():
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
from hubscout.hubs.model_listing import default_models
found = default_models({!r}, "small")
result = [[entry.identifier for entry in found], list(found.notes)]
"""


def test_with_a_hub_the_list_and_without_one_what_is_here(client):
    names = ("hf/acme/bert", "timm/test_resnet.r160_in1k", "sentence-transformers/tiny")
    assert all("error" not in client.attempt(name) for name in names)
    found, notes = client.run(LISTED.format("image"))
    assert found == list(DEFAULTS["image"]["small"])
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
