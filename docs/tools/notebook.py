"""A notebook out of a page: text becomes Markdown cells, code blocks become code cells.

    python docs/tools/notebook.py docs/tutorial.md tutorial.ipynb

Output that the page shows is left out, since the notebook prints its own; blocks that are not run stay text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from blocks import Block, command_lines, read_blocks

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")


def make_notebook(path: Path) -> Any:
    """The page as an `nbformat` notebook."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    blocks = {block.line: block for block in read_blocks(path)}
    cells: list[Any] = []
    text: list[str] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        if not lines[number].lstrip().startswith("```"):
            if not lines[number].lstrip().startswith("<!--"):
                text.append(_LINK.sub(r"\1", lines[number]))
            number += 1
            continue
        block = blocks.get(number + 2)  # fences are counted from one, and the first line stands below its fence
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
        if block is not None and block.language in ("python", "bash") and block.not_run is None:
            cells += _text_cell(text, new_markdown_cell)
            cells.append(new_code_cell(_code(block)))
            text = []
        elif block is not None:
            text += lines[number : end + 1]
        number = end + 1
    cells += _text_cell(text, new_markdown_cell)
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"  # the library draws them at random: the same page gives the same file
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.validate(notebook)
    return notebook


def _text_cell(lines: list[str], new_cell: Any) -> list[Any]:
    text = "\n".join(lines).strip()
    return [new_cell(text)] if text else []


def _code(block: Block) -> str:
    if block.language == "python":
        return block.source.strip()
    return "\n".join(f"!{line}" for line in command_lines(block.source))


def main() -> None:
    """Write the notebook of a page."""
    import nbformat

    page, target = map(Path, sys.argv[1:3])
    nbformat.write(make_notebook(page), target)


if __name__ == "__main__":
    main()
