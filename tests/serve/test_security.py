from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from hubscout.errors import InputError
from hubscout.serve.security import Guard, guarded_protocol

LOCAL = Guard.make("127.0.0.1", 8765)
OPEN = Guard.make("0.0.0.0", 8765)


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "127.0.0.1", "LOCALHOST:8765"])
def test_names_of_this_machine_are_known(host: str) -> None:
    assert LOCAL.knows_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example:8765",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8765",
        "evil@127.0.0.1",
        "10.0.0.1:8765",
        "127.0.0.1:x",
        "[::1",
        "127.0.0.1/evil",
        "0.0.0.0:8765",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert not LOCAL.knows_host(host)


def test_a_server_for_others_always_has_a_token() -> None:
    assert LOCAL.token is None
    assert OPEN.token is not None
    assert len(OPEN.token) > 30
    assert OPEN.token not in repr(OPEN)
    assert Guard.make("192.168.0.4", 1).token is not None
    assert Guard.make("192.168.0.4", 1, "a token of my own").token == "a token of my own"
    assert not Guard.make("192.168.0.4", 1).knows_host("evil.example:1")
    assert OPEN.knows_host("machine.example:8765")
    with pytest.raises(InputError, match="at least 16"):
        Guard.make("0.0.0.0", 1, "short")


def test_only_the_token_or_its_cookie_opens() -> None:
    assert LOCAL.admits({})
    assert not OPEN.admits({})
    for wrong in ("", "Bearer", "Bearer ", "Bearer x", f"Basic {OPEN.token}", "Bearer täuschung", OPEN.token or ""):
        assert not OPEN.admits({"authorization": wrong})
    assert OPEN.admits({"authorization": f"Bearer {OPEN.token}"})
    assert OPEN.admits({"cookie": f"a=b; {OPEN.cookie_name}={OPEN.cookie}"})
    for wrong in ("", ";;;", f"{OPEN.cookie_name}={OPEN.token}", f"{OPEN.cookie_name}=", f"other={OPEN.cookie}"):
        assert not OPEN.admits({"cookie": wrong})


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "file://127.0.0.1:8765"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "cross-site"},
    ],
)
def test_a_change_asked_for_by_another_site_is_known(headers: dict[str, str]) -> None:
    assert not LOCAL.comes_from_here({"host": "127.0.0.1:8765", **headers})


@pytest.mark.parametrize("headers", [{}, {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}])
def test_our_own_pages_and_programs_may(headers: dict[str, str]) -> None:
    assert LOCAL.comes_from_here({"host": "127.0.0.1:8765", **headers})


Serve = Callable[..., Any]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and answers; `/slow` takes its time."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/slow":
        import asyncio

        await asyncio.sleep(1.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port() -> Iterator[int]:
    """A server of at most twenty connections, each with half a second for a request."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, http=guarded_protocol(20, 0.5), ws="none", lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield bound.getsockname()[1]
    server.should_exit = True
    thread.join(20)
    bound.close()


def ended(sock: socket.socket, seconds: float) -> bool:
    """Whether the other side closes within that time."""
    sock.settimeout(seconds)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"])
def test_half_a_request_is_not_waited_for(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(sent)
        assert ended(sock, 60)


def test_a_byte_now_and_then_does_not_buy_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        began = time.monotonic()
        try:
            while time.monotonic() - began < 60:
                sock.sendall(b"G")
                time.sleep(0.1)
        except ConnectionError:
            pass
        assert time.monotonic() - began < 50


def test_an_answer_may_take_longer_than_a_question(port: int) -> None:
    assert httpx.get(f"http://127.0.0.1:{port}/slow", trust_env=False, timeout=60).text == "ok"


def test_a_whole_request_gets_in_where_half_ones_take_every_place(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(b"GET / ")
        assert httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=60).text == "ok"


def test_where_all_are_at_work_the_next_is_told_to_come_back(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.3)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.settimeout(60)
            assert b" 503 " in sock.recv(100)


def test_seven_hundred_half_open_connections_do_not_close_the_page(serve: Serve, runs: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    served = serve(runs)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(700):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60))
            if number % 2:
                sock.sendall(b"GET / HTTP/1.1\r\nHost:")
        with served.client() as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/runs").status_code == 200
        import psutil

        assert len(psutil.Process(served.process.pid).net_connections()) < 600
