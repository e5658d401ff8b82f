"""Numbers and events in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hubscout.runs.events import Finished, Progress, Validated

if TYPE_CHECKING:
    from hubscout.runs.row import Row


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


def human_bytes(size: float | None) -> str:
    """A size on disk.

    >>> human_bytes(18_800_000), human_bytes(412), human_bytes(None)
    ('18.8 MB', '412 B', '–')
    """
    words = human_count(size)
    return words if size is None else f"{words[:-1]} {words[-1]}B" if words[-1].isalpha() else f"{words} B"


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


def latency_text(row: Row) -> str:
    """The time of one sample; with ~ before it where the machine was busy."""
    return f"{'~' if row.latency_busy else ''}{human_seconds(row.latency_seconds)}"


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


def losses_text(event: Progress) -> str:
    """The loss and its parts.

    >>> losses_text(Progress("", 1, 2, 0.5, {"task": 1.25, "teachers": 0.5}, 0.01, 100.0))
    'loss 1.750 (task 1.250, teachers 0.500)'
    """
    total = f"loss {sum(event.losses.values()):.3f}"
    if len(event.losses) == 1:
        return total
    return f"{total} ({', '.join(f'{name} {value:.3f}' for name, value in event.losses.items())})"


def metrics_text(event: Validated) -> str:
    """The validation metrics, and whether they are the best so far."""
    text = ", ".join(f"{name} {value:.4f}" for name, value in event.metrics.items())
    return f"validation {text}{' (best)' if event.best else ''}"


def finished_text(event: Finished) -> str:
    """How the work on a model ended; of a failure the first sentence, since the table has the whole reason.

    >>> finished_text(Finished("a", 2.04)), finished_text(Finished("a", 0.0, "No such model. Known: b, c."))
    ('done in 2.0 s', 'failed: No such model')
    >>> finished_text(Finished("", 61.2, steps=300))
    '300 steps in 61 s'
    """
    if event.error:
        return f"failed: {event.error.partition('. ')[0].rstrip('.')}"
    return f"done in {event.seconds:.1f} s" if event.steps is None else f"{event.steps} steps in {event.seconds:.0f} s"


def download_text(bytes_done: int, bytes_total: int, seconds: float) -> str:
    """How far a download is after some seconds, in words.

    >>> download_text(0, 346_000_000, 0.0)
    'downloading 346 MB'
    >>> download_text(1_200_000, 2_400_000, 3.0)
    'downloaded 1.2 of 2.4 MB, 0.4 MB/s, 3 s left'
    >>> download_text(900, 900, 1.0)
    'downloaded 0.001 MB in 1 s'
    """
    total = _megabytes(bytes_total)
    if bytes_done == 0:
        return f"downloading {total} MB"
    if bytes_done >= bytes_total:
        return f"downloaded {total} MB in {seconds:.0f} s"
    speed = bytes_done / max(seconds, 1e-9)
    left = (bytes_total - bytes_done) / speed
    return f"downloaded {_megabytes(bytes_done)} of {total} MB, {speed_text(speed)}, {left:.0f} s left"


def speed_text(bytes_per_second: float) -> str:
    """Megabytes per second, or kilobytes where those would be none."""
    if bytes_per_second < 1e5:
        return f"{bytes_per_second / 1e3:.0f} kB/s"
    return f"{bytes_per_second / 1e6:.1f} MB/s"


def _megabytes(count: int) -> str:
    digits = 0 if count >= 1e7 else 1 if count >= 1e5 else 3
    return f"{count / 1e6:.{digits}f}"
