"""Names and numbers short enough for an axis; the long ones stay in tables and tooltips."""

from __future__ import annotations

from hubscout.runs.texts import listing, short_names, shorten

__all__ = ["listing", "short_names", "shorten", "significant"]


def significant(value: float | None, figures: int = 3) -> str:
    """A number with so many figures, never in powers of ten between a thousandth and a million.

    >>> significant(0.123456), significant(1234.5), significant(2.5e9), significant(0.0), significant(None)
    ('0.123', '1230', '2.5e+09', '0', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{figures}g}")
    if 1e-3 <= abs(rounded) < 1e6:
        return f"{rounded:.10f}".rstrip("0").rstrip(".")
    return f"{value:.{figures}g}"
