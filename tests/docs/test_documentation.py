"""Every code block of every page runs, prints what the page says, and uses only what is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from blocks import RUNNABLE, Block, read_blocks
from running import Page, check_commands, check_output, check_python

REPOSITORY = Path(__file__).resolve().parents[2]
ELSEWHERE = {"scale.md", "reliability.md", "results.md"}
"""Pages whose blocks need a cluster, or hours: they are checked, not run, whatever they say."""


def pages() -> list[str]:
    found = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *found]


def blocks_of(page: str) -> list[Block]:
    return read_blocks(REPOSITORY / page, page)


@pytest.mark.parametrize("page", pages())
def test_blocks_that_run_do_what_the_page_says(page: str, workplace: Path) -> None:
    if Path(page).name in ELSEWHERE:
        pytest.skip("its blocks need more than one machine or more than minutes; the next test checks them")
    state = Page()
    for block in blocks_of(page):
        if block.language in RUNNABLE and block.not_run is None:
            printed = state.run(block)
            if block.output is not None:
                check_output(block.output, printed, roughly=block.roughly)


@pytest.mark.parametrize("page", pages())
def test_blocks_that_do_not_run_use_what_is_there(page: str) -> None:
    for block in blocks_of(page):
        if block.language == "bash":
            check_commands(block)
        elif block.language == "python":
            check_python(block)


def test_pages_say_why_a_block_does_not_run() -> None:
    for page in pages():
        for block in blocks_of(page):
            assert block.not_run is None or len(block.not_run) > 5, f"{block.place} gives no reason"


def test_most_blocks_run() -> None:
    runnable = [b for page in pages() for b in blocks_of(page) if b.language in RUNNABLE]
    assert sum(block.not_run is None for block in runnable) > 0.7 * len(runnable)


def test_every_page_of_the_plan_is_there() -> None:
    wanted = {
        "tutorial",
        "how-to/image-folder",
        "how-to/csv",
        "how-to/text-pairs",
        "how-to/named-entities",
        "how-to/regression",
        "how-to/own-model",
        "how-to/offline",
        "how-to/budget",
        "how-to/cluster",
        "how-to/report",
        "how-to/plug-in",
        "how-to/tune",
        "how-to/trackers",
        "how-to/deploy",
        "first-session",
        "results",
        "architecture",
        "public-api",
        "explanation/evidence",
        "explanation/why-logme",
        "explanation/what-the-number-means",
        "explanation/b-tuning",
        "explanation/teachers",
        "coming-from/thuml-logme",
        "coming-from/transformer-ranker",
        "coming-from/tllib",
    }
    assert {f"docs/{name}.md" for name in wanted} <= set(pages())


def test_python_blocks_need_no_hidden_names() -> None:
    """A page stands alone: it imports what it uses."""
    import builtins

    for page in pages():
        known = set(dir(builtins))
        for block in blocks_of(page):
            if block.language != "python" or block.not_run:
                continue
            tree = ast.parse(block.source)
            for node in ast.walk(tree):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    known.add(node.id)
                elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                    known.add(node.name)
                elif isinstance(node, ast.arg):
                    known.add(node.arg)
            used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            assert used <= known, f"{block.place}: where do {sorted(used - known)} come from?"
