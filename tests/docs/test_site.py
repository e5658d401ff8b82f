"""The site builds without a warning, has a page for everything that is registered, and loads nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(common: Path) -> Path:
    """The built site; one test process builds it for all."""
    from filelock import FileLock

    folder = common / "site"
    with FileLock(common / "site.lock"):
        if not (folder / "sitemap.xml").is_file():
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
                cwd=REPOSITORY,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "WARNING" not in done.stderr
    return folder


def test_every_metric_has_a_page_with_its_formula(site: Path) -> None:
    from hubscout.metrics import METRICS

    listed = (site / "metrics" / "index.html").read_text()
    for name in METRICS:
        assert f'href="{name}.html"' in listed
        page = (site / "metrics" / f"{name}.html").read_text()
        assert METRICS[name].function.__name__ in page


def test_every_method_has_a_page(site: Path) -> None:
    from hubscout.tuning import METHODS

    for name in METHODS:
        assert "loss" in (site / "methods" / f"{name}.html").read_text()


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    import typer.main

    from hubscout.cli.app import app

    group = typer.main.get_command(app)
    context = group.make_context("hubscout", ["doctor"], resilient_parsing=True)
    page = (site / "reference" / "commands.html").read_text()
    for name in group.list_commands(context):
        assert f"hubscout {name}" in page
        command = group.get_command(context, name)
        for parameter in () if hasattr(command, "commands") else command.params:
            assert all(option in page for option in parameter.opts if option.startswith("--"))


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    import hubscout

    text = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    for name in hubscout.__all__:
        if not name.startswith("__"):
            assert re.search(rf'id="hubscout\.[\w.]*\.{name}"', text), name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]+src=\"(https?:)?//|<link[^>]+stylesheet[^>]+href=\"https?://"
    )
    for path in site.rglob("*.html"):
        assert not loaded.search(path.read_text()), path.name
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?https?:|@import ['\"]https?:", styles)


def test_the_notebook_is_part_of_the_site(site: Path) -> None:
    notebook = json.loads((site / "tutorial.ipynb").read_text())
    assert notebook["cells"][0]["source"][0].startswith("# Tutorial")


def test_examples_in_docstrings_are_blocks_of_code(site: Path) -> None:
    assert "<blockquote>" not in (site / "metrics" / "logme.html").read_text()


def test_lines_break_within_the_name_of_a_test_and_not_within_an_option(site: Path) -> None:
    assert "<code>tests/<wbr>cli/<wbr>test_<wbr>predict.py::<wbr>test_" in (site / "reliability.html").read_text()
    assert '<code><span class="option">--patience</span> 3</code>' in (site / "how-to" / "tune.html").read_text()
    assert ".option { white-space: nowrap; }" in (site / "assets" / "wide.css").read_text()


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    lost = []
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            path = target.partition("#")[0].partition("?")[0]
            if path and not re.match(r"\w+:", path) and page.name != "404.html" and not (page.parent / path).exists():
                lost.append(f"{page.relative_to(site)}: {target}")
    assert lost == []


@pytest.mark.browser
def test_a_site_opened_from_a_file_can_be_searched(site: Path, browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "how-to" / "csv.html").as_uri())
    page.click(".md-search__input")
    page.locator(".md-search__input").press_sequentially("patience")
    page.wait_for_selector(".md-search-result__item")
    found = [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]
    assert any("reference/tuning.html" in address for address in found)
    assert [url for url in asked if not url.startswith("file:")] == []
    page.close()
