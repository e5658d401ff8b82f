import pytest

from hubscout.errors import InputError
from hubscout.serve.security import Guard

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
