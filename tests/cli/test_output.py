"""Where commands write."""

from __future__ import annotations

import pytest
from rich.text import Text

from hubscout.cli.output import print_table


def test_the_cells_of_a_table_are_text_and_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("model", "score"), [("[red]a[/red]", "1.5"), (Text("b"), "12.5")], right=("score",), title="[bold]x")
    lines = capsys.readouterr().out.splitlines()
    assert "[red]a[/red]" in "".join(lines)
    assert "[bold]x" in lines[0]
    first, second = (next(line for line in lines if number in line) for number in (" 1.5", "12.5"))
    assert first.index("1.5") == second.index("12.5") + 1
