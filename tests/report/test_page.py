"""The page as text: what it holds, in which order, and that nothing in a run can break out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hubscout.ranking import Ranking
from hubscout.report import Run, open_run, render, write_report
from hubscout.report.page import render_check, sections
from hubscout.runs.data_check import DataCheck, Finding, Sample
from hubscout.runs.row import Failure

NASTY = "<script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(2)>"
CLOSING = "</script><script>alert(3)</script>"
VOID = {"meta", "input", "br", "hr", "img", "link", "wbr"}


class Elements(HTMLParser):
    """The elements of a page as a browser's parser sees them; fails on tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.identifiers: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_parts_of_a_real_run_in_order(run: Run) -> None:
    assert [part.anchor for part in sections(run)] == [
        "answer",
        "ranking",
        "cost",
        "metrics",
        "targets",
        "layers",
        "convergence",
        "by-target",
        "confusion",
        "samples",
        "tuning",
        "run",
    ]


def test_the_page_is_well_formed_small_and_asks_for_nothing(run: Run) -> None:
    page = render(run)
    elements = Elements(page)
    assert len(page.encode()) < 1_000_000
    assert not [tag for tag, _ in elements.seen if tag in {"link", "img", "iframe", "object", "embed"}]
    assert not [1 for _, found in elements.seen if {"src", "srcset", "action"} & set(found)]
    assert all(found["href"].startswith("#") for _, found in elements.seen if "href" in found)
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
    identifiers = [found["id"] for _, found in elements.seen if found.get("id")]
    assert len(identifiers) == len(set(identifiers))


def test_every_link_of_the_menu_leads_somewhere(run: Run) -> None:
    elements = Elements(render(run))
    anchors = {found["id"] for _, found in elements.seen if found.get("id")}
    links = [found["href"].removeprefix("#") for tag, found in elements.seen if tag == "a"]
    assert len(links) == 13
    assert set(links) <= anchors


def test_every_chart_has_its_numbers_as_a_table(run: Run) -> None:
    page = render(run)
    figures = re.findall(r'<figure class="chart".*?</figure>', page, flags=re.DOTALL)
    assert len(figures) > 8
    assert all("<table" in figure for figure in figures)
    assert all(figure.count("<svg") == 2 for figure in figures)  # for a desk and for a phone


def test_the_answer_names_the_best_model_and_the_next_command(run: Run) -> None:
    page = render(run)
    answer = page[page.index('id="answer"') : page.index('id="ranking"')]
    assert "Start from" in answer
    assert run.view.names[0] in answer
    assert "hubscout tune" in answer


@pytest.fixture
def nasty(make_ranking: Callable[..., Ranking]) -> Ranking:
    """A ranking in which every name is an attack."""
    ranking = make_ranking(
        [NASTY, QUOTES, CLOSING, "$x_1$ & <b>", "пингвин 🐧", "a" * 300],
        targets=(NASTY, QUOTES, CLOSING, "&amp;"),
        failures=(Failure(identifier=NASTY + "2", error=NASTY, reason=CLOSING),),
        environment={"command": ["hubscout", "rank", CLOSING], "packages": {NASTY: CLOSING}, "processor": NASTY},
        settings={NASTY: CLOSING},
    )
    task = replace(ranking.task, name=CLOSING, notes=(NASTY, QUOTES), fingerprint=NASTY)
    rows = tuple(
        replace(row, notes=(NASTY,), card={"architecture": QUOTES}, scores={**row.scores, NASTY: row.score})
        for row in ranking.rows
    )
    return replace(ranking, task=task, rows=rows, metrics=("logme", "knn", NASTY))


def test_names_of_a_run_stay_text(nasty: Ranking) -> None:
    page = render(Run(ranking=nasty))
    elements = Elements(page)
    scripts = [found for tag, found in elements.seen if tag == "script"]
    # Ours, and two blocks of data; none of the run's.
    assert [found.get("type") for found in scripts].count(None) == 1
    assert len(scripts) == 3
    assert not [tag for tag, _ in elements.seen if tag in {"img", "b"}]
    assert not [name for _, found in elements.seen for name in found if name.startswith("on")]
    for block in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL):
        json.loads(block)
    assert NASTY not in page
    assert CLOSING not in page


def test_the_policy_lets_no_other_script_run_and_nothing_load(run: Run) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', render(run))
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy.group(1)
    assert "script-src &#x27;sha256-" in policy.group(1)


def test_a_large_hub_stays_under_five_megabytes(make_ranking: Callable[..., Ranking]) -> None:
    targets = tuple(f"class {index}" for index in range(1000))
    ranking = make_ranking([f"timm/model_number_{index}" for index in range(200)], targets=targets)
    page = render(Run(ranking=ranking))
    assert len(page.encode()) < 5_000_000
    assert page.count("<tr") < 5000


def test_one_model_alone(make_ranking: Callable[..., Ranking]) -> None:
    found = [part.anchor for part in sections(Run(ranking=make_ranking(["timm/a"])))]
    assert found == ["answer", "ranking", "targets", "run"]


@pytest.mark.parametrize("kind", ["regression", "multilabel", "tagging"])
def test_other_kinds_of_task(make_ranking: Callable[..., Ranking], kind: str) -> None:
    ranking = make_ranking(["timm/a", "timm/b"])
    noun = {"regression": "target", "multilabel": "label", "tagging": "tag"}[kind]
    assert f"By {noun}" in render(Run(ranking=replace(ranking, task=replace(ranking.task, kind=kind))))


def test_a_tuning_folder_alone(run_folder: Path) -> None:
    opened = open_run(run_folder / "b-tuning-0")
    found = [part.anchor for part in sections(opened)]
    assert found == ["answer", "by-target", "confusion", "samples", "tuning", "run"]
    assert "handwritten digits" in render(opened)


def test_the_page_is_the_same_every_time(run: Run) -> None:
    assert render(run) == render(run)


def test_a_page_replaces_another_at_once_and_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pages" / "report.html"
    for _ in range(2):
        assert write_report(run, path) == path
    assert [found.name for found in path.parent.iterdir()] == ["report.html"]


def test_a_ranking_writes_its_own_report(run: Run, tmp_path: Path) -> None:
    assert "Start from" in run.ranking.report(tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_next_command_runs_in_a_real_shell(make_ranking: Callable[..., Ranking]) -> None:
    import shlex
    import subprocess

    from hubscout.report.answer import answer, next_command

    ranking = make_ranking(["timm/'; touch pwned; '", "timm/$(touch pwned)", "timm/c `touch pwned`"])
    command = next_command(ranking, answer(ranking))
    seen = subprocess.run(
        ["sh", "-c", f"hubscout() {{ printf '%s\\n' \"$@\"; }}; {command}"], capture_output=True, text=True, check=True
    )
    told = seen.stdout.splitlines()
    assert told[0] == "tune"
    assert told[told.index("--model") + 1] in ranking.identifiers
    assert told == shlex.split(command.replace("\\\n", " "))[1:]
    assert seen.stderr == ""


def test_colours_reach_from_the_least_gain_to_the_most(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking(["timm/a", "timm/b"], targets=tuple(f"class {index}" for index in range(60)))
    gains = [gain for row in ranking.rows for gain in row.per_target]
    scale = re.search(r'heat-scale"><span>([\d.]+)</span>.*?<span>([\d.]+) nats', render(Run(ranking=ranking)))
    assert scale is not None
    assert (scale[1], scale[2]) == (f"{min(gains):.2f}", f"{max(gains):.2f}")


def test_convergence_is_folded_away_and_names_its_models(run: Run) -> None:
    part = next(part for part in sections(run) if part.anchor == "convergence")
    assert part.body.startswith("<details><summary>")
    named = re.findall(r"<h3>([^<]+)</h3><figure", part.body)
    assert named == [name for name, row in zip(run.view.names, run.view.rows, strict=True) if row.convergence]


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    sample = Sample(split="train", row=3, name="<script>alert(1)</script>.png", label="<b>rose", note="predicted daisy")
    finding = Finding(name="mislabelled", words="1 sample.", count=1, groups=((sample,),))
    page = render_check(
        DataCheck(
            task="flowers", rows={"train": 9}, findings=(finding,), looked_for=("mislabelled",), notes=("a note",)
        )
    )
    assert "<script>alert" not in page
    assert "&lt;b&gt;rose" in page
    assert "predicted daisy" in page
    assert "Content-Security-Policy" in page
    assert "http://" not in page
    assert "https://" not in page


def test_a_page_without_findings_says_what_was_looked_for() -> None:
    page = render_check(DataCheck(task="flowers", rows={"train": 9}, findings=(), looked_for=("unreadable",)))
    assert "Nothing found" in page
    assert "unreadable files" in page


def test_the_page_runs_without_an_error_and_its_theme_changes(browser: Any, tmp_path: Path) -> None:
    finding = Finding(name="imbalance", words="'a' has 90 samples.", count=1)
    check = DataCheck(task="flowers", rows={"train": 9}, findings=(finding,), looked_for=("imbalance",))
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(check.report(tmp_path / "check.html").as_uri())
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") in ("light", "dark")
    page.close()
    assert errors == []
