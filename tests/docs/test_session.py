"""The first session: its data can be made again, and the page types what the script runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from blocks import command_lines, read_blocks

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_pictures_are_the_same_every_time(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from photographs import CLASSES, write_photographs
    from PIL import Image

    one, two = (write_photographs(tmp_path / name, per_class=2) for name in ("one", "two"))
    files = sorted(path.relative_to(one) for path in one.rglob("*.jpg"))
    assert len(files) == 2 * len(CLASSES)
    for file in files:
        assert (one / file).read_bytes() == (two / file).read_bytes()
    first, second = (np.asarray(Image.open(one / "wood" / name), dtype=float) for name in ("000.jpg", "001.jpg"))
    assert np.abs(first - second).mean() > 5


def test_the_page_types_what_the_script_runs() -> None:
    from session import SESSION

    blocks = read_blocks(REPOSITORY / "docs" / "first-session.md")
    typed = [line for block in blocks if block.language == "bash" for line in command_lines(block.source)]
    assert [line for line in typed if line.startswith("hubscout ")] == [
        SESSION[name] for name in ("rank", "tune", "page", "predict")
    ]


def test_the_terminal_is_drawn_without_progress_and_without_fonts_from_elsewhere(tmp_path: Path, monkeypatch) -> None:
    import session

    (tmp_path / "rank.txt").write_text("[1/6] a: 128/210 samples, 11.4/s, 7 s left\n[1/6] a: done in 17.3 s\nBest: a\n")
    monkeypatch.setattr(session, "DOCS", tmp_path / "docs")
    session.draw_terminal(tmp_path, ("rank",), tmp_path / "session.svg")
    drawn = (tmp_path / "session.svg").read_text()
    assert "11.4/s" not in drawn
    assert "17.3" in drawn
    assert "https:" not in drawn
