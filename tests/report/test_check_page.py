from __future__ import annotations

from hubscout.report.check_page import render_check
from hubscout.runs.data_check import DataCheck, Finding, Sample


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    sample = Sample(
        split="train", row=3, name="<script>alert(1)</script>.png", label="<b>rose", remark="probably daisy"
    )
    finding = Finding(name="mislabelled", words="1 sample.", count=1, groups=((sample,),))
    page = render_check(
        DataCheck(
            task="flowers", rows={"train": 9}, findings=(finding,), looked_for=("mislabelled",), notes=("a note",)
        )
    )
    assert "<script>alert" not in page
    assert "&lt;b&gt;rose" in page
    assert "probably daisy" in page
    assert "Content-Security-Policy" in page
    assert "http://" not in page
    assert "https://" not in page


def test_a_page_without_findings_says_what_was_looked_for() -> None:
    page = render_check(DataCheck(task="flowers", rows={"train": 9}, findings=(), looked_for=("unreadable",)))
    assert "Nothing found" in page
    assert "unreadable files" in page
