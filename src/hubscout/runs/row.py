"""What a ranking is made of: what it knows of one model, of its task, and of a stage on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hubscout.errors import OverLimitError
from hubscout.metric_texts import interval_text, metric_text
from hubscout.runs.profiler import Profile


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """f(t) of Theorem 1 on a grid: `mapped[i][j]` is f(`t[j]`) of `targets[i]`.

    `fixed_points` has the t that was found for each target, None where the null model is best (t = ∞).
    """

    targets: tuple[str, ...]
    t: tuple[float, ...]
    mapped: tuple[tuple[float, ...], ...]
    fixed_points: tuple[float | None, ...]

    def check_lengths(self) -> None:
        """A `ValueError` where the parts do not belong together."""
        if {len(line) for line in self.mapped} - {len(self.t)} or not (
            len(self.targets) == len(self.mapped) == len(self.fixed_points)
        ):
            raise ValueError("the parts of convergence differ in length")


@dataclass(frozen=True, kw_only=True)
class LayerScore:
    """LogME of one tapped layer; the empty name is the features before the head, `mean` the average of all layers."""

    name: str
    score: float
    """In nats per sample."""
    standard_error: float | None
    """None where there is none."""
    gain: float
    """Over base rates, in nats per sample."""
    feature_dim: int
    """Of the layer."""
    unbounded: bool = False
    """Whether it fits a target without noise: its score then compares with no other."""


def best_layer_of(layers: Sequence[LayerScore]) -> LayerScore | None:
    """The layer of the highest LogME, of those whose scores compare; the first, the final one, where none does."""
    comparable = [layer for layer in layers if not layer.unbounded] or list(layers[:1])
    return max(comparable, key=lambda layer: layer.score, default=None)


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """Why a progressive ranking gave a model up: on `n` samples, P(better than `leader`) was only `probability`."""

    n: int
    stage: int
    """The number of the stage; the first is 0."""
    leader: str
    probability: float

    @property
    def chance(self) -> str:
        """The probability in words."""
        return "under 0.01%" if self.probability < 1e-4 else f"{self.probability:.2%}"

    @property
    def reason(self) -> str:
        """The reason in words."""
        return f"on {self.n:,} samples P(better than {self.leader}) was {self.chance}"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a linear model on the frozen features gets on samples left out of its fit, and what guessing gets.

    `low` and `high` are the ends of a 95% interval. `guess` is the same metric of a model that knows base rates alone:
    always the most frequent class, the mean number, a random order of the samples for a label.
    """

    metric: str
    value: float
    low: float
    high: float
    guess: float

    @property
    def title(self) -> str:
        """The metric as a heading.

        >>> Expected(metric="r2", value=0.5, low=0.4, high=0.6, guess=0.0).title
        'R²'
        """
        known = {"mean_average_precision": "mAP", "r2": "R²", "entity_f1": "entity F1", "macro_f1": "macro F1"}
        return known.get(self.metric, self.metric.replace("_", " "))

    @property
    def heading(self) -> str:
        """The title at the beginning of a line: with a capital letter, unless it is a name such as mAP."""
        return self.title if self.title in ("mAP", "R²") else self.title[0].upper() + self.title[1:]

    def words(self, value: float) -> str:
        """A value of the metric: a share of samples in per cent, anything else as a number."""
        return metric_text(self.metric, value, 3)

    def __str__(self) -> str:
        return interval_text(self.metric, self.value, self.low, self.high, 3)


BUDGET_SPENT = "BudgetSpent"
"""The failure of a model that was not reached in time."""
Cause = Literal["failed", "not reached", "over the limits"]
"""What is said of a model that could not be ranked, wherever it is told of."""


def cause_of(error: str) -> Cause:
    """What a model that could not be ranked is said to be, by the type of its error.

    >>> cause_of("OverLimitError"), cause_of("ModelError")
    ('over the limits', 'failed')
    """
    if error == OverLimitError.__name__:
        return "over the limits"
    return "not reached" if error == BUDGET_SPENT else "failed"


def count_causes(errors: Iterable[str]) -> str:
    """How many models are not ranked, by cause.

    >>> count_causes(["OverLimitError", "ModelError", "OverLimitError"]), count_causes([])
    ('1 failed, 2 over the limits', '')
    """
    counts = Counter(cause_of(error) for error in errors)
    return ", ".join(f"{counts[cause]} {cause}" for cause in get_args(Cause) if counts[cause])


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A model that could not be ranked, and why. `error` is the type of the exception."""

    identifier: str
    """Of the model."""
    error: str
    reason: str
    """In one line."""

    @property
    def cause(self) -> Cause:
        """What the model is said to be: one that costs too much, or that was not reached, has not failed."""
        return cause_of(self.error)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One ranked model.

    `score` is the value of the ranking's first metric, higher is better; `scores` has all of them. `standard_error`
    and the jackknife's pseudo-values `block_scores`, which comparisons are made from, belong to `score`; metrics
    other than LogME may lack them. `gain`, in nats per sample over base rates, and `per_target` gains, in the order
    of the task's target names, are LogME's; so are `expected`, the metrics of the task for samples left out, the main
    one first, and `odds`, the largest log Bayes factor of a target over its base rate, in nats, among the targets
    that are predicted better than by base rates where the sample was left out.
    `rank`, `p_best` and `tied_with_best` depend on the company: a `Ranking` fills them in.
    """

    identifier: str
    """Opens the model again."""
    score: float
    scores: Mapping[str, float]
    n: int
    """Samples that the scores are from."""
    feature_dim: int
    """Of the features."""
    rank: int = 0
    standard_error: float | None = None
    standard_errors: Mapping[str, float] = field(default_factory=dict)
    """Metric → standard error, where it has one."""
    gain: float | None = None
    p_best: float | None = None
    tied_with_best: bool = False
    per_target: tuple[float, ...] = ()
    expected: tuple[Expected, ...] = ()
    odds: float | None = None
    block_scores: tuple[float, ...] = ()
    block_sizes: tuple[int, ...] = ()
    """Samples of each block."""
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What metrics that compare the whole zoo know of this model, so that others can join it later."""
    layer: str = ""
    """The layer that `score` is of; empty for the features before the head."""
    layers: tuple[LayerScore, ...] = ()
    """LogME of each tapped layer."""
    convergence: Convergence | None = None
    """How LogME's fixed-point iteration looks for a few targets."""
    params: int | None = None
    """Parameters."""
    bytes: int | None = None
    """Of the weights."""
    flops: int | None = None
    """Multiply-adds counted twice, for one sample."""
    samples_per_second: float | None = None
    """While features were extracted, in batches, on the machine of the run."""
    latency_seconds: float | None = None
    """One sample at a time, on the machine of the run: the shortest of several."""
    latency_busy: bool = False
    """Whether the machine had other work while that was measured, so that it may be less."""
    seconds: float | None = None
    """Spent on extracting this model's features and scoring them."""
    card: Mapping[str, str | int | float | None] = field(default_factory=dict)
    """What else the hub says of the model: architecture, source data, source accuracy, licence, downloads, commit."""
    from_cache: bool = False
    """Whether no forward pass was needed."""
    backend: str = ""
    """What ran the network: "torch", "onnxruntime" or "openvino"; empty where it is not known."""
    profile: Profile | None = None
    """Where the seconds went, if that was asked for."""
    dropped: Dropped | None = None
    """Why a progressive ranking gave it up; None where it did not."""
    notes: tuple[str, ...] = ()
    """What went otherwise than planned: a smaller batch, texts that were cut."""

    @property
    def layers_by_depth(self) -> tuple[LayerScore, ...]:
        """Those that have a place in the network, the final features last: all but the average of them."""
        single = [layer for layer in self.layers if layer.name != "mean"]
        return tuple(sorted(single, key=lambda layer: not layer.name))

    @property
    def best_layer(self) -> LayerScore | None:
        """The layer of the highest LogME, where layers were scanned."""
        return best_layer_of(self.layers)


@dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """What a ranking remembers of its task. `source` opens it again where the data can be opened again."""

    name: str
    """Of the data."""
    kind: str
    """Such as "classification"."""
    modality: str
    """Such as "image"."""
    fingerprint: str
    """A hash of inputs and labels."""
    target_names: tuple[str, ...]
    """Of the classes, labels or numbers."""
    rows: Mapping[str, int]
    """Samples of each split."""
    notes: tuple[str, ...] = ()
    """The guesses that were made while reading."""
    source: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One subset of a progressive ranking: how many samples, who ran, who was given up, how long it took."""

    n: int
    """Samples."""
    models: tuple[str, ...]
    """Who ran."""
    dropped: tuple[str, ...]
    """Who was given up."""
    seconds: float
    """How long it took."""
