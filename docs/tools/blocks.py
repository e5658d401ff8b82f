"""The code blocks of a page, in order, with the output that the page promises for them.

Two remarks in a page are read here, both HTML comments that a reader does not see:

    <!-- not run: needs the internet -->     the next block is checked, not run
    <!-- output -->                          the next block is the output of the block before it
    <!-- output, roughly -->                 the same, of training, whose numbers move from machine to machine
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

RUNNABLE = ("python", "bash")
PLAIN = ("text", "csv", "toml", "html", "dockerfile")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\s*$")
_REMARK = re.compile(r"^\s*<!--\s*(?P<remark>not run:.*?|output(?:, roughly)?)\s*-->\s*$")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line in the page, counted from one."""

    page: str
    line: int
    language: str
    source: str
    not_run: str | None = None
    """The reason why it is only checked."""
    output: str | None = None
    """What the page says it prints."""
    roughly: bool = False
    """Whether numbers of the output are only examples of what may come."""

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"


def read_blocks(path: Path, page: str | None = None) -> list[Block]:
    """All fenced blocks of a page.

    Raises:
        ValueError: a fence that is not closed, a language that is not known, a remark that belongs to nothing.

    """
    name = page or path.name
    found: list[Block] = []
    remark = ""
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        said = _REMARK.match(line)
        if said is not None:
            remark = said["remark"]
            continue
        fence = _FENCE.match(line)
        if fence is None:
            if remark and line.strip():
                raise ValueError(f"{name}:{number}: a code block should follow the remark {remark!r}.")
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            body.append(inner)
        else:
            raise ValueError(f"{name}:{number}: the block is not closed.")
        block = Block(name, number + 1, fence["language"], dedent("\n".join(body)) + "\n")
        _enter(found, block, remark)
        remark = ""
    return found


def _enter(found: list[Block], block: Block, remark: str) -> None:
    if block.language not in RUNNABLE + PLAIN:
        raise ValueError(f"{block.place}: language {block.language!r}; known are {', '.join(RUNNABLE + PLAIN)}.")
    if remark.startswith("output"):
        if not found or found[-1].language not in RUNNABLE or found[-1].not_run:
            raise ValueError(f"{block.place}: output of what? The block before it is not run.")
        found[-1] = replace(found[-1], output=block.source, roughly=remark.endswith("roughly"))
        return
    if remark and block.language not in RUNNABLE:
        raise ValueError(f"{block.place}: a block of {block.language} is never run.")
    reason = remark.partition(":")[2].strip() or None
    found.append(replace(block, not_run=reason))


def command_lines(source: str) -> list[str]:
    """The commands of a shell block: lines joined where they end in a backslash, without blank lines and comments.

    >>> command_lines("ls\\n# why\\nhubscout rank digits/ \\\\\\n  -m pypi/x\\n")
    ['ls', 'hubscout rank digits/ -m pypi/x']
    """
    joined = re.sub(r"\\\n\s*", "", source)
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
