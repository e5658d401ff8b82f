"""Teaching within a budget: teachers whose passes over the train split would take too long are found out and left out.

What teachers cost before the first step is time that training does not have. So it is a fixed share of the budget,
given out in the order of the teachers. A pass is timed while it runs and is stopped as soon as it is seen to end too
late: what was finished stays, in the cache for another time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hubscout.runs.events import Observer, silent
from hubscout.runs.texts import LONGEST_IN_A_LINE, names_by_model
from hubscout.tuning.choices import METHODS
from hubscout.tuning.pass_time import PassWatch, TooSlowError

if TYPE_CHECKING:
    from hubscout.hubs import Backbone
    from hubscout.tuning.single_run import SingleRun

TEACHERS_SHARE = 0.25
"""Of the time that is left: for the passes of all teachers together."""
OWN_SHARE = 0.5
"""Of the time that is left: the longest pass of the model itself, which a method compares with its teachers. The linear
probe takes the same features."""


class TeachingTime:
    """The time that one run has for its teachers, given out pass by pass."""

    def __init__(self, run: SingleRun, *, limited: bool) -> None:
        self.run, self.limited = run, limited
        self._until: float | None = None
        self._reasons: dict[int, TooSlowError] = {}
        self._own: TooSlowError | None = None

    def watch(self, backbone: Backbone) -> Observer:
        """What hears of the pass of a model over the train split."""
        places = [place for place, one in enumerate((self.run.model, *self.run.teachers)) if one is backbone]
        if not (self.limited and self.run.method.uses_teachers and places):
            return silent
        if places[0] == 0:
            return PassWatch(0, self._share(OWN_SHARE))
        now = time.perf_counter()
        if self._until is None:
            self._until = now + self._share(self._teachers_share)
        return PassWatch(places[0], self._until - now)

    def watch_views(self) -> PassWatch | None:
        """What hears of the first pass of all teachers over augmented samples; the last of them is too slow for it."""
        return PassWatch(len(self.run.teachers), self._share(self._teachers_share)) if self.limited else None

    @property
    def _teachers_share(self) -> float:
        """Where teachers also answer for views, half of it is for those."""
        return TEACHERS_SHARE / (2 if self.run.arguments.teacher_targets == "views" else 1)

    def _share(self, share: float) -> float:
        left = self.run.seconds_left
        assert left is not None
        return max(0.0, share * left)

    def leave_out(self, error: TooSlowError) -> None:
        """Go on without the teacher that is too slow; without any where it is the model itself."""
        run, out = self.run, [error.position - 1] if error.position else range(len(self.run.teachers))
        self._own = None if error.position else error
        self._reasons |= {run.taught_by[place]: error for place in out}
        # What the labels teach takes the model's own pass as well.
        kept = [place for place in range(len(run.teachers)) if place not in out]
        run.keep_teachers(kept, "" if error.position else "fine-tune")

    def told(self) -> str:
        """Who of those that were asked for does not teach and why, in words; empty where all do."""
        run = self.run
        if run.left_teachers:  # which its learning rate tells of
            return ""
        left_out = {k: name for k, name in enumerate(run.teachers_asked) if k not in run.taught_by}
        if not left_out:
            if type(run.method) is METHODS[run.method_asked]:
                return ""
            # Of a run that is resumed, the reasons were told before.
            why = "" if self._own is None else f": the model takes {self._own}"
            return f"Too slow for {run.method_asked} in this budget{why}. It is fine-tuned."
        alone = "" if run.teachers else " The model is tuned without teachers."
        if self._own is not None:
            return f"Nobody teaches in this budget: the model itself takes {self._own}.{alone}"
        called = names_by_model(left_out.values(), room=LONGEST_IN_A_LINE)
        each = [
            f"{called[name]} ({self._reasons[k]})" if k in self._reasons else called[name]
            for k, name in left_out.items()
        ]
        return f"Too slow to teach in this budget: {', '.join(each)}.{alone}"
