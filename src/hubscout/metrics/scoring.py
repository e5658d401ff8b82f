"""One way to call every metric: for one model, or for all models of a zoo."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError
from hubscout.grouping import stratified_folds
from hubscout.metrics.metric_registry import METRICS, ROW_KINDS, Metric, Score, lookup

if TYPE_CHECKING:
    from hubscout.evidence import Evidence

_INPUTS = ("features", "logits", "statistics", "card", "evidence", "groups")
"""What a metric may be given of a model, and of its samples."""
_INPUT_NAMES = {
    "features": "features= (an array of n rows and D columns)",
    "statistics": "statistics= or features=",
    "logits": "logits= (the outputs of the model's source head; this model has none, or they were not kept)",
    "card": "card= (a ModelCard)",
}


def score(
    name: str,
    *,
    features: Any = None,
    logits: Any = None,
    statistics: Any = None,
    card: Any = None,
    evidence: Any = None,
    groups: Any = None,
    targets: Any = None,
    kind: str,
    **options: Any,
) -> Score:
    """Score one model with a metric.

    Args:
        name: the metric, such as "logme"; `available()` lists them.
        features: (n, D), one row per sample, or per word for tagging.
        logits: (n, Z) outputs of the source head.
        statistics: sums of features and targets, in place of features.
        card: what is known of the model beside its weights, a `ModelCard` or a mapping.
        evidence: that of the features, for a metric that is read from it.
        groups: one number per row, such as of a patient, for a metric that predicts rows from the others.
        targets: the labels as in `hubscout.tasks`; for tagging one id per word, or one array per sentence.
        kind: the kind of task, such as "classification".
        options: of the metric.

    Returns:
        The value, with its standard error where the metric has one.

    Raises:
        UnknownMetricError: there is no such metric for this kind of task.
        InputError: an input that the metric needs is missing, an unknown option, or a value that is not finite.

    Example:
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
    given = (features, logits, statistics, card, evidence, groups)
    inputs = dict(zip(_INPUTS, given, strict=True))
    return _finish(entry, _call(entry, inputs, targets, kind, options))


def score_parts(name: str, *, targets: Any = None, kind: str, **given: Any) -> dict[str, float]:
    """The parts of a zoo-level metric for one model: a few numbers, to be kept until `combine_zoo`.

    A zoo is scored this way without its features ever being in memory together.

    Args:
        name: the metric.
        targets: the labels, as `score` takes them.
        kind: the kind of task.
        given: the inputs that `score` takes, and options of the metric.

    Returns:
        The name of each part → its value.

    Raises:
        UnknownMetricError: there is no such metric for this kind of task.
        InputError: the metric scores one model at a time, or an input that it needs is missing.

    Example:
        >>> import numpy as np
        >>> features = np.random.default_rng(0).normal(size=(20, 3))
        >>> sorted(score_parts("etran", features=features, targets=np.arange(20) % 2, kind="classification"))
        ['energy', 'labelled']

    """
    entry = lookup(name, kind)
    if entry.level != "zoo":
        raise InputError(f"The metric {name!r} scores one model at a time: use score().")
    inputs = {need: given.pop(need, None) for need in _INPUTS}
    parts = _call(entry, inputs, targets, kind, given)
    for part, value in parts.items():
        _check_finite(entry, part, value)
    return {part: float(value) for part, value in parts.items()}


def combine_zoo(name: str, parts: Mapping[str, Mapping[str, float]]) -> dict[str, Score]:
    """Scores of all models of a zoo from the parts that `score_parts` gave for each.

    Args:
        name: the metric.
        parts: model → what `score_parts` returned.

    Returns:
        Model → its score.

    Raises:
        InputError: there are no parts, or the metric scores one model at a time.

    Example:
        >>> zoo = {"a": {"energy": 1.0, "labelled": -0.2}, "b": {"energy": 2.0, "labelled": -0.9}}
        >>> {model: score.value for model, score in combine_zoo("etran", zoo).items()}
        {'a': 0.85, 'b': 0.15}

    """
    entry = METRICS[name]
    if entry.combine is None:
        raise InputError(f"The metric {name!r} scores one model at a time: use score().")
    if not parts:
        raise InputError("parts is empty: a zoo has at least one model.")
    values = entry.combine(parts)
    return {model: _finish(entry, Score(values[model], details=dict(parts[model]))) for model in parts}


def score_zoo(name: str, zoo: Mapping[str, Any], *, targets: Any = None, kind: str, **options: Any) -> dict[str, Score]:
    """Score every model of a zoo, by a metric of either level.

    Args:
        name: the metric.
        zoo: model → an array of features, or a mapping with any of `features`, `logits`, `statistics`, `card`.
        targets: the labels, the same for all models.
        kind: the kind of task.
        options: of the metric.

    Returns:
        Model → its score.

    Raises:
        UnknownMetricError: there is no such metric for this kind of task.
        InputError: an empty zoo, or inputs that the metric cannot use.

    Example:
        >>> import numpy as np
        >>> good, bad = np.eye(2)[[0, 0, 1, 1]], np.eye(2)[[0, 1, 0, 1]]
        >>> found = score_zoo("h-score", {"a": good, "b": bad}, targets=[0, 0, 1, 1], kind="classification")
        >>> found["a"].value > found["b"].value
        True

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


def _call(entry: Metric, inputs: dict[str, Any], targets: Any, kind: str, options: Mapping[str, Any]) -> Any:
    features, statistics, evidence = inputs["features"], inputs["statistics"], inputs["evidence"]
    for need in entry.needs:
        stand_ins = (features, evidence) if need == "statistics" else ()
        if inputs[need] is None and all(stand_in is None for stand_in in stand_ins):
            raise InputError(f"The metric {entry.name!r} needs {_INPUT_NAMES[need]}; it was not given.")
    if targets is None and statistics is None and evidence is None and set(entry.needs) != {"card"}:
        raise InputError(f"The metric {entry.name!r} needs targets=; it was not given.")
    # Tagging is classification over words, one sentence after the other.
    if ROW_KINDS[kind] != kind and isinstance(targets, list | tuple) and targets and np.ndim(targets[0]) == 1:
        targets = np.concatenate([np.asarray(sample) for sample in targets])
    kind = ROW_KINDS[kind]
    parameters = inspect.signature(entry.function).parameters
    makes_evidence = entry.from_evidence and evidence is None
    own = set(parameters) - {*inputs, "targets", "kind"} | ({"center", "solver", "blocks"} if makes_evidence else set())
    unknown = set(options) - own
    if unknown:
        known = ", ".join(sorted(own)) or "none"
        raise InputError(f"The metric {entry.name!r} has no option {sorted(unknown)[0]!r}; it has: {known}.")
    if makes_evidence:
        to_evidence = {name: value for name, value in options.items() if name not in parameters}
        made = _evidence(features, targets, statistics, kind, inputs["groups"], **to_evidence)
        inputs = {**inputs, "evidence": made}
    given = {**inputs, "targets": targets, "kind": kind, **options}
    return entry.function(**{key: value for key, value in given.items() if key in parameters})


def _evidence(
    features: Any, targets: Any, statistics: Any, kind: str, groups: Any, *, blocks: int = 10, **options: Any
) -> Evidence:
    """From the statistics where there are any, from the features otherwise."""
    # Here and not above, so that the other metrics can be listed and used without loading the evidence.
    from hubscout.evidence import logme, maximize_evidence

    if statistics is not None:
        return maximize_evidence(statistics, **options)
    if groups is None:
        return logme(features, targets, kind=kind, blocks=blocks, **options)
    of_row = stratified_folds(np.zeros(len(groups), dtype=np.int64), blocks, 0, np.asarray(groups))
    return logme(features, targets, kind=kind, blocks=of_row, **options)


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
