"""The application without a socket: what it answers, to whom, with which headers."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hubscout.runs.tuning_record import TuningRecord, write_tuning
from hubscout.serve.application import create_app
from hubscout.serve.security import Guard
from hubscout.serve.server import open_site

HERE = "http://127.0.0.1:8765"
NASTY = '<script>alert("x")</script>'


@pytest.fixture
def open_client(runs: Path, data: Path, zoo: str) -> Callable[..., TestClient]:
    def make(host: str = "127.0.0.1", token: str | None = None, folder: Path = runs) -> TestClient:
        site = open_site(folder, guard=Guard.make(host, 8765, token), data=data, models=[f"{zoo}:colours"])
        return TestClient(create_app(site), base_url=HERE, follow_redirects=False, raise_server_exceptions=False)

    return make


@pytest.fixture
def client(open_client: Callable[..., TestClient]) -> TestClient:
    return open_client()


PAGES = [
    "/",
    "/?q=nothing",
    "/rows",
    "/run/first",
    "/run/team/second",
    "/report/first",
    "/start",
    "/compare?run=first&run=team/second",
]


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_there_and_strict(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'unsafe-inline'" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    if not path.startswith("/report"):
        assert re.findall(r"<script(?! src=)|<style| on\w+=|javascript:", answer.text) == []


def test_the_report_is_the_one_of_the_command(client: TestClient, runs: Path) -> None:
    from hubscout.report import open_run, render

    answer = client.get("/report/first")
    assert answer.text == render(open_run(runs / "first"))
    [meta] = re.findall(r"script-src &#x27;(sha256-[^&]+)&#x27;", answer.text)
    assert meta in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/redoc",
        "/openapi.json",
        "/assets/../serve.py",
        "/assets/x",
        "/nothing",
        "/api/nothing",
        "/run/nothing",
        "/report/nothing",
        "/api/events/nothing",
        "/live/nothing",
        "/api/runs/nothing",
        "/run/team",
    ],
)
def test_nothing_else_is_there(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_every_name_is_escaped(open_client: Callable[..., TestClient], runs: Path, data: Path, zoo: str) -> None:
    name = "a&b'c"
    target = runs / name
    shutil.copytree(runs / "first", target)
    record = json.loads((target / "ranking.json").read_text())
    record["task"]["name"] = NASTY
    record["rows"][0]["identifier"] = f"timm/{NASTY}"
    record["failures"][0]["reason"] = NASTY
    record["metrics"][0] = NASTY
    (target / "ranking.json").write_text(json.dumps(record))
    events = [{"event": "started", "models": [NASTY]}, {"event": "model-failed", "model": NASTY, "reason": NASTY}]
    events.append({"event": "interrupted"})
    (target / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (target / "serve.log").write_text(NASTY)
    client = open_client()
    for path in ("/", "/?q=%3Cscript%3E", f"/run/{name.replace('&', '%26')}", "/rows"):
        text = client.get(path).text
        assert "<script>alert" not in text
        assert "alert(" in text or "?q" in path
    answer = client.get("/compare", params={"run": [name, "team/second"]})
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    with client.stream("GET", f"/live/{name.replace('&', '%26')}") as stream:
        assert "<script>alert" not in "".join(stream.iter_text())


def test_posts_need_the_form_token(client: TestClient) -> None:
    posts = [route for route in client.app.routes if "POST" in getattr(route, "methods", ())]  # type: ignore[attr-defined]
    assert len(posts) == 6
    for route in posts:
        path = route.path.replace("{name:path}", "first")  # type: ignore[attr-defined]
        if path == "/login":
            continue
        for headers, fields in (({}, {}), ({"X-CSRF-Token": "wrong"}, {}), ({}, {"csrf": "wrong"})):
            assert client.post(path, headers=headers, data=fields).status_code == 403, path
        foreign = {**csrf(client), "Origin": "http://evil.example"}
        assert client.post(path, headers=foreign, data={}).status_code == 403


def csrf(client: TestClient) -> dict[str, str]:
    return {"X-CSRF-Token": client.get("/api/session").json()["csrf"]}


def test_a_name_that_leads_here_from_elsewhere_gets_nothing(client: TestClient) -> None:
    for path in ("/", "/api/runs", "/assets/serve.css", "/login"):
        answer = client.get(path, headers={"Host": "evil.example:8765"})
        assert answer.status_code == 421
        assert "first" not in answer.text


def test_with_a_token_nothing_is_told_without_it(open_client: Callable[..., TestClient]) -> None:
    client = open_client(token="correct horse battery")
    for path in (*PAGES, "/api/runs", "/api/session", "/api/events/first", "/live/first"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert "second" not in answer.text
        assert "/run/" not in answer.text
    assert client.get("/", params={"token": "wrong"}).status_code == 401
    assert client.get("/api/runs", headers={"Authorization": "Bearer correct horse battery"}).status_code == 200
    assert client.post("/login", data={"token": "wrong"}).status_code == 401
    answer = client.get("/", params={"token": "correct horse battery"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "correct" not in cookie
    assert client.get("/").status_code == 200
    again = open_client(token="correct horse battery")
    assert again.post("/login", data={"token": "correct horse battery"}).status_code == 303
    assert again.get("/run/first").status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 422),
        (b"[]", "application/json", 422),
        (b"x" * 100_000, "application/json", 413),
        (b"\xff\xfe", "application/x-www-form-urlencoded", 422),
        (b"{}", "application/json", 422),
    ],
)
def test_requests_that_make_no_sense(client: TestClient, body: bytes, kind: str, status: int) -> None:
    headers = {**csrf(client), "Content-Type": kind}
    answer = client.post("/api/runs", content=body, headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_the_form_comes_back_filled_in_with_what_was_wrong(client: TestClient, zoo: str) -> None:
    fields = {
        "name": "first",
        "data": "colours",
        "models": [f"{zoo}:colours", "timm/x"],
        "csrf": csrf(client)["X-CSRF-Token"],
    }
    answer = client.post("/start", data=fields)
    assert answer.status_code == 422
    assert "choose another" in answer.text
    assert 'value="first"' in answer.text
    assert f'value="{zoo}:colours" checked' in answer.text
    assert ">timm/x</textarea>" in answer.text


def test_the_interface_tells_runs(client: TestClient, runs: Path) -> None:
    listed = client.get("/api/runs", params={"q": "second"}).json()["runs"]
    assert [run["name"] for run in listed] == ["team/second"]
    one = client.get("/api/runs/first").json()
    assert one["state"] == "finished"
    assert one["ranking"] == json.loads((runs / "first" / "ranking.json").read_text())
    with client.stream("GET", "/api/events/first") as stream:
        text = "".join(stream.iter_text())
    assert stream.headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)
    kinds = [json.loads(told)["line"]["event"] for event, told in events if event == "line"]
    assert kinds[0] == "started"
    assert kinds[-1] == "finished"
    assert events[-1] == ("end", '{"state": "finished"}')


def test_compare_says_what_differs(client: TestClient) -> None:
    answer = client.get("/compare?run=first&run=team/second")
    rows = re.findall(r"<tr class=\"differs\"><th scope=\"row\">([^<]+)", answer.text)
    assert {"Training samples", "Metrics", "Models"} <= set(rows)
    assert not {"Task", "Time", "Seed"} & set(rows)
    assert "2 of 3 models are in both runs" in answer.text
    assert client.get("/compare?run=first").status_code == 422
    assert client.get("/compare?run=first&run=first").status_code == 422
    assert client.get("/compare?run=first&run=../first").status_code == 404


def write_tuning_run(
    folder: Path, score: float, teachers: tuple[str, ...], model: str = "timm/small", **arguments: Any
) -> None:
    record = TuningRecord(
        task="colours",
        task_fingerprint="f" * 16,
        kind="classification",
        model=model,
        teachers=teachers,
        method="b-tuning",
        metrics={"test": {"accuracy": (score, score - 0.05, score + 0.05)}},
        sizes={"train": 60},
        notes=(f"at {arguments.get('learning_rate')}",),
        arguments={"seed": 0, "batch_size": 48, "lora_rank": None, **arguments},
    )
    lines = [{"event": "validation", "step": 1, "epoch": 1.0, "metrics": {"accuracy": score}, "best": True}]
    write_tuning(folder, record, lines)


def test_two_tunings_tell_their_settings_and_each_its_own_teachers(client: TestClient, runs: Path) -> None:
    write_tuning_run(runs / "slow", 0.8, ("timm/large",), learning_rate=0.001)
    write_tuning_run(runs / "fast", 0.9, ("timm/huge", "timm/giant"), learning_rate=0.1)
    page = client.get("/compare?run=slow&run=fast").text
    differ = re.findall(r"<tr class=\"differs\"><th scope=\"row\">([^<]+)", page)
    assert differ == ["Teachers", "learning rate"]
    assert "batch size" in page[page.index("more settings, the same in both") :]
    assert "slow: small, taught by large. fast: small, taught by huge and giant." in page
    assert "<li>slow: at 0.001</li><li>fast: at 0.1</li>" in page  # whose note it is


def test_two_tunings_of_different_models_are_called_by_their_runs(client: TestClient, runs: Path) -> None:
    write_tuning_run(runs / "slow", 0.8, (), model="timm/small")
    write_tuning_run(runs / "fast", 0.9, (), model="timm/another_small_one")
    page = client.get("/compare?run=slow&run=fast").text
    assert re.findall(r'<text [^>]*class="name start series-\d">([^<]+)', page)[:2] == [
        "b-tuning (slow)",
        "b-tuning (fast)",
    ]


def test_many_runs_are_one_table_with_settings_sorted_and_as_csv(client: TestClient, runs: Path) -> None:
    for name, score in (("worse", 0.7), ("better", 0.9)):
        write_tuning_run(runs / name, score, (), learning_rate=score * 2)
    names = ["first", "worse", "team/second", "better"]
    page = client.get("/compare", params={"run": names}).text
    heads = re.findall(r'<th scope="col" aria-sort="none"[^>]*><button type="button">([^<]+)', page)
    # None of them has teachers, and settings of the one kind are no columns of dashes beside the other.
    assert heads[:8] == ["Run", "Kind", "Task", "Model", "Method", "Metric", "Score", "Error"]
    assert heads[8:] == ["learning rate", "limit", "metrics"]
    order = re.findall(r'scope="row" data-value="([^"]+)"', page)
    assert order.index("better") < order.index("worse")
    assert set(order) == set(names)
    assert "cannot be compared with each other" in page
    answer = client.get("/compare.csv", params={"run": names})
    assert answer.headers["content-type"].startswith("text/csv")
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert [line["run"] for line in lines] == order
    assert {line["learning rate"] for line in lines} == {"", "1.4", "1.8"}
    assert float(next(line["score"] for line in lines if line["run"] == "better")) == 0.9


def test_a_run_that_was_not_started_here_is_not_stopped(client: TestClient) -> None:
    answer: Any = client.post("/api/stop/first", headers=csrf(client))
    assert answer.status_code == 422
    assert "not started here" in answer.json()["error"]
