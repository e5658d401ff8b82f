"""Evidence as a person reads it: in the terminal and in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.evidence.evidence import Evidence

SHOWN = 12
"""Of more targets than this, the best and the worst explained ones are shown."""
NOTABLE_ROUNDING = 1e-5
"""Nats a sample, from where on rounding is worth a remark."""
HEADS = ("target", "log evidence", "gain", "t = α/β", "β")


def title(evidence: Evidence) -> str:
    """The score and what it is of."""
    error = f" ± {evidence.standard_error:.4f}" if evidence.standard_error is not None else ""
    return (
        f"LogME {evidence.score:.4f}{error}, gain {evidence.gain:+.4f} over base rates "
        f"(n = {evidence.n:,}, {evidence.feature_dim} features of rank {evidence.rank}, {evidence.kind})"
    )


def cells(evidence: Evidence) -> list[tuple[str, ...]]:
    """One line per target, the best explained first; the middle of many is left out."""
    gains = np.asarray(evidence.per_target_gain)
    order = [int(i) for i in np.argsort(-gains, kind="stable") if evidence.targets[i] not in evidence.unscored]
    hidden = len(order) - SHOWN if len(order) > SHOWN + 1 else 0
    if hidden:
        order = order[: SHOWN // 2] + order[-(SHOWN // 2) :]
    lines: list[tuple[str, ...]] = [
        (
            str(evidence.targets[i]),
            f"{evidence.per_target[i]:.4f}",
            f"{gains[i]:+.4f}",
            f"{evidence.ratio[i]:.4g}",
            f"{evidence.beta[i]:.4g}",
        )
        for i in order
    ]
    if hidden:
        lines.insert(SHOWN // 2, (f"… {hidden} more", "", "", "", ""))
    return lines


def remarks(evidence: Evidence) -> list[str]:
    """What must be said below the table."""
    lines = []
    if evidence.unscored:
        lines.append(f"Not scored, no label: {', '.join(str(name) for name in evidence.unscored)}.")
    if not evidence.converged:
        lines.append("The solver did not converge for every target.")
    return lines + caveats(evidence)


def caveats(evidence: Evidence) -> list[str]:
    """Why the score may not be taken at its word."""
    lines = []
    if evidence.unbounded:
        names = ", ".join(evidence.unbounded[:SHOWN]) + (", …" if len(evidence.unbounded) > SHOWN else "")
        lines.append(
            f"The features fit these targets without noise, so their evidence has no bound and the score compares "
            f"with no other: {names}. Is the label among the features?"
        )
    elif evidence.rounding > NOTABLE_ROUNDING:
        lines.append(
            f"About {evidence.rounding:.1g} nats per sample of the score are rounding: the features differ too much in "
            "scale for float64, or leave too little noise in the labels. Standardise or centre them."
        )
    return lines


def as_table(evidence: Evidence) -> Table:
    """For a rich console. Names are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title(evidence)), title_justify="left", header_style="bold")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "target" else "right")
    for line in cells(evidence):
        table.add_row(*(Text(cell) for cell in line))
    if remarks(evidence):
        table.caption = Text(" ".join(remarks(evidence)))
        table.caption_justify = "left"
    return table


def as_html(evidence: Evidence) -> str:
    """For a notebook. Every name is escaped."""
    head = "".join(f"<th>{escape(head)}</th>" for head in HEADS)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in line) + "</tr>" for line in cells(evidence))
    foot = "".join(f"<p>{escape(remark)}</p>" for remark in remarks(evidence))
    caption = f"<caption>{escape(title(evidence))}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"
