"""A real server on a real socket, and real rankings that it starts."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from hubscout.cli.app import app
from hubscout.errors import InputError
from hubscout.ranking import Ranking
from hubscout.runs.tuning_record import read_tuning
from hubscout.serve.run_processes import read_note
from hubscout.serve.server import listen

Serve = Callable[..., Any]


def raw(port: int, target: bytes, host: str = "127.0.0.1") -> tuple[int, bytes]:
    """Send a request line as it is: clients tidy `..` up before they send it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET " + target + f" HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return int(answer.split(b" ", 2)[1]), answer


OUTSIDE = [
    b"../secret",
    b"..%2fsecret",
    b"%2e%2e/secret",
    b"%2e%2e%2fsecret",
    b"%252e%252e%252fsecret",
    b"..%252fsecret",
    b"first/../../secret",
    b"first/%2e%2e/%2e%2e/secret",
    b"..\\secret",
    b"..%5csecret",
    b"%2e%2e%5csecret",
    b"/etc/passwd",
    b"%2fetc%2fpasswd",
    b"//etc/passwd",
    b"file:///etc/passwd",
    b"C:%5csecret",
    b"C:/secret",
    b"first%00",
    b"%00",
    b"first/ranking.json",
    b"first/ranking.json%00.html",
    b"..%c0%afsecret",
    b"%c0%ae%c0%ae/secret",
    b"link",
    b"link/ranking.json",
    b"linked-file",
    b".",
    b"..",
    b"~",
    b"....//secret",
    b"..;/secret",
]


def test_no_address_leads_out_of_the_folder(serve: Serve, runs: Path) -> None:
    secret = runs.parent / "secret"
    secret.mkdir()
    (secret / "ranking.json").write_text((runs / "first" / "ranking.json").read_text().replace("colours", "forbidden"))
    (runs / "link").symlink_to(secret)
    (runs / "linked-file").mkdir()
    (runs / "linked-file" / "ranking.json").symlink_to(secret / "ranking.json")
    served = serve(runs)
    for prefix in (
        b"/run/",
        b"/report/",
        b"/api/runs/",
        b"/api/events/",
        b"/live/",
        b"/compare?run=first&run=",
        b"/assets/",
    ):
        for name in OUTSIDE:
            status, answer = raw(served.port, prefix + name)
            assert status in {404, 400, 422}, (prefix + name, status)
            assert b"forbidden" not in answer
            assert b"root:" not in answer
    status, answer = raw(served.port, b"/report/first")
    assert status == 200
    status, answer = raw(served.port, b"/", host="evil.example")
    assert status == 421
    assert b"forbidden" not in raw(served.port, b"/")[1]


def test_two_hundred_requests_at_once(serve: Serve, runs: Path) -> None:
    served = serve(runs)
    paths = [
        "/",
        "/run/first",
        "/report/first",
        "/report/team/second",
        "/api/runs",
        "/api/events/first",
        "/compare?run=first&run=team/second",
        "/start",
        "/run/nothing",
        "/live/team/second",
    ]

    async def ask_all() -> list[tuple[str, httpx.Response]]:
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=served.address, limits=limits, timeout=httpx.Timeout(60, pool=60), trust_env=False
        ) as client:
            wanted = [paths[index % len(paths)] for index in range(200)]
            return list(zip(wanted, await asyncio.gather(*map(client.get, wanted)), strict=True))

    with ThreadPoolExecutor(1) as pool:  # a browser test before this one may have left its loop in this thread
        answers = pool.submit(asyncio.run, ask_all()).result()
    assert len(answers) == 200
    first: dict[str, str] = {}
    for path, answer in answers:
        assert answer.status_code == (404 if "nothing" in path else 200), path
        assert first.setdefault(path, answer.text) == answer.text
    assert "event: end" in first["/api/events/first"]
    assert served.process.poll() is None


def test_a_ranking_is_started_and_its_events_followed_to_the_end(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs)
    wanted = {"name": "new", "data": "colours", "models": [f"{zoo}:red", f"{zoo}:broken", f"{zoo}:colours"]}
    with served.client() as client:
        answer = client.post("/api/runs", json=wanted, headers=served.csrf())
        assert answer.status_code == 201
        assert answer.json()["state"] == "running"
        assert answer.json()["stoppable"]
        assert client.post("/api/runs", json=wanted, headers=served.csrf()).status_code == 422
        with client.stream("GET", "/api/events/new", timeout=120) as stream:
            lines = [line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line)["line"]["event"] for line in lines[:-1]]
    # How many samples are done is told every two seconds: how often depends on the machine.
    assert [event for event in events if event != "model-advanced"] == [
        "started",
        "model-started",
        "model-finished",
        "model-started",
        "model-failed",
        "model-started",
        "model-finished",
        "finished",
    ]
    assert json.loads(lines[-1]) == {"state": "finished"}
    ranking = Ranking.load(runs / "new")
    assert ranking.complete
    assert ranking.best.identifier == f"{zoo}:colours"
    assert ranking.environment["command"][1] == "rank"


@pytest.mark.slow
def test_killing_the_server_loses_nothing(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs)
    models = [f"{zoo}:colours", f"{zoo}:endless"]
    with served.client() as client:
        answer = client.post(
            "/api/runs", json={"name": "new", "data": "colours", "models": models}, headers=served.csrf()
        )
        assert answer.status_code == 201
    deadline = time.monotonic() + 200
    events = runs / "new" / "events.jsonl"
    while not events.exists() or '"model-finished"' not in events.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(20)
    note = read_note(runs / "new")
    assert note is not None
    assert note.running
    again = serve(runs)
    assert again.state("new") == "running"
    with again.client() as client:
        page = client.get("/run/new").text
        assert "Stop" in page
        assert client.post("/api/stop/new", headers=again.csrf()).json() == {"stopped": True}
        again.wait_for("new", "interrupted", 30)
        assert client.post("/api/stop/new", headers=again.csrf()).json() == {"stopped": False}
        saved = Ranking.load(runs / "new")
        assert not saved.complete
        assert saved.identifiers == (f"{zoo}:colours",)
        page = client.get("/run/new").text
        assert "Resume" in page
        assert "1 of 2 models are finished and saved" in page
        form = {"csrf": again.csrf()["X-CSRF-Token"]}
        assert client.post("/resume/new", data=form).status_code == 303
        assert again.state("new") == "running"
        with client.stream("GET", "/api/events/new", timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if "reset" in line) == "event: reset"  # the run began anew
            told = next(line for line in lines if "taken_over" in line)
        assert json.loads(told.removeprefix("data: "))["line"]["taken_over"] == [f"{zoo}:colours"]


def test_only_so_many_rankings_run_at_a_time(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs, "--jobs", "2")
    fields = {"data": "colours", "models": [f"{zoo}:endless"]}
    with served.client(headers=served.csrf()) as client, ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda n: client.post("/api/runs", json={**fields, "name": f"job-{n}"}), range(5)))
        assert sorted(answer.status_code for answer in answers) == [201, 201, 422, 422, 422]
        refused = next(answer for answer in answers if answer.status_code == 422).json()["error"]
        assert "2 runs are running already" in refused
        assert "--jobs" in refused
        for n, answer in enumerate(answers):
            assert (runs / f"job-{n}").exists() == (answer.status_code == 201)
        name = next(f"job-{n}" for n, answer in enumerate(answers) if answer.status_code == 201)
        assert client.post(f"/api/stop/{name}", json={"force": True}).json() == {"stopped": True}
        served.wait_for(name, "failed")
        assert client.post("/api/runs", json={**fields, "name": "later"}).status_code == 201


def test_a_tuning_with_teachers_of_a_ranking_is_started_and_followed(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs)
    wanted = {"name": "new", "data": "colours", "models": [f"{zoo}:red"], "command": "tune", "teachers": "first"}
    with served.client(headers=served.csrf()) as client:
        assert client.post("/api/runs", json=wanted, headers={"X-CSRF-Token": "x"}).status_code == 403
        answer = client.post("/api/runs", json={**wanted, "epochs": "2"})
        assert answer.status_code == 201
        assert (answer.json()["kind"], answer.json()["state"]) == ("tuning", "running")
        assert answer.json()["stoppable"]
        assert answer.json()["task"] == "colours"
        with client.stream("GET", "/live/new", timeout=120) as stream:
            lines = list(stream.iter_lines())
        page, report = (client.get(f"/{place}/new").text for place in ("run", "report"))
    assert lines[lines.index("event: end") + 1] == 'data: {"state": "finished"}'
    record = read_tuning(runs / "new")
    assert record.teachers == (f"{zoo}:colours",)  # not the model itself, which the ranking has too
    assert "hubscout tune" in page
    assert "Test accuracy" in page
    assert "Confusion matrix" in report


@pytest.mark.slow
def test_a_race_is_started_followed_and_stopped(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs)
    models = [f"{zoo}:{name}" for name in ("red", "colours", "steady")]
    wanted = {"name": "new", "data": "colours", "models": models, "command": "race", "budget": "10min"}
    with served.client(headers=served.csrf()) as client:
        answer = client.post("/api/runs", json=wanted)
        assert (answer.json()["kind"], answer.json()["state"]) == ("race", "running")
        with client.stream("GET", "/api/events/new", timeout=120) as stream:
            next(line for line in stream.iter_lines() if '"race.jsonl"' in line and '"look"' in line)
        page = client.get("/run/new").text
        assert "Stop keeps the best model so far" in page
        assert client.post("/api/stop/new").json() == {"stopped": True}
        served.wait_for("new", "interrupted")
        assert "Resume" in client.get("/run/new").text


def test_a_tuning_that_cannot_start_says_why(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs)
    wanted = {"name": "new", "data": "colours", "models": [f"{zoo}:broken"], "command": "tune"}
    with served.client(headers=served.csrf()) as client:
        assert client.post("/api/runs", json=wanted).status_code == 201
        served.wait_for("new", "failed")
        assert "cursed" in client.get("/run/new").text


def test_what_cannot_start_says_why(serve: Serve, runs: Path, zoo: str) -> None:
    served = serve(runs)
    wanted = {"name": "new", "data": "words.csv", "models": [f"{zoo}:red"], "label": "no such column"}
    with served.client() as client:
        assert client.post("/api/runs", json=wanted, headers=served.csrf()).status_code == 201
        served.wait_for("new", "failed")
        page = client.get("/run/new").text
    assert "Last output" in page
    assert "no such column" in page


def test_ctrl_c_ends_the_server_at_once_even_while_somebody_watches(serve: Serve, runs: Path) -> None:
    served = serve(runs)
    (runs / "going").mkdir()
    (runs / "going" / "metrics.jsonl").write_text('{"event": "step", "step": 1, "parts": {"task": 1.0}}\n')
    with served.client() as client, client.stream("GET", "/api/events/going") as stream:
        next(stream.iter_lines())
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(15) in {0, 130, -signal.SIGINT}


def test_other_machines_need_the_printed_token(serve: Serve, runs: Path) -> None:
    served = serve(runs, "--host", "0.0.0.0")
    assert served.token
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as client:
        assert client.get("/").status_code == 401
        assert client.get("/", params={"token": served.token}, follow_redirects=True).status_code == 200
        assert client.get("/api/runs").json()["runs"]


def test_a_port_that_is_taken_and_an_address_that_is_not_ours() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(InputError, match="--port"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InputError, match="--host"):
        listen("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--token", "short"], "at least 16"),
        (["--data", "/nothing/here"], "--data"),
        (["--host", "300.1.1.1"], "--host"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "runs"), "--port", "0", *options])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
