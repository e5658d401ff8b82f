"""Without a hub: known once, and soon."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

import pytest
from hub_client import HubClient, environment

from hubscout.errors import ModelError, ModelNotFoundError
from hubscout.hubs.connection import explain_failure, in_one_line

QUICK = "import json, sys, time; from hubscout.hubs import connection\n"


def in_new_process(code: str, url: str, home, **settings: str):
    words = [sys.executable, "-c", QUICK + code]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(url, home, **settings), timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def silent():
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def nobody():
    """An address where no one listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


TIMED = """
times, said = [], []
for _ in range(3):
    began = time.monotonic()
    said.append(connection.hub_silence())
    times.append(time.monotonic() - began)
print(json.dumps([times, said]))
"""


def test_a_hub_that_answers(hub, tmp_path):
    assert in_new_process(TIMED, hub.url, tmp_path)[1] == [None] * 3


def test_a_hub_that_says_nothing_is_known_after_three_seconds_and_once(silent, tmp_path):
    times, said = in_new_process(TIMED, silent, tmp_path)
    assert 2.5 < times[0] < 5
    assert times[1] + times[2] < 0.5
    assert said[0] == f"the hub cannot be reached ({silent} does not answer within 3 seconds)"


def test_nobody_there_is_known_at_once_with_the_reason(nobody, tmp_path):
    times, said = in_new_process(TIMED, nobody, tmp_path)
    assert times[0] < 2.5
    assert "refused" in said[0]


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_hub_that_is_switched_off_is_not_asked(hub, tmp_path, name):
    hub.requests.clear()
    assert in_new_process(TIMED, hub.url, tmp_path, **{name: "1"})[1] == [f"the hub is switched off ({name})"] * 3
    assert hub.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_without_a_hub_what_is_here_opens_and_what_is_not_fails_at_once(client, nobody, settings):
    names = ["hf/acme/bert", "timm/test_resnet.r160_in1k", "sentence-transformers/tiny", "hf/acme/vit?revision=main"]
    online = [client.attempt(name) for name in names]
    offline = HubClient(nobody, client.home, **settings)
    try:
        found = [offline.attempt(name) for name in names]
        began = time.monotonic()  # now that its imports are over
        offline.attempt(names[0])
        absent = [offline.attempt(name) for name in ("timm/resnet18.a1_in1k", "timm/resnet34.a1_in1k", "hf/a/b")]
        took = time.monotonic() - began
    finally:
        offline.close()
    assert [model.get("fingerprint") for model in found] == [model["fingerprint"] for model in online]
    assert [model["commit"] for model in found] == [model["commit"] for model in online]
    why = "switched off (HF_HUB_OFFLINE)" if settings else "cannot be reached"
    for model in absent:
        assert model["error"] == "ModelNotFoundError"
        assert "is not in the local cache, and" in model["text"]
        assert why in model["text"]
        assert model["messages"] == []
    assert took < 10


def test_many_models_without_a_network_wait_once_and_have_one_line_each(silent, tmp_path):
    """As a user runs it, on a network that swallows every packet, for both hosts that models come from."""
    data = tmp_path / "points.csv"
    data.write_text("text,label\n" + "good day,a\nbad night,b\n" * 10, encoding="utf-8")
    names = ["timm/resnet18.a1_in1k", "timm/resnet34.a1_in1k", "hf/facebook/dinov2-small"]
    names += ["torchvision/resnet18", "torchvision/resnet34"]
    words = [sys.executable, "-m", "hubscout", "rank", str(data), "--no-cache", "-m", ",".join(names)]
    settings = {"https_proxy": silent, "TORCH_HOME": str(tmp_path / "torch"), "no_proxy": ""}
    began = time.monotonic()
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment(silent, tmp_path, **settings), timeout=120
    )
    took = time.monotonic() - began
    assert done.returncode == 1
    failed = [line for line in done.stderr.splitlines() if "failed:" in line]
    assert len(failed) == len(names)
    assert all("does not answer within 3 seconds" in line for line in failed)
    assert "etry" not in done.stderr
    assert took < 60, "five models that each wait until a connection is given up take minutes"


def test_a_part_of_a_model_is_not_the_model(client, hub, nobody, tmp_path):
    """An interrupted download leaves settings without weights."""
    with hub.fault("/storage/", status=500):
        client.attempt("hf/acme/half")
    client.run("from hubscout.hubs import connection; result = connection.note_silence('it is gone')")
    found = client.attempt("hf/acme/half")
    client.forget()
    assert found["error"] == "ModelNotFoundError"
    assert "only a part of it was fetched (config.json" in found["text"]


@pytest.mark.parametrize(
    ("status", "headers", "kind", "said"),
    [
        (401, {}, "ModelNotFoundError", "has no model acme/absent, or it is private (401)"),
        (403, {"X-Error-Message": "Not for your country"}, "ModelNotFoundError", "'Not for your country'"),
        (404, {}, "ModelNotFoundError", "has no model acme/absent"),
        (429, {"Retry-After": "90"}, "ModelError", "asked too often (429). Try again in 90 seconds"),
        (429, {"RateLimit": '"api";r=0;t=55'}, "ModelError", "Try again in 55 seconds"),
        (500, {}, "ModelError", "the hub reports an error of its own (500)"),
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
    ("status", "said"),
    [(403, "denies you access"), pytest.param(429, "too often", marks=pytest.mark.slow), (503, "error of its own")],
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
