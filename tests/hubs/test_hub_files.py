"""What is taken from a repository, and what is not unless the user says so."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hub_client import environment

from hubscout.errors import CheckpointError, ModelError
from hubscout.hubs import load


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
