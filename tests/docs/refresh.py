"""Bring the numbers that the pages show up to date: runs the pages and rewrites numbers in their outputs, no words.

    python tests/docs/refresh.py                     # all pages
    python tests/docs/refresh.py docs/tutorial.md

A line whose words changed is left alone and named: that is a change of what the page says, for a person to make.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from blocks import RUNNABLE, read_blocks
from running import Page, check_output, same, words_of

import conftest


def refreshed(expected: str, printed: str) -> tuple[str, list[str]]:
    """The expected output with the numbers that were printed, and the lines that found no partner.

    >>> refreshed("a 1 …\\n", "│ a │ 2 │ 3 │\\n")
    ('a 2 …\\n', [])
    """
    actual = [line for line in map(words_of, printed.splitlines()) if line]
    lines, lost = [], []
    position = 0
    for line in expected.splitlines():
        wanted = words_of(line)
        anything = not wanted or wanted == ["…"]
        places = () if anything else range(position, len(actual))
        place = next((n for n in places if same(wanted, actual[n], math.inf, math.inf)), None)
        if place is not None:
            line = _with_numbers_of(line, wanted, actual[place])
            position = place + 1
        elif not anything:
            lost.append(line)
        lines.append(line)
    return "\n".join(lines) + "\n", lost


def _with_numbers_of(line: str, wanted: list[str], actual: list[str]) -> str:
    """Words of the line up to its first ellipsis in the place of those that differ, one by one from the left."""
    start = 0
    for old, new in zip(wanted, actual, strict=False):
        if old == "…":
            break
        found = re.compile(rf"(?<!\S){re.escape(old)}(?!\S)").search(line, start)
        if found is None:
            break
        line = line[: found.start()] + new + line[found.end() :]
        start = found.start() + len(new)
    return line


def _agrees(expected: str, printed: str) -> bool:
    try:
        check_output(expected, printed, roughly=True)
    except AssertionError:
        return False
    return True


def main() -> None:
    """Refresh the pages named, or all."""
    root = conftest.REPOSITORY
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    pages = pages or [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    common = Path(tempfile.mkdtemp(prefix="hubscout-docs-"))
    data = conftest.write_data(common)
    os.environ.update(HUBSCOUT_CACHE=str(common / "cache"), HF_HUB_OFFLINE="1", COLUMNS="120")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for path in pages:
        text = path.read_text(encoding="utf-8")
        folder = Path(tempfile.mkdtemp(dir=common)) / "work"
        shutil.copytree(data, folder)
        os.chdir(folder)
        state = Page()
        for block in read_blocks(path, str(path.relative_to(root))):
            if block.language not in RUNNABLE or block.not_run:
                continue
            printed = state.run(block)
            if block.output is None:
                continue
            if block.roughly and _agrees(block.output, printed):
                continue  # training moves a little from machine to machine: no reason to touch the page
            new, lost = refreshed(block.output, printed)
            for line in lost:
                print(f"{block.place}: not printed any more: {line}\n{printed}")
            text = text.replace(block.output, new, 1)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(f"refreshed {path.relative_to(root)}")
    shutil.rmtree(common)


if __name__ == "__main__":
    main()
