"""The pages in a real browser, over a real server: live runs, comparing, starting and stopping."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
Serve = Callable[..., Any]


class Opened:
    """A page with everything it said to the console and asked of the network."""

    def __init__(self, browser: Any, served: Any, viewport: dict[str, int], scheme: str) -> None:
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme, base_url=served.address)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.address = served.address
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    opened: list[Opened] = []

    def make(served: Any, path: str = "/", viewport: dict[str, int] = DESK, scheme: str = "light") -> Any:
        opened.append(Opened(browser, served, viewport, scheme))
        opened[-1].page.goto(path)
        return opened[-1].page

    yield make
    for one in opened:
        one.context.close()
        assert one.problems == []
        assert all(url.startswith((one.address, "data:")) for url in one.requests)


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_a_ranking_is_started_watched_and_finished(
    serve: Serve, open_page: Callable[..., Any], runs: Path, zoo: str, artefacts: Path
) -> None:
    served = serve(runs)
    page = open_page(served)
    page.get_by_role("link", name="Start a run").first.click()
    page.get_by_label("Data").select_option("colours")
    assert page.get_by_label("Name of the run").input_value().startswith("colours-")
    page.get_by_label("Name of the run").fill("watched")
    for model in ("steady", "red", "broken"):
        page.get_by_label(model, exact=True).check()
    page.get_by_text("More options", exact=True).click()
    page.get_by_label("Number of samples").fill("60")
    page.screenshot(path=artefacts / "serve-start.png", full_page=True)
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/run/watched")
    assert page.locator("#actions .state").inner_text() == "running"
    page.locator("#progress .state.running").first.wait_for()
    elapsed = page.locator("#live .facts dd").first
    before = elapsed.inner_text()
    page.screenshot(path=artefacts / "serve-live.png", full_page=True)
    page.wait_for_function(
        "before => document.querySelector('#live .facts dd')?.textContent !== before",
        arg=before,
    )
    page.locator("#actions .state.finished").wait_for()
    assert page.locator("#said").inner_text() == "The run is finished."
    assert page.locator("#live-status").inner_text() == "2 of 3 models done, 1 failed"
    assert "these weights are <b>cursed</b>" in page.locator("#progress").inner_text()
    assert page.locator("#progress tbody th").first.inner_text() == "steady"
    table, why = page.locator("#progress").bounding_box(), page.locator("#progress .why td").first.bounding_box()
    assert why["width"] > 0.9 * table["width"], "a reason is read: it has the width of the table"
    page.screenshot(path=artefacts / "serve-finished.png", full_page=True)
    page.get_by_role("link", name="Open the report").click()
    page.wait_for_url("**/report/watched")
    assert "Start from" in page.locator("#answer").inner_text()
    page.get_by_role("button", name="Dark theme").click()
    page.goto("/")
    assert page.get_by_role("button", name="Light theme").is_visible()  # the pages share the choice


def test_a_ranking_is_stopped_and_keeps_what_is_finished(
    serve: Serve, open_page: Callable[..., Any], runs: Path, zoo: str, artefacts: Path
) -> None:
    served = serve(runs)
    with served.client() as client:
        models = [f"{zoo}:colours", f"{zoo}:endless"]
        wanted = {"name": "stopped", "data": "colours", "models": models}
        assert client.post("/api/runs", json=wanted, headers=served.csrf()).status_code == 201
    page = open_page(served)
    page.get_by_role("link", name="stopped").click()
    page.locator("#progress .state.done").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("#actions .state.interrupted").wait_for()
    assert page.get_by_role("button", name="Resume").is_visible()
    assert "1 of 2 models are finished and saved" in page.locator(".log").inner_text()
    page.screenshot(path=artefacts / "serve-stopped.png", full_page=True)


def test_a_tuning_is_watched_to_its_end(
    serve: Serve, open_page: Callable[..., Any], runs: Path, data: Path, zoo: str, artefacts: Path
) -> None:
    from hubscout.tasks import open_task
    from hubscout.tuning import tune

    served = serve(runs)
    go_on = threading.Event()

    def observe(event: Any) -> None:
        if type(event).__name__ == "Validated":
            go_on.wait(60)  # not before somebody watches

    def work() -> None:
        task = open_task(data / "colours")
        tune(task, f"{zoo}:red", (), "fine-tune", out=runs / "tuned", epochs=4, device="cpu", observer=observe)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        page = open_page(served)
        page.get_by_role("link", name="tuned").wait_for()  # the list looks again by itself
        page.get_by_role("link", name="tuned").click()
        page.locator("#live svg.wide").first.wait_for()
        before = page.locator("#live-status").inner_text()
        go_on.set()
        page.locator("#actions .state.finished").wait_for()
    finally:
        go_on.set()
        thread.join()
    assert page.locator("#live-status").inner_text() != before
    assert page.locator("#live .dot").count() >= 4
    page.locator("#live svg.wide .dot").first.hover()
    assert page.locator("#tip").is_visible()
    page.screenshot(path=artefacts / "serve-tuned.png", full_page=True)


@pytest.fixture
def still(serve: Serve, runs: Path) -> Any:
    """A server over finished runs."""
    return serve(runs)


def test_two_runs_are_found_and_compared(still: Any, open_page: Callable[..., Any], artefacts: Path) -> None:
    page = open_page(still)
    assert page.locator("#rows tr").count() == 2
    assert page.locator("#compare").is_disabled()
    page.get_by_label("Find a run").fill("second")
    page.locator("#rows tr").nth(1).wait_for(state="detached")
    assert page.locator("#count").inner_text() == "1 run"
    page.get_by_label("Compare team/second").check()
    page.get_by_label("Find a run").fill("")
    page.get_by_label("Compare first").check()
    assert page.get_by_label("Compare team/second").is_checked()  # also while the search hid it
    page.screenshot(path=artefacts / "serve-list.png", full_page=True)
    page.get_by_role("button", name="Compare runs").click()
    page.locator("#facts").wait_for()
    assert page.locator("#facts tr.differs th[scope=row]", has_text="Training samples").count() == 1
    assert page.locator("#models tbody tr").count() == 3
    assert page.locator("svg.wide .model-slope").count() == 2
    page.screenshot(path=artefacts / "serve-compare.png", full_page=True)


def test_an_empty_folder_shows_its_first_run_as_soon_as_it_is_there(
    serve: Serve, open_page: Callable[..., Any], runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    page = open_page(serve(tmp_path / "empty"))
    assert page.locator("#none").is_visible()
    shutil.copytree(runs / "first", tmp_path / "empty" / "first")
    page.locator("#rows tr").wait_for()


def test_many_runs_are_sorted_by_a_click(still: Any, open_page: Callable[..., Any], runs: Path) -> None:
    shutil.copytree(runs / "first", runs / "third")
    page = open_page(still)
    page.goto("/compare?run=first&run=team/second&run=third")
    names = page.locator("table.sortable tbody th")
    assert names.count() == 3
    page.get_by_role("button", name="Run").click()
    assert names.all_inner_texts() == ["first", "team/second", "third"]
    page.get_by_role("button", name="Run").click()
    assert names.all_inner_texts() == ["third", "team/second", "first"]
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    assert Path(download.value.path()).read_text().startswith("run,kind,task")


def test_pages_fit_a_phone_and_the_dark(still: Any, open_page: Callable[..., Any], artefacts: Path) -> None:
    page = open_page(still, viewport=PHONE, scheme="dark")
    for name, path in (
        ("list", "/"),
        ("run", "/run/first"),
        ("start", "/start"),
        ("compare", "/compare?run=first&run=team/second"),
    ):
        page.goto(path)
        assert fits(page), path
        if path == "/":  # what won and how well is seen without scrolling
            assert page.locator("#runs thead th", has_text="Score").bounding_box()["x"] < PHONE["width"] - 40
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
        page.screenshot(path=artefacts / f"serve-{name}-phone.png", full_page=True)


def test_the_list_works_by_keyboard_alone(still: Any, open_page: Callable[..., Any]) -> None:
    page = open_page(still)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.get_by_label("Find a run").focus()
    page.keyboard.press("Tab")  # the box around the table scrolls, so it can be reached
    for _ in range(2):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == "run"
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
    page.get_by_role("button", name="Compare runs").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare?**")


def test_the_token_is_asked_for_and_taken(serve: Serve, runs: Path, browser: Any) -> None:
    served = serve(runs, "--token", "correct horse battery staple")
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.goto(served.address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_text("Wrong token.").wait_for()
    page.get_by_label("Token").fill("correct horse battery staple")
    page.get_by_role("button", name="Open").click()
    page.locator("#rows").wait_for()
    context.close()
