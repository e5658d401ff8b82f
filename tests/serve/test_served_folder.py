from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubscout.errors import InputError
from hubscout.serve.served_folder import Folder, NotHereError, links_in, read_real, real_files

BAD = [
    "",
    ".",
    "..",
    "../secret",
    "run/../../secret",
    "/etc/passwd",
    "//etc/passwd",
    "run/",
    "/run",
    "run//ranking.json",
    "..\\secret",
    "run\\..\\..\\secret",
    "C:\\Windows",
    "C:",
    "run\0",
    "\0",
    "run\n",
    ".hidden",
    "run/.hidden",
    "%2e%2e/secret",
    "~",
    "~/x",
    "a/b/c/d/e/f",
    "x" * 5000,
    "run/ranking.json:stream",
]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "secret").write_text("outside")
    inside = tmp_path / "runs" / "run"
    inside.mkdir(parents=True)
    (inside / "ranking.json").write_text("{}")
    (inside / ".hidden").write_text("no")
    return Folder.open(tmp_path / "runs", "RUNS")


def test_a_name_leads_inside(folder: Folder) -> None:
    assert folder.find("run") == folder.path / "run"
    assert folder.find("run/ranking.json").read_text() == "{}"
    assert folder.name_of(folder.find("run/ranking.json")) == "run/ranking.json"


@pytest.mark.parametrize("name", BAD)
def test_no_name_leads_out(folder: Folder, name: str) -> None:
    with pytest.raises(NotHereError, match=r"There is no such run"):
        folder.find(name)


@given(
    st.one_of(
        st.text(max_size=30), st.lists(st.sampled_from(["..", ".", "run", "", "/", "\\", "secret"])).map("/".join)
    )
)
def test_whatever_is_asked_is_inside_or_nothing(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    base = tmp_path_factory.getbasetemp() / "any"
    (base / "runs" / "run").mkdir(parents=True, exist_ok=True)
    (base / "secret").touch()
    folder = Folder.open(base / "runs", "RUNS")
    try:
        found = folder.find(name)
    except NotHereError:
        return
    assert found.resolve().is_relative_to(folder.path)
    assert found.resolve() != folder.path


def test_links_are_not_followed_wherever_they_lead(folder: Folder, tmp_path: Path) -> None:
    (folder.path / "out").symlink_to(tmp_path)
    (folder.path / "in").symlink_to(folder.path / "run")
    (folder.path / "file").symlink_to(tmp_path / "secret")
    (folder.path / "run" / "events.jsonl").symlink_to(tmp_path / "secret")
    for name in ("out", "out/secret", "in", "in/ranking.json", "file", "run/events.jsonl"):
        with pytest.raises(NotHereError):
            folder.find(name)
    assert read_real(folder.path / "run" / "events.jsonl") == b""
    assert [path.name for path in real_files(folder.path)] == ["ranking.json"]
    assert {path.name for path in links_in(folder.path)} == {"out", "in", "file", "events.jsonl"}


def test_the_folder_itself_may_be_a_link(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.path)
    assert Folder.open(tmp_path / "link", "RUNS").find("run").is_dir()
    with pytest.raises(InputError, match="RUNS"):
        Folder.open(tmp_path / "nothing", "RUNS")


def test_only_the_end_of_a_file_is_read_if_asked(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abcdef")
    assert read_real(tmp_path / "log", last_bytes=2) == b"ef"
    assert read_real(tmp_path / "log", last_bytes=99) == b"abcdef"
    assert read_real(tmp_path / "none") == b""
    assert read_real(tmp_path) == b""
