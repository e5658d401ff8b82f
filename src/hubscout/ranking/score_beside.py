"""A thread that scores one model while a GPU runs the next."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hubscout.features.freed_memory import release_memory
from hubscout.features.precision import is_out_of_memory
from hubscout.metrics import lookup

if TYPE_CHECKING:
    import torch

    from hubscout.ranking.assess import Settings, Unscored
    from hubscout.runs.row import Row
    from hubscout.tasks import Task

_LONGEST = 5.0
"""Seconds of a model from where on its score is not put off: it is a small part, and is saved when it is there."""


class ScoreBeside:
    """Scores models in a thread, on a stream of its own: neither of the two waits for what the other does.

    Leaving the context waits for a score that is under way.

    >>> from hubscout import Task
    >>> from hubscout.ranking.assess import Settings
    >>> task = Task.from_arrays([[0.0], [1.0]] * 4, ["a", "b"] * 4)
    >>> [ScoreBeside.suits("cuda", Settings(metrics=names), task) for names in [("logme",), ("logme", "knn")]]
    [True, False]
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hubscout-score")
        self._stream: torch.cuda.Stream | None = None
        self._coming: Future[Row] | None = None

    @staticmethod
    def suits(device: str, settings: Settings, task: Task) -> bool:
        """Whether scores take little time, as the evidence does, and nobody wants to know which step took how much."""
        return (
            device.startswith("cuda")
            and not settings.profile
            and all(lookup(name, task.kind).from_evidence for name in settings.metrics)
        )

    def __enter__(self) -> ScoreBeside:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown()

    def score(self, ran: Unscored) -> LaterRow | Row:
        """The row of a model, which may come later."""
        import torch

        if ran.seconds > _LONGEST:
            return ran.score()
        stream, done = torch.cuda.current_stream(self._device), torch.cuda.Event()
        done.record(stream)
        self._coming = self._thread.submit(self._score, ran, done, stream.device)
        return LaterRow(ran, self._coming, self._device)

    def wait(self) -> None:
        """Until no model is being scored."""
        if self._coming is not None:
            wait([self._coming])

    def _score(self, ran: Unscored, done: torch.cuda.Event, device: torch.device) -> Row:
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        with torch.cuda.device(device), torch.cuda.stream(self._stream):
            self._stream.wait_event(done)  # sums of features may still be under way
            row = ran.score()
            self._stream.synchronize()  # before others are given the memory of those sums
        return row


@dataclass(frozen=True)
class LaterRow:
    """The row of a model that is being scored."""

    ran: Unscored
    coming: Future[Row]
    device: str

    def result(self) -> Row:
        """Wait for it. A score for which memory did not suffice beside another model is tried alone."""
        try:
            return self.coming.result()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        release_memory(self.device)
        return self.ran.score()
