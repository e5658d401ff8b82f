"""Events in words."""

from __future__ import annotations

from hubscout.runs.events import Finished, Progress, Validated


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
    """How the work on a model ended.

    >>> finished_text(Finished("a", 2.04)), finished_text(Finished("a", 0.0, "no such model"))
    ('done in 2.0 s', 'failed: no such model')
    >>> finished_text(Finished("", 61.2, steps=300))
    '300 steps in 61 s'
    """
    if event.error:
        return f"failed: {event.error}"
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
