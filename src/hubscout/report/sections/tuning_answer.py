"""A tuning: how good the model is, against what, and what to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from hubscout.report.answer import command_words
from hubscout.report.markup import Markup, join, tag
from hubscout.report.names import listing, short_names
from hubscout.report.saved_run import Run
from hubscout.report.sections.section import Section, copyable
from hubscout.report.shell import shell_command
from hubscout.report.tuning_runs import by_method
from hubscout.runs.evaluation_record import achieved, conclusion
from hubscout.runs.texts import human_seconds
from hubscout.runs.tuning_record import TuningRun


def tuning_answer(run: Run) -> Section:
    """The answer in two sentences; while nothing is measured yet, that."""
    measured = [one for one in run.tuning if achieved(one) is not None]
    single = run.tuning[0] if len(run.tuning) == 1 else None
    if not measured:
        words: list[object] = ["Nothing is measured yet: the model is tested when its training is over."]
    elif single is not None:
        words = [_model(single.model), f", {_taught(single)}. ", conclusion(single, _short)]
    else:
        words = _best_method(measured)
    warnings = list(dict.fromkeys(one.warning for one in run.tuning if one.warning))
    parts: list[object] = [tag("p", *words, class_="answer")]
    if single is not None and measured:
        parts.append(_facts(single))
    if single is not None and single.best_step == 0 and single.steps:
        warnings.append("No step of training was better on validation than the linear probe: this model is the probe.")
    parts += [tag("p", warning, class_="caveat") for warning in warnings]
    command = next_command(run)
    if measured and command:
        parts += [tag("p", "Run next", class_="label"), copyable(command, "run next")]
    return Section(anchor="answer", title="The answer", short="Answer", body=join(parts))


def _model(identifier: str) -> Markup:
    return tag("strong", _short(identifier), class_="model", title=identifier)


def _short(identifier: str) -> str:
    return short_names([identifier])[0] if identifier else "The model"


def _taught(run: TuningRun) -> str:
    words = {"fine-tune": "fine-tuned", "": "tuned"}.get(run.method, f"tuned by {run.method}")
    return f"{words}, taught by {listing(short_names(list(run.teachers)))}" if run.teachers else words


def _best_method(runs: Sequence[TuningRun]) -> list[object]:
    """Which of several methods is best on average over its seeds, and by how much."""
    told = [
        (fmean(values), values, name)
        for name, group in by_method(runs).items()
        if (values := [found.value for one in group if (found := achieved(one)) is not None])
    ]
    told.sort(key=lambda one: -one[0])
    first = achieved(runs[0])
    assert first is not None
    mean, values, name = told[0]
    spread = f" ± {stdev(values):.4f} over {len(values)} seeds" if len(values) > 1 else ""
    words = f" has the best {first.split} {first.metric} of {len(told)} methods: {mean:.4f}{spread}."
    if len(told) == 1:
        words = f": {first.split} {first.metric} {mean:.4f}{spread}."
    others = [f"{other} {value:.4f}" for value, _, other in told[1:]]
    guess = f" Guessing gives {first.guess:.4f}." if first.guess is not None else ""
    return [tag("strong", name, class_="model"), words, f" Then {listing(others)}." if others else "", guess]


def _facts(run: TuningRun) -> Markup:
    found = achieved(run)
    assert found is not None
    value, low, high = found.interval
    facts = [(f"{found.split.capitalize()} {found.metric}", f"{value:.4f}", f"{low:.4f} to {high:.4f}")]
    names = ("Linear probe", "Best teacher's probe") if "model" in run.probes else ("Best teacher's probe",)
    for name, rival in zip(names, found.rivals, strict=False):
        facts.append((name, f"{rival.value:.4f}", f"{value - rival.value:+.4f} by tuning"))
    if found.guess is not None:
        facts.append(("Guessing", f"{found.guess:.4f}", ""))
    if run.sizes.get(found.split):
        facts.append((f"{found.split.capitalize()} samples", f"{run.sizes[found.split]:,}", ""))
    if run.seconds:
        facts.append(("Time", human_seconds(run.seconds), f"{run.steps:,} steps"))
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", number, tag("small", note))) for name, number, note in facts),
        class_="facts",
    )


def next_command(run: Run) -> str:
    """Use the model; where it is worse than guessing, look for another one. Empty where there is no one model."""
    if len(run.tuning) != 1:
        return ""
    (one,) = run.tuning
    if one.warning:
        words = command_words(one.environment)
        data = words[2] if words[1:2] == ["tune"] and len(words) > 2 and not words[2].startswith("-") else "DATA"
        return shell_command(["hubscout", "rank", data, "--out", "ranking/"])
    if run.folder is None:
        return ""
    by_code = one.model.startswith("python:") and not (run.folder / "config.json").is_file()
    allowed = ["--allow-code"] if by_code else []
    return shell_command(["hubscout", "predict", f"{run.folder}/", "INPUTS", *allowed])
