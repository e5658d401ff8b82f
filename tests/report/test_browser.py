"""The page in a real browser: it works, it is quiet, and nothing leaves the machine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubscout.ranking import Ranking
from hubscout.report import Run, write_report
from hubscout.runs.row import Expected, Failure
from hubscout.runs.texts import short_names

pytestmark = pytest.mark.browser

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


class Opened:
    """A page that was opened, with everything it said to the console and asked of the network."""

    def __init__(self, browser: Any, path: Path, viewport: dict[str, int], scheme: str = "light") -> None:
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme, has_touch=viewport is PHONE)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def shown_models(self) -> list[str]:
        return self.page.locator("#models tbody tr:visible .pin").all_inner_texts()


@pytest.fixture(scope="session")
def page_file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(run, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def open_page(browser: Any, page_file: Path) -> Iterator[Callable[..., Opened]]:
    opened: list[Opened] = []

    def make(viewport: dict[str, int] = DESK, scheme: str = "light", path: Path = page_file) -> Opened:
        opened.append(Opened(browser, path, viewport, scheme))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()
        assert one.problems == []
        assert len(set(one.requests)) == 1  # the page itself, from its file
        assert one.requests[0].startswith("file://")


def test_the_table_sorts(open_page: Callable[..., Opened], run: Run) -> None:
    opened = open_page()
    page = opened.page
    assert opened.shown_models() == run.view.names
    page.get_by_role("button", name="Params").click()
    sizes = [int(v) for v in page.locator("#models tbody tr").evaluate_all("rows => rows.map(r => r.dataset.params)")]
    assert sizes == sorted(sizes)
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Params")
    page.get_by_role("button", name="Params").click()
    assert (
        opened.shown_models()[0]
        == min(run.ranking, key=lambda row: -row.params).identifier.partition("name=")[2].partition("&")[0]
    )
    page.get_by_role("button", name="#").click()
    assert opened.shown_models() == run.view.names


def test_the_table_filters(open_page: Callable[..., Opened], run: Run) -> None:
    opened = open_page()
    opened.page.get_by_label("Find a model").fill("WIDE")
    assert opened.shown_models() == ["wide"]
    assert opened.page.locator("#filter-count").inner_text() == f"1 of {len(run.ranking)} models"
    opened.page.get_by_label("Find a model").fill("")
    opened.page.get_by_label("Max. parameters, in millions").fill("0.004")
    small = [name for name, row in zip(run.view.names, run.ranking, strict=True) if row.params <= 4000]
    assert opened.shown_models() == small
    opened.page.get_by_label("Find a model").press("Enter")  # must not leave the page
    assert opened.shown_models() == small


def test_a_point_says_what_it_is_and_can_be_pinned(open_page: Callable[..., Opened], run: Run) -> None:
    page = open_page().page
    point = page.locator("#cost .panel:visible svg.wide .point").first
    tip = page.locator("#tip")
    assert tip.is_hidden()
    point.hover()
    tip.wait_for(state="visible")
    assert run.ranking[0].identifier in tip.inner_text()
    point.click()
    pins = page.locator("#pins")
    assert pins.inner_text() == run.view.names[0]
    assert page.locator("#models tr.pinned").count() == 1
    assert page.locator("#metrics .panel:visible svg.wide .point.pinned").count() == 1
    assert point.get_attribute("aria-pressed") == "true"
    pins.get_by_role("button").click()
    assert pins.is_hidden()
    assert page.locator(".pinned").count() == 0


def test_charts_work_by_keyboard(open_page: Callable[..., Opened], run: Run) -> None:
    page = open_page().page
    points = page.locator("#cost .panel:visible svg.wide .point")
    points.first.focus()
    assert run.ranking[0].identifier in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert run.ranking[1].identifier in page.locator("#tip").inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#pins").inner_text() == run.view.names[1]
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_cost_can_be_chosen(open_page: Callable[..., Opened]) -> None:
    page = open_page().page
    charts = page.locator("#cost .panel:visible svg.wide")
    assert charts.count() == 1
    before = charts.get_attribute("aria-label")
    page.get_by_role("radio", name="Latency of one sample").check()
    assert charts.count() == 1
    assert charts.get_attribute("aria-label") != before


def test_a_cell_of_the_matrix_shows_its_pair(open_page: Callable[..., Opened]) -> None:
    page = open_page().page
    page.locator("#agreement button", has_text=".").last.click()
    assert page.locator("#metrics select").input_value() == "pair-1-2"
    assert "knn against h-score" in page.locator("#metrics .panel:visible svg.wide").get_attribute("aria-label")


def test_the_theme_changes_and_stays(open_page: Callable[..., Opened]) -> None:
    page = open_page().page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    assert page.evaluate(colour) == dark
    page.get_by_role("button", name="Light theme").click()
    assert page.evaluate(colour) == light


def test_the_system_theme_is_followed(open_page: Callable[..., Opened]) -> None:
    assert (
        open_page(scheme="dark").page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
    )


def test_the_next_command_is_copied(open_page: Callable[..., Opened]) -> None:
    opened = open_page()
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.page.locator("#answer .copy").click()
    opened.page.locator("#answer .copy", has_text="Copied").wait_for()
    assert opened.page.evaluate("navigator.clipboard.readText()").startswith("hubscout tune")


def test_on_a_phone_nothing_makes_the_page_scroll_sideways(open_page: Callable[..., Opened]) -> None:
    page = open_page(PHONE).page
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.locator("#cost svg.wide").first.is_hidden()
    assert page.locator("#cost .panel:visible svg.narrow").is_visible()


NAMES_THAT_MEET = """() => {
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const found = [];
  for (const drawing of document.querySelectorAll("svg")) {
    if (!drawing.checkVisibility()) continue;
    const frame = drawing.getBoundingClientRect();
    const texts = [...drawing.querySelectorAll(".names text, .tick")];
    const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([name, box], index) => {
      if (box.left < frame.left - 2 || box.right > frame.right + 2) found.push(`${name} is cut`);
      for (const [other, there] of boxes.slice(index + 1)) if (meet(box, there)) found.push(`${name} over ${other}`);
    });
  }
  return found;
}"""


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_no_name_covers_another_or_is_cut(open_page: Callable[..., Opened], viewport: dict[str, int]) -> None:
    page = open_page(viewport).page
    assert page.evaluate(NAMES_THAT_MEET) == []


def test_many_classes_can_be_found(
    open_page: Callable[..., Opened], make_ranking: Callable[..., Ranking], tmp_path: Path
) -> None:
    targets = tuple(f"class {index}" for index in range(100))
    ranking = make_ranking([f"timm/model_{index}" for index in range(20)], targets=targets)
    page = open_page(path=write_report(Run(ranking=ranking), tmp_path / "many.html")).page
    rows = page.locator("#heat tbody tr")
    assert rows.count() == 12
    page.get_by_label("Find among 100 classes").fill("class 9")
    assert rows.count() == 11  # 9 and 90 to 99
    page.get_by_label("Find among 100 classes").fill("")
    page.get_by_role("button", name="Show all 100").click()
    assert rows.count() == 100
    heads = page.locator("#heat thead th")
    assert heads.count() == 17
    page.locator("#models .pin").last.click()
    assert heads.count() == 18
    assert page.evaluate(NAMES_THAT_MEET) == []


def test_names_that_are_scripts_do_nothing(
    open_page: Callable[..., Opened], make_ranking: Callable[..., Ranking], tmp_path: Path
) -> None:
    attacks = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(2)>", "</script><script>alert(3)</script>"]
    ranking = make_ranking(attacks, targets=(*attacks, *(f"{attacks[1]}{index}" for index in range(20))))
    opened = open_page(path=write_report(Run(ranking=ranking), tmp_path / "nasty.html"))
    page = opened.page
    for pin in page.locator("#models .pin").all():
        pin.click()
    page.locator("#cost .panel:visible svg.wide .point").first.hover()
    page.get_by_role("button", name="Show all 23").click()
    assert page.locator("#pins button").all_inner_texts() == short_names([row.identifier for row in ranking])
    assert page.locator("img").count() == 0


def test_without_scripts_everything_is_there_to_read(browser: Any, page_file: Path, run: Run) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=DESK)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("#models tbody tr").count() == len(run.ranking)
    assert page.locator("#cost svg.wide").count() == page.locator("#cost svg.wide:visible").count() == 2
    assert page.locator("#theme").is_hidden()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_screenshots(open_page: Callable[..., Opened], viewport: dict[str, int], scheme: str, artefacts: Path) -> None:
    name = f"report-{'phone' if viewport is PHONE else 'desk'}-{scheme}.png"
    open_page(viewport, scheme).page.screenshot(path=artefacts / name, full_page=True)
    assert (artefacts / name).stat().st_size > 50_000


CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
  };
  const found = [];
  const texts = "h1, h2, h3, p, th, td, label, figcaption, summary, small, svg text, .badge, code, dt, dd, a, button";
  for (const element of document.querySelectorAll(texts)) {
    if (!element.checkVisibility() || !element.textContent.trim()) continue;
    const style = getComputedStyle(element);
    const front = luminance(element.matches("svg text") ? style.fill : style.color);
    const back = luminance(behind(element));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    const look = element.className.baseVal ?? element.className;
    if (ratio < 4.5) found.push(`${element.tagName} ${look}: ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out_from_what_is_behind_it(open_page: Callable[..., Opened], scheme: str) -> None:
    assert open_page(scheme=scheme).page.evaluate(CONTRASTS) == []


def test_every_control_has_a_name(open_page: Callable[..., Opened]) -> None:
    page = open_page().page
    nameless = """() => [...document.querySelectorAll("button, input, select, a, [role=button], [role=region]")].filter(
      (one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.[0]?.textContent.trim())
    ).map((one) => one.outerHTML)"""
    assert page.evaluate(nameless) == []


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_why_a_model_failed_is_read_without_scrolling(
    open_page: Callable[..., Opened], make_ranking: Callable[..., Ranking], tmp_path: Path, viewport: dict[str, int]
) -> None:
    reason = "expected 512 rows, found 768 in encoder.layer.3.attention.output.dense.weight; " * 3
    failed = Failure(identifier="python:my_models.py:network?weights=old", error="ModelNotFoundError", reason=reason)
    path = write_report(Run(ranking=make_ranking(["timm/a"], failures=(failed,))), tmp_path / "report.html")
    page = open_page(viewport, path=path).page
    box = page.locator(".scroll:has(> .failures)")
    assert box.evaluate("e => e.scrollWidth - e.clientWidth") == 0
    assert page.locator(".failures td").last.bounding_box()["width"] > 300


def test_names_above_a_table_of_classes_are_whole(
    open_page: Callable[..., Opened], make_ranking: Callable[..., Ranking], tmp_path: Path
) -> None:
    ranking = make_ranking([f"timm/WWWWWWWWWWWWW_of_width_{width}" for width in range(3)])
    page = open_page(path=write_report(Run(ranking=ranking), tmp_path / "report.html")).page
    top = page.locator(".scroll:has(> #heat)").bounding_box()["y"]
    for name in page.locator("#heat thead span").all():
        assert name.evaluate("e => e.scrollHeight <= e.clientHeight")
        assert name.bounding_box()["y"] >= top


@pytest.fixture(scope="module")
def long_page(make_ranking: Callable[..., Ranking], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty models with every metric there is."""
    metrics = ("logme", "knn", "h-score", "nleep", "leep", "linear-probe", "transrate", "gbc")
    ranking = make_ranking([f"timm/a_model_with_a_rather_long_name.version_{index}" for index in range(60)])
    rows = tuple(replace(row, scores=dict.fromkeys(metrics, row.score)) for row in ranking.rows)
    path = tmp_path_factory.mktemp("long") / "report.html"
    return write_report(Run(ranking=replace(ranking, rows=rows, metrics=metrics)), path)


def test_a_long_table_is_folded_until_somebody_asks(browser: Any, long_page: Path) -> None:
    page = browser.new_page()
    page.goto(long_page.as_uri())
    rows = page.locator("#models tbody tr:visible")
    assert rows.count() == 25
    page.get_by_role("button", name="Show all 60 models").click()
    assert rows.count() == 60
    page.get_by_role("button", name="Show the first 25").click()
    page.get_by_label("Find a model").fill("version_5")
    assert rows.count() == 11  # 5 and 50 to 59, wherever they stand in the order
    page.close()


def test_head_and_names_stay_in_place_while_a_table_scrolls(browser: Any, long_page: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    page.goto(long_page.as_uri())
    page.get_by_role("button", name="Show all 60 models").click()
    box = page.locator(".scroll:has(> #models)")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth && e.scrollHeight > e.clientHeight")
    name, head = page.locator("#models tbody th").nth(30), page.locator("#models thead th.names")
    box.evaluate("e => e.scrollTo(400, 600)")
    frame = box.bounding_box()
    assert abs(name.bounding_box()["x"] - frame["x"]) < 1
    assert abs(head.bounding_box()["x"] - frame["x"]) < 1
    assert abs(head.bounding_box()["y"] - frame["y"]) < 1
    page.close()


def test_the_table_of_a_usual_run_fits_a_wide_window(
    open_page: Callable[..., Opened], make_ranking: Callable[..., Ranking], tmp_path: Path
) -> None:
    ranking = make_ranking(["timm/mobilenetv3_small_100.lamb_in1k", "pypi/efficientnet-lite0?input_size=64"])
    accuracy = Expected(metric="accuracy", value=0.447, low=0.399, high=0.496, guess=0.028)
    full = {"expected": (accuracy,), "samples_per_second": 76.3, "seconds": 150.0, "latency_busy": True}
    rows = [replace(row, scores={**row.scores, "h-score": 30.0650}, **full) for row in ranking.rows]
    ranking = replace(ranking, rows=tuple(rows), metrics=("logme", "knn", "h-score"))
    path = write_report(Run(ranking=ranking), tmp_path / "report.html")
    page = open_page(viewport={"width": 1440, "height": 900}, path=path).page
    assert page.locator(".scroll:has(> #models)").evaluate("e => e.scrollWidth - e.clientWidth") == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 1440


def test_print_keeps_colours_dark_cells_and_folded_rows(browser: Any, long_page: Path, page_file: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(page_file.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    hot = page.locator("#heat td.hot").first
    shown = "e => { const s = getComputedStyle(e); return [s.printColorAdjust, s.backgroundColor]; }"
    adjust, colour = hot.evaluate(shown)
    assert adjust == "exact"
    assert colour != "rgba(0, 0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 with its margins
    assert page.evaluate("document.documentElement.scrollWidth") == 720
    page.goto(long_page.as_uri())
    page.emulate_media(media="print")
    assert page.locator("#models tbody tr:visible").count() == 60
    page.close()
