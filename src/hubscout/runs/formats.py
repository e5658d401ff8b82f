"""Numbers for people."""

from __future__ import annotations


def human_count(value: float | None) -> str:
    """A number of parameters or operations in three figures.

    >>> human_count(25_557_032), human_count(4.1e9), human_count(412), human_count(None)
    ('25.6M', '4.1G', '412', '–')
    """
    if value is None:
        return "–"
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def human_seconds(seconds: float | None) -> str:
    """A time in three figures or so.

    >>> human_seconds(0.0042), human_seconds(8.26), human_seconds(91), human_seconds(4000), human_seconds(None)
    ('4.2 ms', '8.3 s', '1 min 31 s', '1 h 6 min', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def human_probability(probability: float | None) -> str:
    """A probability in per cent that is never shown as surer than it was drawn.

    >>> [human_probability(p) for p in (None, 0.0, 0.004, 0.5, 0.999, 1.0)]
    ['–', '<1%', '<1%', '50%', '>99%', '>99%']
    """
    if probability is None:
        return "–"
    if probability < 0.01:
        return "<1%"
    if probability > 0.99:
        return ">99%"
    return f"{probability:.0%}"
