"""Models fetched from a hub on the loopback address: what is asked, what is kept, and what is refused."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub_client import environment
from hub_server import commit_of

from hubscout.errors import CheckpointError, ModelError
from hubscout.hubs import load


def test_a_model_of_each_hub_is_fetched_with_its_commit_and_popularity(newcomer, hub, repositories):
    for identifier, name in (
        ("hf/acme/bert", "acme/bert"),
        ("hf/acme/vit", "acme/vit"),
        ("timm/test_resnet.r160_in1k", "timm/test_resnet.r160_in1k"),
        ("sentence-transformers/tiny", "sentence-transformers/tiny"),
    ):
        found = newcomer.attempt(identifier)
        assert found.get("commit") == commit_of(repositories / name), found
        assert found["downloads"] == 7
        assert found["identifier"] == identifier
        # The whole size is known from the beginning, and reached.
        first, last = found["bytes"][0], found["bytes"][-1]
        assert first[0] == 0
        assert first[1] == last[0] == last[1] > 50_000
    assert hub.tokens_elsewhere == []


def test_what_is_here_is_asked_for_once_and_not_fetched_again(client, hub):
    first = client.attempt("hf/acme/bert")
    hub.requests.clear()
    again = client.attempt("hf/acme/bert")
    assert again["fingerprint"] == first["fingerprint"]
    assert again["bytes"] == []
    assert [request.partition("?")[0] for request in hub.requests] == ["GET /api/models/acme/bert"]


def test_a_tuned_model_is_pooled_as_it_was_tuned(client, hub, repositories, tmp_path):
    """Its head was trained on these features, and fits no others."""
    tuned = shutil.copytree(repositories / "acme" / "bert", tmp_path / "tuned")
    (tuned / "hubscout.json").write_text(json.dumps({"format": 1, "pooling": "cls", "kind": "classification"}))
    hub.add("acme/tuned", tuned)
    assert client.attempt("hf/acme/bert")["pooling"] == "mean"
    assert client.attempt("hf/acme/tuned")["pooling"] == "cls"
    assert client.attempt("hf/acme/tuned?pooling=mean")["pooling"] == "mean"
    (tuned / "hubscout.json").write_text(json.dumps({"format": 1, "pooling": ["of", "my", "own"]}))
    hub.add("acme/tuned", tuned)
    assert "pooling must be one of " in client.attempt("hf/acme/tuned")["text"]


@pytest.mark.parametrize("hub_name", ["hf", "sentence-transformers"])
def test_a_tuned_sentence_encoder_has_its_features_and_its_head(client, hub, repositories, tmp_path, hub_name):
    """Its last part is the head: what goes into it are the features, what comes out the logits."""
    import torch

    from hubscout.hubs import load

    backbone = load(f"file:{repositories / 'acme' / 'bert'}")
    head = torch.nn.Linear(backbone.card.feature_dim, 3)
    backbone.save(tmp_path, head=head, target_names=("a", "b", "c"), kind="classification")
    hub.add("acme/opinions", tmp_path)
    found = client.attempt(f"{hub_name}/acme/opinions")
    assert (found["feature_dim"], found["classes"]) == (backbone.card.feature_dim, 3), found
    if hub_name == "hf":
        assert client.attempt("hf/acme/opinions?pooling=cls")["pooling"] == "cls"


def test_a_revision_is_pinned(client, hub, repositories, tmp_path):
    old = commit_of(repositories / "acme" / "renewed")
    newer = shutil.copytree(repositories / "acme" / "renewed", tmp_path / "newer")
    from safetensors.torch import load_file, save_file

    state = {name: value + 1 for name, value in load_file(newer / "model.safetensors").items()}
    save_file(state, newer / "model.safetensors", metadata={"format": "pt"})
    new = hub.add("acme/renewed", newer, revision="1.10")
    main, tagged = client.attempt("hf/acme/renewed"), client.attempt("hf/acme/renewed?revision=1.10")
    assert (main["commit"], tagged["commit"]) == (old, new)
    assert main["fingerprint"] != tagged["fingerprint"]
    assert client.attempt(f"hf/acme/renewed?revision={new}")["fingerprint"] == tagged["fingerprint"]
    refused = client.attempt("hf/acme/renewed?revision=nowhere")
    assert "has no revision 'nowhere'" in refused["text"]
    assert "must be a branch" in client.attempt("hf/acme/renewed?revision=../../up")["text"]


def test_a_revision_of_a_timm_model_is_pinned_too(client, hub, repositories, tmp_path):
    name = "timm/test_resnet.r160_in1k"
    other = shutil.copytree(repositories / name, tmp_path / "other")
    (other / "README.md").write_text("another commit\n")
    commit = hub.add(name, other, revision="v2")
    assert client.attempt(f"{name}?revision=v2")["commit"] == commit
    assert "no revision 'v3'" in client.attempt(f"{name}?revision=v3")["text"]
    refused = client.attempt("timm/test_resnet?pretrained=false&revision=v2")
    assert "there are none" in refused["text"]


def test_timm_repositories_open_under_either_name(client):
    by_hub, by_timm = client.attempt("hf/timm/test_resnet.r160_in1k"), client.attempt("timm/test_resnet.r160_in1k")
    assert by_hub["fingerprint"] == by_timm["fingerprint"]
    assert by_hub["commit"] == by_timm["commit"]
    assert client.attempt("hf/acme/flowers")["fingerprint"] != by_hub["fingerprint"]


def test_where_the_weights_lay_is_no_part_of_a_timm_model(client):
    code = "from hubscout.hubs import load\nresult = str(load('timm/test_resnet.r160_in1k').module.pretrained_cfg)"
    assert str(client.home) not in client.run(code)


def test_a_connection_that_is_cut_goes_on_where_it_stopped(client, hub):
    with hub.fault("/storage/", cut_after=60_000, times=2):
        found = client.attempt("hf/acme/cut")
    assert "commit" in found, found
    assert any("resuming where it stopped" in text for text in found["messages"])
    assert found["bytes"][-1][0] == found["bytes"][-1][1]


def test_what_was_fetched_before_a_failure_is_not_fetched_again(client, hub, repositories):
    with hub.fault("/storage/", status=500):
        failed = client.attempt("hf/acme/big")
    assert "an error of its own (500)" in failed["text"]
    hub.requests.clear()
    assert "commit" in client.attempt("hf/acme/big")
    fetched = [request for request in hub.requests if "/resolve/" in request]
    assert all("model.safetensors" in request for request in fetched)


def test_bytes_altered_on_the_way_are_refused_and_not_kept(client, hub):
    with hub.fault("/storage/", altered=True):
        refused = client.attempt("hf/acme/altered")
    assert refused["error"] == "CheckpointError"
    assert "model.safetensors of hf/acme/altered is not what the hub announced" in refused["text"]
    assert "commit" in client.attempt("hf/acme/altered")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_bytes_altered_in_the_cache_are_noticed_and_fetched_again(client, hub, name):
    good = client.attempt("hf/acme/spoiled")
    file = (client.snapshot("acme/spoiled") / name).resolve()
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    again = client.attempt("hf/acme/spoiled")
    assert again["fingerprint"] == good["fingerprint"]
    assert f"{name} in the local cache is not what the hub has; it is fetched again" in again["messages"]


def test_altered_bytes_without_a_hub_are_refused(client):
    client.attempt("hf/acme/spoiled")
    file = (client.snapshot("acme/spoiled") / "model.safetensors").resolve()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    client.run("from hubscout.hubs import connection; result = connection.note_silence('it is gone')")
    refused = client.attempt("hf/acme/spoiled")
    client.forget()
    file.write_bytes(content)
    assert refused["error"] == "CheckpointError"
    assert "Remove" in refused["text"]


def test_a_hub_in_trouble_does_not_keep_from_what_is_here(client, hub):
    good = client.attempt("hf/acme/bert")
    with hub.fault("/api/models/acme/bert", status=503):
        found = client.attempt("hf/acme/bert")
    assert found["fingerprint"] == good["fingerprint"]
    assert found["commit"] == good["commit"]
    assert any("taken from the local cache" in text and "503" in text for text in found["messages"])


def test_a_passing_fault_is_asked_over(client, hub):
    with hub.fault("/api/models/acme/bert", status=503, times=1):
        found = client.attempt("hf/acme/bert")
    assert "commit" in found
    assert any("status 503; asking again" in text for text in found["messages"])
    assert not any("local cache" in text for text in found["messages"])


def test_a_hub_that_stalls_is_left_alone_from_then_on(client, hub):
    client.run("repository._SECONDS_FOR_AN_ANSWER = 0.5; result = 0")
    with hub.fault("/api/", stall_seconds=2):
        first = client.attempt("hf/acme/stalled")
        began = time.monotonic()
        second = client.attempt("hf/acme/stalled")
        cached = client.attempt("hf/acme/bert")
    client.run("repository._SECONDS_FOR_AN_ANSWER = 10.0; result = 0")
    client.forget()
    assert "stopped sending" in first["text"]
    assert "not in the local cache" in second["text"]
    assert "commit" in cached
    assert time.monotonic() - began < 2


def test_a_repository_of_pickles_is_refused_with_the_reason(client, hub):
    hub.requests.clear()
    found = client.attempt("hf/acme/pickled")
    assert found["error"] == "UnsafeCheckpointError"
    assert "only as a pickle (pytorch_model.bin)" in found["text"]
    assert "'hf/acme/pickled?pickle=true'" in found["text"]
    assert not any("pytorch_model.bin" in request for request in hub.requests)


def test_a_pickle_that_is_allowed_is_read_as_numbers(client):
    allowed, plain = client.attempt("hf/acme/pickled?pickle=true"), client.attempt("hf/acme/bert")
    assert allowed["fingerprint"] == plain["fingerprint"]


def test_a_pickle_that_runs_code_is_refused_though_pickles_are_allowed(client, hub, repositories, tmp_path):
    import pickle
    import shutil

    class Attack:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    folder = shutil.copytree(repositories / "acme" / "pickled", tmp_path / "attack")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Attack()}))
    hub.add("evil/pickle", folder)
    assert client.attempt("hf/evil/pickle?pickle=true")["error"] == "UnsafeCheckpointError"
    assert not (tmp_path / "executed").exists()


def test_weights_of_other_libraries_are_named(client, hub, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tf_model.h5").write_bytes(b"x")
    hub.add("acme/keras", tmp_path)
    assert "no weights that can be opened here" in client.attempt("hf/acme/keras")["text"]
    assert "tf_model.h5" in client.attempt("hf/acme/keras")["text"]


def test_a_repository_without_settings_is_no_model(client, hub, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"x")
    hub.add("acme/gguf", tmp_path)
    found = client.attempt("hf/acme/gguf")["text"]
    assert "has no config.json" in found
    assert "model.gguf" in found


def test_code_of_a_repository_is_neither_fetched_nor_run(client, hub):
    hub.requests.clear()
    found = client.attempt("hf/evil/remote")
    assert found["error"] == "ModelError"
    assert "'hf/evil/remote?trust_remote_code=true'" in found["text"]
    assert not any("code.py" in request or "safetensors" in request for request in hub.requests)
    assert not (client.home / "executed").exists()


def test_only_true_allows(client):
    for value in ("1", "yes", "none"):
        assert "must be true or false" in client.attempt(f"hf/evil/remote?trust_remote_code={value}")["text"]
    assert not (client.home / "executed").exists()


def command(hub, home: Path, table: Path) -> tuple[list[str], dict[str, str]]:
    table.write_text("text,label\n" + "".join(f"word {i} of many,{i % 2}\n" for i in range(24)))
    words = [sys.executable, "-m", "hubscout", "rank", str(table), "--text", "text", "--label", "label", "--no-cache"]
    return [*words, "-m", "hf/evil/remote"], environment(hub.url, home, TRAP=str(home / "executed"))


def test_a_yes_from_a_pipe_runs_nothing(hub, tmp_path):
    words, settings = command(hub, tmp_path, tmp_path / "data.csv")
    done = subprocess.run(words, input="y\n" * 9, capture_output=True, text=True, env=settings, timeout=200)
    assert done.returncode == 1
    assert "trust_remote_code=true" in done.stdout + done.stderr
    assert not (tmp_path / "executed").exists()


def test_a_yes_on_a_terminal_runs_nothing(hub, tmp_path):
    words, settings = command(hub, tmp_path, tmp_path / "data.csv")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    shown = b""
    end = time.monotonic() + 200
    os.write(ours, b"y\n" * 9)
    while time.monotonic() < end:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        shown += part
    assert process.wait(timeout=120) == 1
    os.close(ours)
    assert b"[y/N]" not in shown
    assert not (tmp_path / "executed").exists()


def test_code_that_is_allowed_runs(client):
    """Or the tests above could not fail."""
    found = client.attempt("hf/evil/remote?trust_remote_code=true")
    assert (client.home / "executed").exists(), found


@pytest.mark.parametrize("kind", ["their_code.Module", "os.system"])
def test_modules_of_a_sentence_encoder_are_code_too(repositories, tmp_path, kind):
    import shutil

    folder = shutil.copytree(repositories / "sentence-transformers" / "tiny", tmp_path / "encoder")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "their_code.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'executed')!r}).touch()\n")
    with pytest.raises(ModelError, match="trust_remote_code=true"):
        load(f"file:{folder}")
    assert not (tmp_path / "executed").exists()
    (folder / "modules.json").write_text('{"no": "list"}')
    with pytest.raises(CheckpointError, match="does not list the parts"):
        load(f"file:{folder}")
