"""Ranking a large hub on growing subsets: models that are out of the race are given up early.

Subsets are nested and stratified, each about twice the one before. A model is dropped after a subset of n samples when

- P(it is better than the leader) is under 1% by the paired test of `hubscout.runs.paired_comparison`, and
- it is not catching up: the gap to the leader, carried on to all N samples at the rate of the last doubling, does not
  close. Evidence on few samples favours models of few or simple features, and a paired test on those samples cannot
  know that; the trend can.

Nobody is dropped after the first subset, which has no doubling before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hubscout.runs.paired_comparison import compare
from hubscout.runs.ranking import Stage
from hubscout.runs.row import BUDGET_SPENT, Dropped, Row

if TYPE_CHECKING:
    from hubscout.ranking.ranking_run import RankingRun
    from hubscout.tasks import Task

FIRST_SUBSET = 250
DROP_BELOW = 0.01
WORTH_GROWING = 1.25
"""A subset that is less than this many times the one before tells nothing new."""
TO_BE_COMPARED = 3.0
"""Where no model is given up, the first subset may take so many times the budget: without it a model has no place."""
AHEAD = 2.0
"""Models that must still end in that time before one more is begun: what follows the ranking takes as long again."""


def subset_sizes(n: int) -> list[int]:
    """Doubling sizes up to all `n`; the last step is at most a doubling too.

    >>> subset_sizes(3680), subset_sizes(100)
    ([250, 500, 1000, 2000, 3680], [100])
    """
    sizes, size = [], FIRST_SUBSET
    while size * WORTH_GROWING < n:
        sizes.append(size)
        size *= 2
    return [*sizes, n]


def nested_rows(task: Task, n: int, seed: int) -> np.ndarray:
    """The `n` train rows of a stratified subset; that of a smaller `n` and the same seed is a part of it."""
    from hubscout.tasks.kinds import kind_of
    from hubscout.tasks.splitting import stratified_sample

    return stratified_sample(kind_of(task.kind).strata(task.train.targets), n, seed)


def increments_of(task: Task, sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """What each subset of `sizes` adds to the one before."""
    increments: list[np.ndarray] = []
    before = np.empty(0, dtype=np.int64)
    for size in sizes:
        rows = nested_rows(task, size, seed)
        increments.append(np.setdiff1d(rows, before))
        before = rows
    return increments


def who_is_out(
    rows: Mapping[str, Row], before: Mapping[str, Row], *, stage: int, size: int, size_before: int, size_of_all: int
) -> dict[str, Dropped]:
    """The models to be dropped after a subset of `size` samples, from their rows on it and on the one before."""
    if len(rows) < 2 or not before:
        return {}
    names = list(rows)
    scores = np.array([rows[name].score for name in names])
    blocks = {len(rows[name].block_scores) for name in names}
    if len(blocks) > 1 or blocks.pop() < 2:
        return {}  # without pseudo-values there is no telling who is out
    sizes = np.array(rows[names[0]].block_sizes, dtype=np.float64)
    pairwise = compare(scores, np.array([rows[name].block_scores for name in names]), block_sizes=sizes).pairwise
    best = int(scores.argmax())
    doublings = math.log2(size_of_all / size)
    last_step = math.log2(size / size_before)
    out = {}
    for index, name in enumerate(names):
        if index == best or pairwise[index, best] >= DROP_BELOW or name not in before:
            continue
        gap = scores[best] - scores[index]
        closing = (before[names[best]].score - before[name].score - gap) / last_step
        if gap - closing * doublings > 0:
            out[name] = Dropped(
                n=rows[name].n, stage=stage, leader=names[best], probability=float(pairwise[index, best])
            )
    return out


def affordable_size(rows: Sequence[Row], size: int, seconds: float) -> int:
    """The subset that the models can be brought to, from `size` samples, in the time that is left."""
    slowness = sum(1.0 / row.samples_per_second for row in rows if row.samples_per_second)
    # Loading, scoring and reading the cache do not shrink with the increment: what the last stage spent on them.
    overhead = sum(
        max(0.0, (row.seconds or 0.0) - (size / 2) / row.samples_per_second) for row in rows if row.samples_per_second
    )
    if slowness == 0.0:
        return size
    return size + max(0, int((seconds - overhead) / slowness))


def rank_in_stages(run: RankingRun, budget: float | None) -> None:
    """Every model on growing subsets, as long as it is in the race and there is time."""
    drops = run.configuration["drop"]
    n = len(run.task.train)
    sizes = subset_sizes(n)
    increments = increments_of(run.task, sizes, run.seed)
    deadline = until = None if budget is None else run.started + budget
    if budget is not None and not drops:
        until = run.started + TO_BE_COMPARED * budget
    alive = [candidate for candidate in run.candidates if candidate.identifier not in run.unopened]
    before: dict[str, Row] = {}
    stage = 0
    while stage < len(sizes):
        began = time.perf_counter()
        rows: dict[str, Row] = {}
        limit, fewest, ahead = (deadline, 0, 0.0) if stage else (until, 1, 0.0 if drops else AHEAD)
        for candidate, found in run.attempts(alive, increments[: stage + 1], limit, fewest, ahead):
            if found is not None:
                rows[candidate.identifier] = found
        ended = {*rows, *run.failures, *run.skipped}
        unreached = [c for c in alive if c.identifier not in ended]
        if unreached and stage > 0:
            run.journal.note("budget-spent", stage=stage, n=sizes[stage])
            break  # part of the models on more data cannot be compared with the rest: keep the subset before
        for candidate in unreached:
            run.fail(candidate, BUDGET_SPENT, "the budget is too short")
        for row in rows.values():
            run.take(row)
        out = {}
        if drops and stage + 1 < len(sizes):
            smaller = sizes[stage - 1] if stage else 0
            out = who_is_out(rows, before, stage=stage, size=sizes[stage], size_before=smaller, size_of_all=n)
        for name, reason in out.items():
            run.rows[name] = replace(run.rows[name], dropped=reason)
            run.journal.note("dropped", model=name, n=reason.n, reason=reason.reason)
        took = time.perf_counter() - began
        run.stages.append(Stage(n=sizes[stage], models=tuple(rows), dropped=tuple(out), seconds=took))
        run.journal.keep(run.ranking(complete=False), more_to_come=True)
        alive = [c for c in alive if c.identifier in rows and c.identifier not in out]
        before = rows
        if not alive or (len(alive) == 1 and len(rows) > 1):
            break  # one is left: more data cannot change who is first
        if deadline is not None and stage + 1 < len(sizes):
            left = deadline - time.perf_counter()
            affordable = affordable_size([rows[c.identifier] for c in alive], sizes[stage], left)
            if affordable < sizes[stage + 1]:
                if affordable < WORTH_GROWING * sizes[stage]:
                    break
                sizes = [*sizes[: stage + 1], affordable]
                increments = increments_of(run.task, sizes, run.seed)
        stage += 1
