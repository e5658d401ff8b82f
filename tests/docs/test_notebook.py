"""The notebook of the tutorial is made from the page, and runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import read_blocks
from notebook import make_notebook

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


def test_it_has_every_block_that_runs_and_no_other() -> None:
    cells = make_notebook(TUTORIAL).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    runs = [b for b in read_blocks(TUTORIAL) if b.language in ("python", "bash") and not b.not_run]
    assert len(code) == len(runs) > 5
    assert cells[0].source.startswith("# ")
    assert not any("<!--" in cell.source for cell in cells)
    assert all(cell.source.startswith("!") == (b.language == "bash") for cell, b in zip(code, runs, strict=True))


def test_it_is_the_same_each_time() -> None:
    assert make_notebook(TUTORIAL) == make_notebook(TUTORIAL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_runs(workplace: Path) -> None:
    from nbclient import NotebookClient

    notebook = make_notebook(TUTORIAL)
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(workplace)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # The shell's exit status does not stop a notebook.
    printed = "".join(output.get("text", "") for cell in code for output in cell.outputs)
    assert "Error:" not in printed
    assert all(output.output_type != "error" for cell in code for output in cell.outputs)
