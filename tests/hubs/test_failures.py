"""What a refusal of the hub is called, and what it says to do."""

from __future__ import annotations

import pytest

from hubscout.errors import ModelError, ModelNotFoundError
from hubscout.hubs.failures import explain_failure, in_one_line


@pytest.mark.parametrize(
    ("status", "headers", "kind", "said"),
    [
        (401, {}, "ModelNotFoundError", "has no model acme/absent, or it is private (401)"),
        (403, {"X-Error-Message": "Not for your country"}, "ModelNotFoundError", "'Not for your country'"),
        (404, {}, "ModelNotFoundError", "has no model acme/absent"),
        (429, {"Retry-After": "90"}, "ModelError", "asked too often (429). Try again in 90 seconds"),
        (429, {"RateLimit": '"api";r=0;t=55'}, "ModelError", "Try again in 55 seconds"),
        (500, {}, "ModelError", "the hub has a fault of its own (500)"),
        (503, {"X-Error-Message": "Maintenance"}, "ModelError", "(503), saying 'Maintenance'"),
    ],
)
def test_every_status_has_its_own_words(client, hub, status, headers, kind, said):
    with hub.fault("/api/models/acme/absent", status=status, headers=headers):
        found = client.attempt("hf/acme/absent")
    assert found["error"] == kind
    assert said in found["text"]
    assert "cannot be reached" not in found["text"]


@pytest.mark.parametrize(
    ("status", "said"), [(403, "denies you access"), (429, "too often"), (503, "fault of its own")]
)
def test_so_has_one_that_comes_with_a_file(client, hub, status, said):
    with hub.fault("/storage/", status=status):
        found = client.attempt("hf/acme/stalled")
    assert said in found["text"]


def test_a_repository_that_is_not_there(client):
    assert "Check the spelling" in client.attempt("hf/acme/bret")["text"]
    assert "not a name of the Hugging Face Hub" in client.attempt("hf/a/b/c")["text"]


def test_a_gated_repository_says_how_to_get_in(client, hub):
    found = client.attempt("hf/acme/gated")
    assert found["error"] == "ModelNotFoundError"
    assert "is gated" in found["text"]
    assert f"Accept it at {hub.url}/acme/gated, then log in with `hf auth login` or set HF_TOKEN" in found["text"]


def test_a_token_opens_what_is_gated_or_private(client, hub):
    with_token = "import os; os.environ['HF_TOKEN'] = {!r}; result = attempt({!r})"
    for name in ("acme/gated", "acme/private"):
        assert "commit" in client.run(with_token.format(hub.token, f"hf/{name}"))
    wrong = client.run(with_token.format("hf_wrong", "hf/acme/vit"))
    client.run("result = os.environ.pop('HF_TOKEN')")
    told = wrong.get("text") or " ".join(wrong["messages"])
    assert "does not accept your token (401)" in told
    assert hub.tokens_elsewhere == []


@pytest.mark.slow
def test_a_download_that_stalls_says_so(client, hub):
    with hub.fault("/storage/", stall_seconds=3):
        found = client.attempt("hf/acme/stalled")
    client.forget()
    assert "the hub stopped sending" in found["text"]
    assert any("resuming where it stopped" in text for text in found["messages"])


def test_messages_are_whole():
    error = ValueError("The tokenizer cannot be made because:\n\n  - sentencepiece is missing\n")
    assert str(explain_failure(error, "hf/a/b")).endswith("because: - sentencepiece is missing")
    assert in_one_line(KeyError()) == "KeyError"


def test_no_network_is_not_a_fault_of_the_model():
    from urllib.error import URLError

    found = explain_failure(URLError("no route to host"), "torchvision/resnet18")
    assert isinstance(found, ModelNotFoundError)
    assert "not in the local cache" in str(found)
    assert not isinstance(explain_failure(RuntimeError("boom"), "hf/a/b"), ModelNotFoundError)
    assert isinstance(explain_failure(RuntimeError("boom"), "hf/a/b"), ModelError)
