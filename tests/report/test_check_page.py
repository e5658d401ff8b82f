from __future__ import annotations

from pathlib import Path
from typing import Any

from hubscout.report.check_page import render_check
from hubscout.runs.data_check import DataCheck, Finding, Sample


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
