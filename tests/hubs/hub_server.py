"""A Hugging Face Hub on the loopback address: its protocol over real folders, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE = (".safetensors", ".bin")
"""Files that are known by their SHA-256 and come from another host, as those in large file storage do."""
PAGE = 100


@dataclass
class Fault:
    """What goes wrong with requests whose path contains `where`, the first `times` times."""

    where: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    stall_seconds: float = 0.0
    cut_after: int | None = None
    """Bytes of a body after which the connection is closed."""
    bytes_per_second: float = 0.0
    altered: bool = False
    """One byte of the body is another one; its length is the same."""
    method: str = ""
    times: int = 1_000_000


@dataclass
class Repository:
    folders: dict[str, Path]
    """By branch or tag."""
    facts: dict[str, Any]
    gated: bool = False
    private: bool = False

    def commit(self, revision: str) -> str | None:
        for name, folder in self.folders.items():
            commit = commit_of(folder)
            if revision in (name, commit):
                return commit
        return None

    def folder(self, commit: str) -> Path:
        return next(folder for folder in self.folders.values() if commit_of(folder) == commit)


def files_of(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def commit_of(folder: Path) -> str:
    digest = hashlib.sha1()
    for name, path in files_of(folder).items():
        digest.update(f"{name}\0{hash_of(path)}\n".encode())
    return digest.hexdigest()


def hash_of(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix in LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class HubServer:
    """Runs for the time of a `with` block. `requests` has what was asked, as `METHOD path`."""

    token = "hf_letmein"

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.tokens_elsewhere: list[str] = []
        """Tokens that came to the host of large files, which must not see any."""

    def add(self, name: str, folder: Path, *, revision: str = "main", **facts: Any) -> str:
        """Publish a folder; gives its commit."""
        gated, private = facts.pop("gated", False), facts.pop("private", False)
        repository = self.repositories.setdefault(name, Repository({}, facts, gated, private))
        repository.folders[revision] = folder
        return commit_of(folder)

    @contextmanager
    def fault(self, where: str, **what: Any) -> Iterator[Fault]:
        fault = Fault(where, **what)
        self.faults.append(fault)
        try:
            yield fault
        finally:
            self.faults.remove(fault)

    def __enter__(self) -> HubServer:
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.storage = f"http://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub = self.server_hub
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        hub.requests.append(f"{self.command} {self.path}")
        self._fault = next(
            (f for f in hub.faults if f.where in self.path and f.times > 0 and f.method in ("", self.command)), None
        )
        if self._fault:
            self._fault.times -= 1
            if self._fault.stall_seconds:
                time.sleep(self._fault.stall_seconds)
            if self._fault.status:
                self._send(self._fault.status, b"", self._fault.headers)
                return
        try:
            if path.startswith("/api/models"):
                self._models(path.removeprefix("/api/models").strip("/"), parse_qs(parts.query))
            elif path.startswith("/storage/"):
                if self.headers.get("Authorization"):
                    hub.tokens_elsewhere.append(self.headers["Authorization"])
                _, _, commit, name, file = path.split("/", 4)
                repository = hub.repositories[name.replace("--", "/")]
                self._send_file(repository.folder(commit) / file, {}, body=body)
            elif "/resolve/" in path:
                self._resolve(path.strip("/"), body=body)
            else:
                self._send(200, b"a hub\n", {})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _allowed(self, name: str) -> Repository | None:
        """The repository, or None after an answer that says why not."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.server_hub.repositories.get(name)
        if given and given != self.server_hub.token:
            message = {"X-Error-Message": "Invalid credentials in Authorization header"}
            self._send(401, b"{}", message)
        elif repository is None or (repository.private and not given):
            # The Hub does not tell strangers which private repositories there are.
            code = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            self._send(404 if given else 401, b"{}", code)
        else:
            return repository
        return None

    def _models(self, path: str, query: dict[str, list[str]]) -> None:
        if not path:
            self._search(query)
            return
        name, _, revision = path.partition("/revision/")
        repository = self._allowed(name)
        if repository is None:
            return
        commit = repository.commit(revision or "main")
        if commit is None:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return
        siblings = []
        for file, place in files_of(repository.folder(commit)).items():
            sibling: dict[str, Any] = {"rfilename": file}
            if "blobs" in query:
                size = place.stat().st_size
                sibling |= {"size": size, "blobId": "0" * 40}
                if place.suffix in LARGE:
                    sibling["lfs"] = {"sha256": hash_of(place), "size": size, "pointerSize": 134}
            siblings.append(sibling)
        self._send_json({**self._facts(name), "sha": commit, "siblings": siblings})

    def _facts(self, name: str) -> dict[str, Any]:
        repository = self.server_hub.repositories[name]
        return {
            "id": name,
            "modelId": name,
            "downloads": 7,
            "tags": ["transformers"],
            "gated": repository.gated,
            "private": repository.private,
            **repository.facts,
        }

    def _search(self, query: dict[str, list[str]]) -> None:
        words = [word.lower() for word in query.get("search", [""])]
        owner = query.get("author", [""])[0]
        found = [self._facts(name) for name in self.server_hub.repositories if all(w in name.lower() for w in words)]
        found = [facts for facts in found if not owner or facts["id"].startswith(f"{owner}/")]
        found = [facts for facts in found if all(tag in facts["tags"] for tag in query.get("filter", []))]
        found.sort(key=lambda facts: -facts["downloads"])
        if "expand" in query:
            kept = {"id", "modelId", *query["expand"]}
            found = [{key: value for key, value in facts.items() if key in kept} for facts in found]
        else:
            found = [{key: value for key, value in facts.items() if key != "safetensors"} for facts in found]
        start = int(query.get("cursor", ["0"])[0])
        size = min(PAGE, int(query.get("limit", [str(PAGE)])[0]))
        headers = {}
        if start + size < len(found):
            kept_query = "&".join(f"{k}={v}" for k, values in query.items() if k != "cursor" for v in values)
            headers["Link"] = f'<{self.server_hub.url}/api/models?{kept_query}&cursor={start + size}>; rel="next"'
        self._send_json(found[start : start + size], headers)

    def _resolve(self, path: str, *, body: bool) -> None:
        name, _, rest = path.partition("/resolve/")
        revision, _, file = rest.partition("/")
        repository = self._allowed(name)
        if repository is None:
            return
        if repository.gated and not self.headers.get("Authorization"):
            code = {"X-Error-Code": "GatedRepo", "X-Error-Message": f"Access to model {name} is restricted."}
            self._send(401, b"", code)
            return
        commit = repository.commit(revision)
        if commit is None:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            return
        place = repository.folder(commit) / file
        if not place.is_file():
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hash_of(place)}"'}
        if place.suffix not in LARGE:
            self._send_file(place, headers, body=body)
            return
        headers |= {"X-Linked-Etag": f'"{hash_of(place)}"', "X-Linked-Size": str(place.stat().st_size)}
        headers["Location"] = f"{self.server_hub.storage}/storage/{commit}/{name.replace('/', '--')}/{file}"
        self._send(302, b"", headers)

    def _send_file(self, place: Path, headers: dict[str, str], *, body: bool) -> None:
        content = place.read_bytes()
        if self._fault and self._fault.altered:
            content = content[:-1] + bytes([content[-1] ^ 1])
        asked = self.headers.get("Range", "")
        status, start = 200, 0
        if asked.startswith("bytes="):
            start = int(asked.removeprefix("bytes=").split("-")[0])
            status = 206
            headers |= {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        self._send(status, content[start:], headers, body=body)

    def _send_json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool = True) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not body or self.command == "HEAD":
            return
        fault = self._fault
        if fault and fault.cut_after is not None:
            self.wfile.write(content[: fault.cut_after])
            self.wfile.flush()
            self.close_connection = True
        elif fault and fault.bytes_per_second:
            step = max(1, int(fault.bytes_per_second / 10))
            for start in range(0, len(content), step):
                self.wfile.write(content[start : start + step])
                self.wfile.flush()
                time.sleep(0.1)
        else:
            self.wfile.write(content)
