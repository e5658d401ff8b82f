"""Commands as a person reads and copies them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

LONGEST = 76


def shell_command(words: Sequence[str]) -> str:
    r"""The words quoted for a shell: on one line, or with each option on a line of its own where that is too long.

    >>> shell_command(["hubscout", "rank", "my pets/", "--limit", "2k"])
    "hubscout rank 'my pets/' --limit 2k"
    >>> print(shell_command(["hubscout", "tune", "pets/", "--model", "timm/" + "x" * 60, "--out", "my-model/"]))
    hubscout tune pets/ \
      --model timm/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx \
      --out my-model/
    """
    whole = shlex.join(words)
    if len(whole) <= LONGEST:
        return whole
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("-") and len(word) > 1:
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shlex.join(line) for line in lines if line)
