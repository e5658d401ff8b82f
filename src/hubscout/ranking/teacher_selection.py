"""Which models should teach? `top` takes the best one by one; `joint` takes the set that explains most together.

The best set need not be the set of the best: a copy of the first model adds nothing, and a weak model that sees
something else may add a lot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from hubscout.credentials import lacks_credentials
from hubscout.errors import InputError, ModelError, check_choice, check_least
from hubscout.runs.ranking import Ranking
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task


@dataclass(frozen=True)
class Step:
    """One choice: the model, the score of the set with it, and what it added to the set before."""

    identifier: str
    score: float
    added: float | None


@dataclass(frozen=True)
class Teachers(Sequence[str]):
    """Identifiers in the order of choice, to be handed to `tune(teachers=...)`; `steps` say why.

    Example:
        >>> teachers = hubscout.select_teachers(ranking, 3)  # doctest: +SKIP
        >>> hubscout.tune(task, "timm/resnet18.a1_in1k", teachers=teachers)  # doctest: +SKIP

    """

    method: str
    """How they were chosen."""
    steps: tuple[Step, ...]
    n: int
    """Samples that the choice was made on."""

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The models, first choice first."""
        return tuple(step.identifier for step in self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self.identifiers[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.identifiers)


def select_teachers(
    ranking: Ranking,
    k: int,
    method: str = "top",
    *,
    task: Task | None = None,
    cache: FeatureCache | str | Path | None = None,
    pool: int = 20,
    max_samples: int = 2000,
    device: str = "auto",
    observer: Observer | None = None,
) -> Teachers:
    """Choose `k` teachers out of a ranking.

    Args:
        ranking: of the models on the task.
        k: how many; fewer come back where the ranking has fewer.
        method: "top" takes the k best. "joint" is greedy on the LogME of the chosen models' features side by side,
            see `greedy_joint`; it reads them from the feature cache that the ranking filled.
        task: for "joint": the data, where the ranking cannot open it again itself (data in memory).
        cache: for "joint": the feature cache; that of the ranking by default.
        pool: for "joint": so many of the best models are considered.
        max_samples: for "joint": a stratified subset of the ranked samples, since each try costs O(n³) for wide sets.
        device: for "joint": where features that are not in the cache are computed.
        observer: for "joint": hears of progress.

    Returns:
        The teachers in the order of choice, a sequence of identifiers; its `steps` say what each added.

    Raises:
        InputError: an argument is wrong, or "joint" has neither the data nor the cache that the ranking was made with.
        ModelError: the features of a model are the same for every sample.

    Example:
        >>> teachers = select_teachers(ranking, 3, "joint")  # doctest: +SKIP
        >>> hubscout.tune(task, "timm/resnet18.a1_in1k", teachers=teachers)  # doctest: +SKIP

    """
    check_least("k", k)
    if method == "top":
        rows = ranking.rows[:k]
        return Teachers("top", tuple(Step(row.identifier, row.score, None) for row in rows), ranking.best.n)
    check_choice("method", method, ("top", "joint"))
    if pool < k:
        raise InputError(f"pool must be at least k: {pool} models cannot give {k} teachers.")
    data = _data_of(ranking, task)
    features, targets = _cached_features(ranking, data, cache, pool, device, observer)
    row_kind = kind_of(data.kind).row_kind
    rows_kept = _rows(targets, row_kind, max_samples, ranking.seed)
    return greedy_joint(
        {name: matrix[rows_kept] for name, matrix in features.items()},
        targets[rows_kept],
        k,
        kind=row_kind,
        target_names=data.target_names,
        center=bool(ranking.settings.get("center")),
    )


def greedy_joint(
    features: Mapping[str, np.ndarray],
    targets: np.ndarray,
    k: int,
    *,
    kind: str,
    target_names: Sequence[str],
    center: bool = False,
) -> Teachers:
    """Choose `k` models one at a time, each the one that raises the LogME of the joined features most.

    Features are divided by the root of their total variance first: side by side they share one prior, and a model
    whose numbers happen to be large would otherwise drown the rest. A copy of a chosen model then only doubles that
    model's scale, and LogME does not care about scale, so it adds nothing.

    Ties go to the model that comes first. Where every model left would lower the evidence, the one that lowers it
    least is taken and its `added` is negative.

    Args:
        features: model → its features, (n, D) each, of the same n rows.
        targets: of the rows, as `logme` takes them.
        k: how many models; fewer come back where there are fewer.
        kind: "classification", "multilabel" or "regression".
        target_names: of the classes, labels or numbers.
        center: whether LogME takes the means away first.

    Returns:
        The models in the order of choice.

    Raises:
        ModelError: the features of a model are the same for every row.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(2, size=60)
        >>> seeing = y[:, None] + 0.1 * rng.standard_normal((60, 2))
        >>> zoo = {"blind": rng.standard_normal((60, 2)), "seeing": seeing, "copy": seeing}
        >>> greedy_joint(zoo, y, 1, kind="classification", target_names=("a", "b")).identifiers
        ('seeing',)

    """
    from hubscout.evidence import logme

    classes = range(len(target_names)) if kind_of(kind).has_classes else None
    scaled = {name: _normalised(name, matrix) for name, matrix in features.items()}
    chosen: list[str] = []
    steps: list[Step] = []
    while len(chosen) < min(k, len(scaled)):
        tries: dict[str, float] = {}
        for name in scaled:
            if name not in chosen:
                joined = np.concatenate([scaled[member] for member in (*chosen, name)], axis=1)
                found = logme(
                    joined,
                    targets,
                    kind=kind,
                    classes=classes,
                    target_names=target_names,
                    center=center,
                    jackknife="none",
                    keep_spectrum=False,
                )
                tries[name] = float(found.score)
        best = max(tries, key=lambda name: tries[name])
        steps.append(Step(best, tries[best], tries[best] - steps[-1].score if steps else None))
        chosen.append(best)
    return Teachers("joint", tuple(steps), len(targets))


def _normalised(name: str, matrix: np.ndarray) -> np.ndarray:
    values = np.asarray(matrix, dtype=np.float64)
    total_variance = values.var(axis=0).sum()
    if not total_variance > 0:
        raise ModelError(f"The features of {name} are the same for every sample; it cannot be a teacher.")
    return values / np.sqrt(total_variance)


def _data_of(ranking: Ranking, task: Task | None) -> Task:
    if task is None:
        if ranking.task.source is None:
            raise InputError(
                "method 'joint' needs the data, and this ranking's was in memory: give task=, or use method='top'."
            )
        from hubscout.tasks import Task as TaskClass

        task = TaskClass.reopen(ranking.task.source)
    if task.fingerprint != ranking.task.fingerprint:
        raise InputError(
            f"task {task.name!r} is not what was ranked: its fingerprint is {task.fingerprint[:12]}, that of the "
            f"ranking's task {ranking.task.fingerprint[:12]}."
        )
    limit = ranking.settings.get("limit")
    return task if limit is None else task.subset(limit, seed=ranking.seed)


def _cached_features(
    ranking: Ranking,
    task: Task,
    cache: FeatureCache | str | Path | None,
    pool: int,
    device: str,
    observer: Observer | None,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    from hubscout.features import ExtractionOptions, FeatureCache, extract
    from hubscout.ranking.progressive import increments_of

    if cache is None:
        folder = ranking.environment.get("cache")
        if folder is None:
            raise InputError(
                "method 'joint' reads features from the cache, and this ranking was made without one: rank again with "
                "a cache, or give cache=."
            )
        if lacks_credentials(folder):
            raise InputError(
                f"The address of the cache, {folder}, was saved without its password: give cache=, --cache."
            )
        cache = folder
    opened = FeatureCache(cache) if isinstance(cache, str | Path) else cache
    n = ranking.compared[0].n if ranking.compared else 0
    increments: list[np.ndarray | None] = [None]
    if ranking.stages:
        increments = [*increments_of(task, [stage.n for stage in ranking.stages], ranking.seed)]
    options = ExtractionOptions.from_record(ranking.settings).replace(layers=None, device=device)
    features: dict[str, np.ndarray] = {}
    targets = np.empty(0)
    for row in ranking.compared[:pool]:
        parts = [
            extract(
                row.identifier,
                task,
                indices=rows,
                cache=opened,
                statistics=False,
                observer=observer,
                options=options,
            )
            for rows in increments
        ]
        features[row.identifier] = np.concatenate([part.features() for part in parts])
        targets = np.concatenate([part.targets for part in parts])
        if len(targets) != n:
            raise InputError(f"{row.identifier} was ranked on {n:,} rows and now gives {len(targets):,}: rank again.")
    return features, targets


def _rows(targets: np.ndarray, kind: str, most: int, seed: int) -> np.ndarray:
    if len(targets) <= most:
        return np.arange(len(targets))
    from hubscout.tasks.splitting import stratified_sample

    return stratified_sample(kind_of(kind).strata(targets), most, seed)
