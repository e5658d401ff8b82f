"""Listings of a hub on the loopback address."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hub_client import environment


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


def test_what_is_here_is_marked(newcomer):
    newcomer.attempt("hf/acme/bert")
    entries, _ = listing(newcomer, "list_models('hf/acme/*')")
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
