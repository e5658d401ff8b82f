"""A process that runs hubscout against a hub of our own, for a number of tests: its imports cost seconds.

The address of the hub and the cache are read when the hub's library is imported, so they cannot be changed here.
Started as a program, it takes one line of JSON with Python code, and answers with one line with what `result` is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

PRELUDE = """
from hubscout.errors import HubscoutError
from hubscout.features.extraction import open_backbone
from hubscout.runs.events import Downloading
from hubscout.hubs import repository

# Pauses between questions are as they are elsewhere, only shorter.
repository._PAUSES = (0.05, 0.05)

def attempt(identifier):
    "The card of a model, or the error, with what was told on the way."
    told = []
    try:
        backbone = open_backbone(identifier, told.append)
        answer = {"params": backbone.card.params, "commit": backbone.card.commit, "downloads": backbone.card.downloads,
                  "fingerprint": backbone.card.weights_fingerprint, "identifier": backbone.card.identifier,
                  "pooling": getattr(backbone, "pooling", None), "feature_dim": backbone.card.feature_dim,
                  "classes": backbone.card.source_classes}
    except HubscoutError as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    answer["bytes"] = [[e.bytes_done, e.bytes_total] for e in told if isinstance(e, Downloading)]
    answer["messages"] = [e.text for e in told if not isinstance(e, Downloading)]
    return answer
"""


def environment(url: str, home: Path, **others: str) -> dict[str, str]:
    """What a process needs to take `url` for the hub and `home` for the cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return (
        kept
        | {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DOWNLOAD_TIMEOUT": "1", "HF_HUB_ETAG_TIMEOUT": "1"}
        | others
    )


class HubClient:
    """Such a process."""

    def __init__(self, url: str, home: Path, **others: str) -> None:
        self.home = home
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(url, home, **others),
            text=True,
        )

    def run(self, code: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "failed" in answer:
            raise AssertionError(answer["failed"])
        return answer["result"]

    def attempt(self, identifier: str) -> dict[str, Any]:
        """Open a model."""
        return self.run(f"result = attempt({identifier!r})")

    def forget(self) -> None:
        """Let the process try again whether the hub answers."""
        self.run("from hubscout.hubs import connection; result = connection._silence.clear()")

    def snapshot(self, name: str) -> Path:
        """The folder of the cache that has a repository's files."""
        return next((self.home / "hub" / f"models--{name.replace('/', '--')}" / "snapshots").iterdir())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    space: dict[str, Any] = {}
    exec(PRELUDE, space)
    for line in sys.stdin:
        try:
            exec(json.loads(line), space)
            answer = {"result": space["result"]}
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
