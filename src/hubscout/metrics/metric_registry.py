"""The registry of metrics: what each needs, which kinds of task it serves, and one way to call them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hubscout.errors import InputError, UnknownMetricError, UnknownNameError
from hubscout.registry import Registry

if TYPE_CHECKING:
    from hubscout.evidence import Evidence

Level = Literal["model", "zoo"]
Need = Literal["features", "statistics", "logits", "card"]

KINDS = ("classification", "multilabel", "regression", "tagging")
CLASSES = ("classification", "tagging")
"""Kinds with one class per row."""
_ROW_KINDS = {"tagging": "classification"}
"""Kinds with several rows per sample, and what those are: tagging is classification over words, flattened."""

_INPUT_NAMES = {
    "features": "features= (an array of n rows and D columns)",
    "statistics": "statistics= or features=",
    "logits": "logits= (the outputs of the model's source head; this model has none, or they were not kept)",
    "card": "card= (a ModelCard)",
}


@dataclass(frozen=True)
class Score:
    """What a metric says of one model.

    `standard_error` is None where the metric has no cheap one. `details` holds what else came out of the
    computation; for LogME that is the whole `Evidence`, which `evidence` returns.
    """

    value: float
    standard_error: float | None = None
    name: str = ""
    higher_is_better: bool = True
    details: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def signed_value(self) -> float:
        """The value, turned round where lower is better: sort by this, largest first."""
        return self.value if self.higher_is_better else -self.value

    @property
    def evidence(self) -> Evidence | None:
        """The evidence that the score was read from, for metrics that maximise one."""
        return self.details.get("evidence")


@dataclass(frozen=True)
class Metric:
    """A registered metric.

    `needs` names the inputs that must be given. A metric that needs `statistics` also takes `features` in their
    place. A metric `from_evidence` is a function of the `Evidence` that LogME is: where that is given, nothing is
    computed again. At `level="zoo"` the function gives a mapping of parts for one model, and `combine` turns the parts
    of all models into one value each, because the value depends on which models stand beside it.
    """

    name: str
    function: Callable[..., Any]
    needs: tuple[Need, ...]
    kinds: tuple[str, ...]
    level: Level = "model"
    higher_is_better: bool = True
    combine: Callable[[Mapping[str, Mapping[str, float]]], Mapping[str, float]] | None = None
    from_evidence: bool = False

    def __post_init__(self) -> None:
        if self.from_evidence and "statistics" not in self.needs:
            object.__setattr__(self, "needs", ("statistics", *self.needs))

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


METRICS: Registry[Metric] = Registry("metric", UnknownMetricError, group="hubscout.metrics")


def metric(
    name: str,
    *,
    needs: tuple[Need, ...] | None = None,
    kinds: Iterable[str] = CLASSES,
    level: Level = "model",
    higher_is_better: bool = True,
    combine: Callable[[Mapping[str, Mapping[str, float]]], Mapping[str, float]] | None = None,
    from_evidence: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a metric; the function stays an ordinary function.

    The function takes, by name, those of `features`, `logits`, `statistics`, `card`, `evidence`, `targets` and `kind`
    that stand in its signature, and its own options. It returns a float or a `Score`; at zoo level, a mapping of parts.
    `needs` is `("features",)` by default. With `from_evidence` the function takes `evidence`, `needs` names what it
    needs beside, and callers may give the options of the evidence: `center`, `solver`, `blocks`.
    """
    if level == "zoo" and combine is None:
        raise ValueError(f"The zoo-level metric {name!r} needs combine=.")

    wanted: tuple[Need, ...] = needs or (() if from_evidence else ("features",))

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        METRICS.add(name, Metric(name, function, wanted, tuple(kinds), level, higher_is_better, combine, from_evidence))
        return function

    return enter


def available(kind: str | None = None, *, level: Level | None = None) -> tuple[str, ...]:
    """Names of the metrics that serve a kind of task (all of them for None), sorted.

    >>> "leep" in available("classification"), "leep" in available("regression")
    (True, False)
    """
    if kind is not None:
        _check_kind(kind)
    return tuple(
        name
        for name in METRICS
        if (kind is None or kind in METRICS[name].kinds) and (level is None or METRICS[name].level == level)
    )


def score(
    name: str,
    *,
    features: Any = None,
    logits: Any = None,
    statistics: Any = None,
    card: Any = None,
    evidence: Any = None,
    targets: Any = None,
    kind: str,
    **options: Any,
) -> Score:
    """Score one model with the metric `name`.

    `features` are (n, D), `logits` (n, Z) outputs of the source head, `targets` as in `hubscout.tasks` (for tagging
    flattened, one id per word, or one array per sentence). `evidence` is that of the features, for a metric that is
    read from it. Options go to the metric.

    >>> import numpy as np
    >>> features = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> score("knn", features=features, targets=np.array([0, 0, 1, 1]), kind="classification", neighbours=1).value
    1.0
    """
    entry = lookup(name, kind)
    if entry.level == "zoo":
        raise InputError(
            f"The metric {name!r} compares the models of a zoo and has no value for one model alone: use score_zoo()."
        )
    inputs = {"features": features, "logits": logits, "statistics": statistics, "card": card, "evidence": evidence}
    result = _call(entry, inputs, targets, kind, options)
    return _finish(entry, result)


def score_parts(
    name: str,
    *,
    features: Any = None,
    logits: Any = None,
    statistics: Any = None,
    card: Any = None,
    evidence: Any = None,
    targets: Any = None,
    kind: str,
    **options: Any,
) -> dict[str, float]:
    """The parts of a zoo-level metric for one model: a few numbers, to be kept until `combine_zoo`.

    A zoo is scored this way without its features ever being in memory together.
    """
    entry = lookup(name, kind)
    if entry.level != "zoo":
        raise InputError(f"The metric {name!r} scores one model at a time: use score().")
    inputs = {"features": features, "logits": logits, "statistics": statistics, "card": card, "evidence": evidence}
    parts = _call(entry, inputs, targets, kind, options)
    for part, value in parts.items():
        _check_finite(entry, part, value)
    return {part: float(value) for part, value in parts.items()}


def combine_zoo(name: str, parts: Mapping[str, Mapping[str, float]]) -> dict[str, Score]:
    """Scores of all models of a zoo from the parts that `score_parts` gave for each."""
    entry = METRICS[name]
    if entry.combine is None:
        raise InputError(f"The metric {name!r} scores one model at a time: use score().")
    if not parts:
        raise InputError("parts is empty: a zoo has at least one model.")
    values = entry.combine(parts)
    return {model: _finish(entry, Score(values[model], details=dict(parts[model]))) for model in parts}


def score_zoo(name: str, zoo: Mapping[str, Any], *, targets: Any = None, kind: str, **options: Any) -> dict[str, Score]:
    """Score every model of a zoo; works for metrics of both levels.

    A value of `zoo` is an array of features, or a mapping with any of `features`, `logits`, `statistics`, `card`.
    """
    entry = lookup(name, kind)
    if not zoo:
        raise InputError("zoo is empty: give at least one model.")
    inputs = {model: dict(given) if isinstance(given, Mapping) else {"features": given} for model, given in zoo.items()}
    for model, given in inputs.items():
        unknown = set(given) - {"features", "logits", "statistics", "card"}
        if unknown:
            raise InputError(
                f"zoo[{model!r}] has the unknown keys {sorted(unknown)}; known: features, logits, statistics, card."
            )
    if entry.level == "model":
        return {model: score(name, targets=targets, kind=kind, **given, **options) for model, given in inputs.items()}
    return combine_zoo(
        name,
        {model: score_parts(name, targets=targets, kind=kind, **given, **options) for model, given in inputs.items()},
    )


def lookup(name: str, kind: str) -> Metric:
    """The metric `name` if it serves `kind`; an `UnknownMetricError` that lists what does otherwise."""
    _check_kind(kind)
    if name not in METRICS or kind not in METRICS[name].kinds:
        raise UnknownMetricError(name, available(kind), context=f"for {kind}")
    return METRICS[name]


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise UnknownKindError(kind, KINDS)


class UnknownKindError(UnknownNameError):
    """No such kind of task."""

    what = "kind of task"


def _call(entry: Metric, inputs: dict[str, Any], targets: Any, kind: str, options: Mapping[str, Any]) -> Any:
    features, statistics, evidence = inputs["features"], inputs["statistics"], inputs["evidence"]
    for need in entry.needs:
        stand_ins = (features, evidence) if need == "statistics" else ()
        if inputs[need] is None and all(stand_in is None for stand_in in stand_ins):
            raise InputError(f"The metric {entry.name!r} needs {_INPUT_NAMES[need]}; it was not given.")
    if targets is None and statistics is None and evidence is None and set(entry.needs) != {"card"}:
        raise InputError(f"The metric {entry.name!r} needs targets=; it was not given.")
    if kind in _ROW_KINDS and isinstance(targets, list | tuple) and targets and np.ndim(targets[0]) == 1:
        targets = np.concatenate([np.asarray(sample) for sample in targets])

    kind = _ROW_KINDS.get(kind, kind)
    parameters = inspect.signature(entry.function).parameters
    makes_evidence = entry.from_evidence and evidence is None
    own = set(parameters) - {*inputs, "targets", "kind"} | ({"center", "solver", "blocks"} if makes_evidence else set())
    unknown = set(options) - own
    if unknown:
        known = ", ".join(sorted(own)) or "none"
        raise InputError(f"The metric {entry.name!r} has no option {sorted(unknown)[0]!r}; it has: {known}.")
    if makes_evidence:
        to_evidence = {name: value for name, value in options.items() if name not in parameters}
        inputs = {**inputs, "evidence": _evidence(features, targets, statistics, kind, **to_evidence)}
    given = {**inputs, "targets": targets, "kind": kind, **options}
    return entry.function(**{key: value for key, value in given.items() if key in parameters})


def _evidence(features: Any, targets: Any, statistics: Any, kind: str, *, blocks: int = 10, **options: Any) -> Evidence:
    """From the statistics where there are any, from the features otherwise."""
    # Here and not above, so that the other metrics can be listed and used without loading the evidence.
    from hubscout.evidence import logme, maximize_evidence

    if statistics is not None:
        return maximize_evidence(statistics, **options)
    return logme(features, targets, kind=kind, blocks=blocks, **options)


def _finish(entry: Metric, result: Score | float) -> Score:
    found = result if isinstance(result, Score) else Score(float(result))
    _check_finite(entry, "value", found.value)
    return replace(found, value=float(found.value), name=entry.name, higher_is_better=entry.higher_is_better)


def _check_finite(entry: Metric, part: str, value: float) -> None:
    if not np.isfinite(value):
        raise InputError(
            f"The metric {entry.name!r} has no finite {part} for these inputs (got {value}). "
            "Look for features of extreme magnitude."
        )
