"""The samples to look at: those that are possibly mislabelled, and those that a tuned model predicts worst."""

from __future__ import annotations

from collections.abc import Sequence

from hubscout.report.markup import Markup, breakable, details, join, tag
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section
from hubscout.report.tuning_runs import evaluated, whose
from hubscout.runs.data_check import Sample
from hubscout.runs.evaluation_record import EvaluationRecord
from hubscout.tasks.kinds import kind_of

TRUSTED = 0.75
"""Below this accuracy a model's certainty says little of a label (measured: `hubscout.checking.mislabelled`)."""
SHOWN = 12
"""Of each sort; the others are folded away."""


def samples_section(run: Run) -> Section | None:
    """Thumbnails or texts, with what they are labelled and what was predicted."""
    chosen = evaluated(run.tuning)
    found = chosen.evaluation if chosen is not None else None
    if chosen is None or found is None or not (found.worst or found.suspects):
        return None
    parts: list[Markup] = []
    if found.suspects:
        are = "is" if found.suspected == 1 else "are"
        accuracy = _accuracy(found)
        title, warning = "Possibly mislabelled", "Some of them are hard and not wrong: look at them."
        if accuracy is not None and accuracy < TRUSTED:
            title = "Surest mistakes"
            warning = f"At an accuracy of {accuracy:.0%} most of them are hard samples, not wrong labels."
        said = (
            f"{found.suspected:,} of {found.samples:,} samples {are} predicted to be something else with as much "
            f"certainty as samples that are labelled so. {warning}"
        )
        parts += [tag("h3", title), tag("p", said, class_="note"), *_grid(found.suspects)]
    if found.worst:
        worst = "Largest errors" if kind_of(found.kind).is_real_valued else "Worst predicted"
        beside = "Beside those above: " if found.suspects else ""
        note = f"{beside}{'the' if beside else 'The'} samples that the model is most wrong about."
        parts += [tag("h3", worst), tag("p", note, class_="note"), *_grid(found.worst)]
    lead = f"From {found.split}{whose(run.tuning, chosen)}."
    return Section(anchor="samples", title="Samples to look at", short="Samples", lead=lead, body=join(parts))


def _accuracy(found: EvaluationRecord) -> float | None:
    """The share of samples whose class is right; None where samples have no classes."""
    seen = sum(one.seen for one in found.targets)
    if not kind_of(found.kind).classes_of_samples or not seen:
        return None
    return sum(one.right for one in found.targets) / seen


def _grid(samples: Sequence[Sample]) -> list[Markup]:
    grids = [_cards(samples[:SHOWN])]
    if len(samples) > SHOWN:
        grids.append(details(f"{len(samples) - SHOWN} more", _cards(samples[SHOWN:])))
    return grids


def _cards(samples: Sequence[Sample]) -> Markup:
    look = "samples" if any(sample.thumbnail for sample in samples) else "samples texts"
    return tag("div", *(sample_card(sample) for sample in samples), class_=look)


def sample_card(sample: Sample) -> Markup:
    """A sample with its picture, its label and what is said of it."""
    place = f"{sample.split}, row {sample.row}"
    # What came out of a file may be any address: only pictures that are part of the page are shown.
    inside = sample.thumbnail.startswith("data:image/")
    picture = tag("img", src=sample.thumbnail, alt=f"{sample.label}: {sample.name}")
    return tag(
        "figure",
        picture if inside else "",
        tag(
            "figcaption",
            tag("strong", sample.label) if sample.label else "",
            tag("span", sample.remark, class_="remark") if sample.remark else "",
            tag("span", breakable(sample.name), class_="name"),
            tag("span", place, class_="place") if place != sample.name else "",
        ),
        class_="sample",
    )
