"""The page: its parts in order, with style and script inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from hubscout import __version__
from hubscout.credentials import strip_credentials
from hubscout.report.markup import Markup, json_script, tag
from hubscout.report.run import Run
from hubscout.report.sections.answer import answer_section
from hubscout.report.sections.convergence import convergence_section
from hubscout.report.sections.cost import cost_section
from hubscout.report.sections.layers import layers_section
from hubscout.report.sections.metrics import metrics_section
from hubscout.report.sections.provenance import provenance_section
from hubscout.report.sections.ranking import ranking_section
from hubscout.report.sections.reference import reference_section
from hubscout.report.sections.section import Section
from hubscout.report.sections.targets import targets_section
from hubscout.report.sections.tuning import tuning_section
from hubscout.runs.atomic_files import write_atomically
from hubscout.tasks.kinds import kind_of

ORDER: tuple[Callable[[Run], Section | None], ...] = (
    answer_section,
    ranking_section,
    cost_section,
    metrics_section,
    reference_section,
    targets_section,
    layers_section,
    convergence_section,
    tuning_section,
    provenance_section,
)


def sections(run: Run) -> list[Section]:
    """The parts that this run has something for, in the order of the page."""
    return [section for section in (make(run) for make in ORDER) if section is not None]


def asset(name: str) -> str:
    """The text of one of the page's own files."""
    return files("hubscout.report").joinpath("assets", name).read_text(encoding="utf-8")


def render(run: Run) -> str:
    """The whole page as text. It asks nothing of the network, and its policy forbids it to."""
    parts = sections(run)
    script = asset("report.js")
    title = f"{run.title} · hubscout report"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"hubscout {__version__}"),
        tag("title", title),
        Markup(f"<style>{asset('report.css')}</style>"),
    ]
    names = run.view.names if run.view is not None else []
    body = [
        tag("a", "Skip to the answer", href=f"#{parts[0].anchor}" if parts else "#", class_="skip"),
        _header(run, parts),
        tag("main", *(Markup(str(part)) for part in parts)),
        tag("footer", f"Made by hubscout {__version__} from the saved run alone; this page loads nothing."),
        tag("div", id="tip", role="tooltip", hidden=True),
        tag("div", id="pins", aria_live="polite", hidden=True),
        json_script("report-data", {"models": names}),
        Markup(f"<script>{script}</script>"),
    ]
    page = tag("html", tag("head", *head), tag("body", *body), lang="en")
    return strip_credentials(f"<!doctype html>\n{page}\n")


def write_report(run: Run, path: str | Path) -> Path:
    """Write the page to `path`, all of it or nothing."""
    target = Path(path)
    page = render(run)
    write_atomically(target, page)
    return target


def policy(script: str) -> str:
    """Nothing may be loaded, and no script may run but ours, whatever a name in the run holds."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(run: Run, parts: list[Section]) -> Markup:
    links = [tag("a", part.short or part.title, href=f"#{part.anchor}") for part in parts]
    return tag(
        "header",
        tag(
            "div",
            tag("p", "hubscout", class_="brand"),
            tag("button", "Theme", type="button", id="theme", class_="script-only"),
            class_="top",
        ),
        tag("h1", run.title),
        tag("p", _subtitle(run), class_="subtitle"),
        tag("nav", *links, aria_label="Parts of this report"),
    )


def _subtitle(run: Run) -> str:
    if run.ranking is None:
        return ""
    task = run.ranking.task
    unit = kind_of(task.kind).unit
    n = max((row.n for row in run.ranking.rows), default=task.rows.get("train", 0))
    pieces = [f"{task.kind}, {task.modality}", f"{len(task.target_names)} targets", f"{n:,} training {unit}"]
    started = str(run.ranking.environment.get("started") or "")[:10]
    return " · ".join([*pieces, started] if started else pieces)
