"""Examples in docstrings as blocks of code: without this, `>>>` in running text is taken for a quotation."""

from __future__ import annotations

from typing import Any

import griffe


def fence_examples(text: str) -> str:
    """Put each example, from its first `>>>` to the blank line after its output, between fences.

    >>> fence_examples("Adds.\\n\\n>>> 1 + 1\\n2\\n")
    'Adds.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    lines: list[str] = []
    inside = ""
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            inside = " " * (len(line) - len(line.lstrip())) + "```"
            lines.append(f"{inside}pycon")
        elif inside and not line.strip():
            lines.append(inside)
            inside = ""
        lines.append(line)
    if inside:
        lines.append(inside)
    return "\n".join(lines) + "\n"


class FencedExamples(griffe.Extension):
    """Does so for every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was read."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fence_examples(obj.docstring.value).rstrip()


__all__ = ["FencedExamples", "fence_examples"]
