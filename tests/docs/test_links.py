"""Every relative link of every page leads to a file of the repository; the site gets addresses of its own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from links import for_the_site, links_of

REPOSITORY = Path(__file__).resolve().parents[2]


def pages() -> list[str]:
    """Every page of the repository; not what lies about unversioned, such as notes and environments."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    return listed or ["README.md", *(str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", pages())
def test_every_relative_link_leads_to_a_file(page: str) -> None:
    path = REPOSITORY / page
    links = [link for link in links_of(path.read_text(encoding="utf-8")) if link.is_relative]
    assert [link.target for link in links if not (path.parent / link.target).exists()] == []


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith(("README", "docs/"))])
def test_every_link_to_a_heading_leads_to_one(page: str) -> None:
    path = REPOSITORY / page
    for target, anchor in re.findall(r"\]\(([^()\s#]*\.md|)#([\w-]+)\)", path.read_text(encoding="utf-8")):
        text = (path.parent / target if target else path).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, (target, anchor)


@pytest.mark.parametrize(
    ("link", "on_site"),
    [
        ("../../src/hubscout/metrics", "../metrics/index.md"),
        ("../../src/hubscout/cli", "../reference/commands.md"),
        ("../../src/hubscout/tuning/methods/b_tuning.py", "../methods/b-tuning.md"),
        ("../../src/hubscout/evidence", "../reference/evidence.md"),
        ("../../experiments/race/figure.png", "../figures/race-figure.png"),
        ("../../LICENSE", "https://github.com/hubscout/hubscout/blob/main/LICENSE"),
        ("../tools/session.py", "https://github.com/hubscout/hubscout/blob/main/docs/tools/session.py"),
        ("csv.md#two-columns", "csv.md#two-columns"),
        ("https://example.org/a", "https://example.org/a"),
    ],
)
def test_the_site_gets_links_to_its_own_pages(link: str, on_site: str) -> None:
    assert for_the_site(f"see [this]({link}), `[not]({link})`", "docs/how-to/a.md") == (
        f"see [this]({on_site}), `[not]({link})`"
    )


def test_the_product_is_shown_in_pictures() -> None:
    """Small ones, and none that a program of the documentation does not draw."""
    for page, wanted in {
        "README.md": "report-ranking.png",
        "docs/index.md": "report-ranking.png",
        "docs/how-to/report.md": "report-ranking.png",
        "docs/first-session.md": "session.svg",
    }.items():
        links = [link.target for link in links_of((REPOSITORY / page).read_text(encoding="utf-8"))]
        assert any(target.endswith(wanted) for target in links), page
    drawn = (REPOSITORY / "docs" / "tools" / "session.py").read_text(encoding="utf-8")
    pictures = [path for path in (REPOSITORY / "docs" / "assets").iterdir() if path.suffix in (".png", ".jpg", ".svg")]
    for path in pictures:
        assert path.stat().st_size < 200_000, path.name
        assert path.name == "architecture.svg" or path.name in drawn, path.name
        if path.suffix == ".svg":
            assert not re.search(r"https?://(?!www\.w3\.org)", path.read_text(encoding="utf-8")), path.name


def test_results_are_one_click_from_the_landing_page() -> None:
    links = [link.target for link in links_of((REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8"))]
    assert "results.md" in links
