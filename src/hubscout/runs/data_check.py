"""`DataCheck`: what a look at labelled data found, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubscout.optional import require
from hubscout.runs.hooks import call

if TYPE_CHECKING:
    import pandas as pd

TRUSTED = 0.75
"""Below this accuracy most of those that a model suspects are hard and not wrong. Softmax models on frozen features,
six image sets, 5% of the labels exchanged, one draw each: of the 24 suspected most, 62% to 79% were wrong at or above
it (three sets came that far), 58% at most below it; of all that were suspected, 42% at most. With 2%
exchanged, under half of the 24 were wrong at any accuracy. Chosen after seeing all six sets, judged on no other."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample of a finding: where it is, what it is called, and what is said of it."""

    split: str
    """Of the task."""
    row: int
    """Its place in the split."""
    name: str
    """The file, or the beginning of the text."""
    label: str = ""
    """In words."""
    note: str = ""
    """What is said of it, such as what was predicted."""
    thumbnail: str = field(default="", repr=False)
    """A small picture as a data URL; empty for other inputs than images."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sort of thing that was found. `groups` are the samples, those that belong together side by side."""

    name: str
    """What was looked for: unreadable, duplicates, near-duplicates, conflicts, few-samples, imbalance, outliers,
    endings, mislabelled."""
    words: str
    """What was found, as a sentence."""
    count: int
    """How many samples, also where fewer are shown."""
    groups: tuple[tuple[Sample, ...], ...] = ()
    """At most as many as are shown; `count` counts all."""


@dataclass(frozen=True, kw_only=True)
class DataCheck:
    """What `hubscout.check` found: `findings`, empty where nothing is wrong, and `looked_for`, what it looked for.

    Example:
        >>> print(hubscout.check("flowers/"))  # doctest: +SKIP

    """

    task: str
    """The name of the data."""
    rows: Mapping[str, int]
    """Split → how many samples."""
    findings: tuple[Finding, ...]
    looked_for: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the user should know."""

    def __getitem__(self, name: str) -> Finding | None:
        return next((finding for finding in self.findings if finding.name == name), None)

    def to_frame(self) -> pd.DataFrame:
        """A pandas data frame with one line per sample of a finding; `group` numbers those that belong together.

        Returns:
            The data frame.

        Raises:
            MissingDependencyError: pandas is not installed.

        """
        pandas = require("pandas", extra="tables", purpose="DataCheck.to_frame")
        records = [
            {"finding": finding.name, "group": number, **_plain(asdict(sample))}
            for finding in self.findings
            for number, group in enumerate(finding.groups)
            for sample in group
        ]
        return pandas.DataFrame(records)

    def to_json(self) -> dict[str, Any]:
        """Everything but the thumbnails, in plain values.

        Returns:
            Name → value.

        """
        record = asdict(self)
        for finding in record["findings"]:
            finding["groups"] = [[_plain(sample) for sample in group] for group in finding["groups"]]
        return record

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page with the findings and thumbnails of the samples.

        Args:
            path: of the page.

        Returns:
            The path.

        """
        return call("write_check", self, path)

    def __repr__(self) -> str:
        found = ", ".join(f"{finding.name} ({finding.count:,})" for finding in self.findings) or "nothing found"
        return f"DataCheck({self.task!r}: {found})"

    def __str__(self) -> str:
        sizes = ", ".join(f"{split} {count:,}" for split, count in self.rows.items())
        lines = [f"{self.task}: {sizes}"]
        for finding in self.findings:
            lines.append(f"{finding.name}: {finding.words}")
            for group in finding.groups[:3]:
                lines.append("    " + " = ".join(_line(sample) for sample in group[:4]))
            if len(finding.groups) > 3:
                lines.append("    …")
        if not self.findings:
            lines.append(f"Nothing found. Looked for: {', '.join(self.looked_for)}.")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _plain(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name != "thumbnail"}


def _line(sample: Sample) -> str:
    said = ", ".join(part for part in (sample.split, sample.label, sample.note) if part)
    return f"{sample.name} ({said})"
