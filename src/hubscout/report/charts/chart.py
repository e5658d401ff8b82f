"""A chart: drawn once, as SVG; shown on a page or in a notebook, written to a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hubscout.report.charts.axes import WIDE, Draw, Frame, figure
from hubscout.report.charts.chart_files import standalone, write_drawing
from hubscout.report.markup import Markup


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart. `draw` makes the SVG for a frame, `numbers` is the same as a table.

    Example:
        >>> from hubscout import Ranking
        >>> chart = Ranking.load("run/").plot("cost")  # doctest: +SKIP
        >>> chart.save("cost.pdf")  # doctest: +SKIP
    """

    draw: Draw
    caption: object = ""
    numbers: Markup | None = field(default=None, repr=False)
    wide: Frame = WIDE

    def html(self) -> Markup:
        """The chart for a page, with its caption and its numbers."""
        return figure(self.draw, caption=self.caption, numbers=self.numbers, wide=self.wide)

    def svg(self) -> str:
        """The chart as an SVG file that needs no style sheet."""
        return standalone(self.draw(self.wide))

    _repr_svg_ = svg

    def save(self, path: str | Path, *, dots_per_inch: int = 200) -> Path:
        """Write the chart to a file: `.svg` as it is, `.png`, `.pdf` and what else matplotlib writes through it.

        Args:
            path: The file. Its ending says the format.
            dots_per_inch: Of pictures made of pixels.

        Returns:
            The path.

        Raises:
            MissingDependencyError: Another format than SVG, and matplotlib is not installed.
            InputError: A format that matplotlib does not write.
        """
        return write_drawing(self.svg(), Path(path), dots_per_inch)
