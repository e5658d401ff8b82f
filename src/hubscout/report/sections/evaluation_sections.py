"""What a tuned model makes of a split: by target, mistaken classes, predicted numbers, and the samples to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hubscout.metric_texts import metric_text
from hubscout.report.charts.chart import Chart, Frame, axes, drawing, legend, linear, with_room
from hubscout.report.markup import Markup, Section, details, fill, join, scrolling, switch, table, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.tuning_sections import evaluated, whose
from hubscout.runs.data_check import TRUSTED, Sample
from hubscout.runs.evaluation_record import EvaluationRecord, TargetOutcome
from hubscout.runs.texts import shorten
from hubscout.tasks.kinds import kind_of

ALL_SHOWN = 20
WORST_SHOWN = 12
"""Of more targets than `ALL_SHOWN`; the others are folded away."""
MATRIX_UP_TO = 100
"""Classes; the mistakes between more of them are a list only."""
LARGE_UP_TO = 14
"""Classes whose cells have room for large numbers."""
PAIRS_SHOWN = 12
LONGEST = 24
UPRIGHT_UP_TO = 3
"""Letters; longer names of columns are turned."""
NUMBERS_SHOWN = 12
"""Targets of a regression."""
SQUARE = Frame(width=640, height=540)
SAMPLES_SHOWN = 12
"""Of each sort; the others are folded away."""
Column = tuple[str, Callable[[TargetOutcome], object]]


def evaluation_sections(run: Run) -> list[Section | None]:
    """The sections of the tuned model that was evaluated, of several the best; none where there is none."""
    chosen = evaluated(run.tuning)
    if chosen is None or chosen.evaluation is None:
        return []
    found, of = chosen.evaluation, whose(run.tuning, chosen)
    return [make(found, of) for make in (_by_target, _confusion, _numbers, _samples)]


def _by_target(found: EvaluationRecord, of: str) -> Section | None:
    """A table with one line per class, label, type of entity or number, the worst first."""
    if not found.targets:
        return None
    kind = kind_of(found.kind)
    entities = kind.rows_are_words and [one.name for one in found.targets] != list(found.target_names)
    noun, plural = ("type of entity", "types of entities") if entities else (kind.noun, kind.plural)
    measure, heading, columns = _columns(found, "Entities" if entities else kind.unit.capitalize())
    order = sorted(found.targets, key=lambda one: (measure(one) is None, measure(one) or 0.0, one.name))

    def outcomes(targets: Sequence[TargetOutcome]) -> Markup:
        rows = [(one.name, *(make(one) for _, make in columns)) for one in targets]
        heads = (noun.capitalize(), *(name for name, _ in columns))
        return scrolling(table(heads, rows, class_="outcomes"), f"By {noun}")

    lead = f"{found.samples:,} {found.split} samples{of}, the worst first."
    parts = [outcomes(order if len(order) <= ALL_SHOWN else order[:WORST_SHOWN])]
    if len(order) > ALL_SHOWN:
        lead += f" These are the worst {WORST_SHOWN} of {len(order)} {plural}."
        parts.append(details(f"All {len(order)} {plural}", outcomes(order)))
    return Section(anchor="by-target", title=f"{heading} by {noun}", short=f"By {noun}", lead=lead, body=join(parts))


def _columns(
    found: EvaluationRecord, unit: str
) -> tuple[Callable[[TargetOutcome], float | None], str, Sequence[Column]]:
    """What the targets are sorted by, what that is called, and the columns."""
    kind = kind_of(found.kind)
    if kind.is_real_valued:
        error: Column = ("RMSE", lambda one: "–" if one.rmse is None else f"{one.rmse:.4g}")
        return lambda one: one.r2, "R²", [("R²", lambda one: _number(one.r2)), error]
    count: Column = (unit, lambda one: f"{one.seen:,}")
    precision: Column = ("Precision", lambda one: _number(one.precision))
    if kind.classes_of_samples:
        accuracy: Column = ("Accuracy", lambda one: _share(one.recall, "accuracy"))
        return lambda one: one.recall, "Accuracy", [accuracy, count, precision, ("F1", lambda one: _number(one.f1))]
    recall: Column = ("Recall", lambda one: _number(one.recall))
    return lambda one: one.f1, "F1", [("F1", lambda one: _share(one.f1)), count, precision, recall]


def _share(value: float | None, metric: str = "") -> Markup:
    bar = tag("i", class_="share", style=f"--share:{value:.2f}", aria_hidden="true") if value is not None else ""
    return join([bar, "–" if value is None else metric_text(metric, value, 3)])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _confusion(found: EvaluationRecord, of: str) -> Section | None:
    """The confusion matrix, and the most frequent mistakes where it is too large to see them at a glance."""
    names = found.target_names
    if not found.confusions or len(names) < 2:
        return None
    seen, kind = _row_sums(found), kind_of(found.kind)
    mistakes = [
        (names[one.true], names[one.predicted], f"{one.count:,}", f"{one.count / max(seen[one.true], 1):.0%}")
        for one in found.confusions
        if one.true != one.predicted
    ]
    title, lead = "The most frequent mistakes", ""
    parts: list[Markup] = []
    if len(names) <= MATRIX_UP_TO:
        parts.append(_matrix(found, seen))
        parts += [tag("h3", title)] if mistakes and len(names) > LARGE_UP_TO else []
        title = "Confusion matrix"
        lead = f"Rows are the true {kind.plural}, columns the predicted ones{of}; numbers count "
        lead += f"{found.split} {kind.unit}. The stronger the colour, the larger the share of its row."
    elif not mistakes:
        parts.append(tag("p", "There are no mistakes.", class_="note"))
    if mistakes and len(names) > LARGE_UP_TO:
        heads = ("True", "Predicted", "Count", "Share of the true class")
        listed = table(heads, mistakes[:PAIRS_SHOWN], text_columns=(0, 1))
        parts.append(scrolling(listed, "The most frequent mistakes"))
    return Section(anchor="confusion", title=title, short="Confusion", lead=lead, body=join(parts))


def _matrix(found: EvaluationRecord, seen: Sequence[int]) -> Markup:
    names = found.target_names
    return fill(
        "confusion.html",
        names=names,
        seen=seen,
        counts={(one.true, one.predicted): one.count for one in found.confusions},
        large=len(names) <= LARGE_UP_TO,
        upright=max(map(len, names)) <= UPRIGHT_UP_TO,
        longest=LONGEST,
        shorten=shorten,
    )


def _row_sums(found: EvaluationRecord) -> list[int]:
    """How many rows each class has. Of very many classes the confusions are not all there, but the targets are."""
    if [one.name for one in found.targets] == list(found.target_names):
        return [one.seen for one in found.targets]
    sums = [0] * len(found.target_names)
    for one in found.confusions:
        sums[one.true] += one.count
    return sums


def _numbers(found: EvaluationRecord, of: str) -> Section | None:
    """A scatter plot of predicted against true numbers per target, of which one is shown."""
    if not found.pairs:
        return None
    places = sorted({pair.target for pair in found.pairs})[:NUMBERS_SHOWN]
    charts = [tag("div", _numbers_chart(found, place).html(), class_="square") for place in places]
    choices = [(f"number-{place}", found.target_names[place]) for place in places]
    drawn = sum(pair.target == places[0] for pair in found.pairs)
    lead = f"{found.split.capitalize()} samples{of}"
    lead += f", {drawn:,} of {found.samples:,} at random." if drawn < found.samples else "."
    body = switch("numbers", "Target", choices, charts, listed=True)
    return Section(anchor="numbers", title="Predicted against true", short="Predicted", lead=lead, body=body)


def _numbers_chart(found: EvaluationRecord, place: int) -> Chart:
    """A dot per sample beside the line on which true and predicted are equal; both axes have the same ends."""
    pairs = [(pair.true, pair.predicted) for pair in found.pairs if pair.target == place]
    values = [value for pair in pairs for value in pair]
    name = found.target_names[place]

    def draw(frame: Frame) -> Markup:
        frame, explained = legend(frame, [("rest", "a sample"), ("diagonal", "predicted as it is")])
        y = linear(values, frame.area.bottom, frame.area.top, padding=0.04, wanted=5)
        frame = with_room(frame, y)
        x = linear(values, frame.area.left, frame.area.right, padding=0.04, wanted=4 if frame.narrow else 6)
        dots = [tag("circle", cx=x(true), cy=y(said), r=3.0, class_="mark rest") for true, said in pairs]
        return drawing(
            frame,
            explained,
            axes(frame, x, y, x_title=f"True {name}", y_title=f"Predicted {name}"),
            tag("g", *dots, class_="point rest cloud"),
            tag("line", x1=x(x.low), y1=y(x.low), x2=x(x.high), y2=y(x.high), class_="diagonal"),
            label=f"Predicted against true {name} of {len(pairs)} samples",
        )

    numbers = table(("True", "Predicted"), [(f"{true:.4g}", f"{said:.4g}") for true, said in pairs])
    return Chart(draw=draw, numbers=numbers, wide=SQUARE)


def _samples(found: EvaluationRecord, of: str) -> Section | None:
    """The samples that are possibly mislabelled and those that are predicted worst, as thumbnails or texts."""
    if not (found.worst or found.suspects):
        return None
    are = "is" if found.suspected == 1 else "are"
    suspects, warning = "Possibly mislabelled", "Some of them are hard and not wrong: look at them."
    accuracy = _accuracy(found)
    if accuracy is not None and accuracy < TRUSTED:
        suspects = "Surest mistakes"
        warning = f"At an accuracy of {accuracy:.0%} most of them are hard samples, not wrong labels."
    doubted = (
        f"{found.suspected:,} of {found.samples:,} samples {are} predicted to be something else with as much "
        f"certainty as samples that are labelled so. {warning}"
    )
    worst = "Largest errors" if kind_of(found.kind).is_real_valued else "Worst predicted"
    the = "Beside those above: the" if found.suspects else "The"
    missed = f"{the} samples that the model is most wrong about."
    groups = [(suspects, doubted, found.suspects), (worst, missed, found.worst)]
    body = fill("samples.html", groups=groups, shown=SAMPLES_SHOWN)
    lead = f"From {found.split}{of}."
    return Section(anchor="samples", title="Samples to look at", short="Samples", lead=lead, body=body)


def _accuracy(found: EvaluationRecord) -> float | None:
    """The share of samples whose class is right; None where samples have no classes."""
    seen = sum(one.seen for one in found.targets)
    if not kind_of(found.kind).classes_of_samples or not seen:
        return None
    return sum(one.right for one in found.targets) / seen


def sample_card(sample: Sample) -> Markup:
    """A sample with its picture, its label and what is said of it."""
    return fill("sample.html", sample=sample)
