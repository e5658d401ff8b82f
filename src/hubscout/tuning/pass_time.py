"""How long a pass of a model over samples takes, found out while it runs; one that takes too long is stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from hubscout.runs.events import Advanced, Event, Started
from hubscout.runs.texts import rounded_seconds

TIMED_SHARE = 0.1
"""Of the time for a pass: what is timed before anything is concluded from it."""
LATE = 1.25
"""So many times as long as was allowed may a pass take that is more than half over: stopping it would lose more."""


class TooSlowError(Exception):
    """A model's pass takes longer than there is time for it.

    `position` is 0 for the model, and 1, 2, … for its teachers; `needed` what it would take, as far as is known. It is
    raised on all processes, since they share what the main one does.
    """

    def __init__(self, position: int, seconds: float, needed: float | None) -> None:
        super().__init__(position, seconds, needed)
        self.position, self.seconds, self.needed = position, seconds, needed

    def __str__(self) -> str:
        known = f"about {rounded_seconds(self.needed)}" if self.needed is not None else "longer"
        return f"{known} over the train samples, for which there are {rounded_seconds(max(self.seconds, 0.0))}"


@dataclass(frozen=True)
class PassPace:
    """How far a pass over some samples is: seconds since it began, and of its batches after the first."""

    gone: float
    timed: float
    samples: int
    """In the timed batches."""
    left: int
    """Samples."""

    @property
    def whole(self) -> float | None:
        """Seconds of the pass in all; None before the second batch.

        >>> PassPace(gone=3.0, timed=2.0, samples=20, left=100).whole
        13.0
        """
        return self.gone + self.left * self.timed / self.samples if self.samples else None

    def ends_after(self, seconds: float) -> bool:
        """Whether the pass is seen to take longer than that; False also while too little of it is timed.

        >>> PassPace(gone=3.0, timed=2.0, samples=20, left=100).ends_after(10.0)
        True
        """
        expected = self.whole if self.whole is not None and self.timed >= TIMED_SHARE * seconds else self.gone
        more_than_half = self.whole is not None and 2 * self.gone > self.whole
        return self.left > 0 and expected > seconds * (LATE if more_than_half else 1.0)


@dataclass
class PassWatch:
    """An observer that stops a pass of more than `seconds`, once it is seen to be one."""

    position: int
    seconds: float
    _began: float = field(default_factory=lambda: time.perf_counter())
    _first: float | None = None
    _samples: int = 0
    _left: int = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._left, self._samples, self._first = event.rows - event.rows_done, 0, None
            if self._left and self.seconds <= 0:
                raise TooSlowError(self.position, self.seconds, None)
        elif isinstance(event, Advanced):
            now = time.perf_counter()
            self._left -= event.rows
            if self._first is None:
                self._first = now
            else:
                self._samples += event.rows
            pace = PassPace(now - self._began, now - self._first, self._samples, self._left)
            if pace.ends_after(self.seconds):
                raise TooSlowError(self.position, self.seconds, pace.whole)

    def allows_another(self, passes: int) -> bool:
        """Whether there is time for one more after so many passes."""
        return (time.perf_counter() - self._began) * (passes + 1) <= self.seconds * passes
