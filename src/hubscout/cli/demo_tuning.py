"""The last part of the demo: the smallest model, tuned with and without its teachers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.ranking import Ranking
    from hubscout.tasks import Task
    from hubscout.tuning import Tuned

TEACHERS = 3
FOLDERS = {"b-tuning": "model", "fine-tune": "model-without-teachers"}
"""Where each method leaves its model."""

# AdamW, because the smallest network may be one without norms, for which SGD's usual rate is too high. No augmentation:
# a digit that is flipped or cropped is another digit.
SETTINGS: dict[str, Any] = {
    "epochs": 5,
    "batch_size": 32,
    "optimizer": "adamw",
    "learning_rate": 3e-4,
    "augment": "none",
    "frozen_norm_statistics": True,
    "data_in_memory": True,
    "keep_checkpoints": 1,
}


def smallest(ranking: Ranking) -> str:
    """The model of the fewest parameters; the better one of equals."""
    return min(
        ranking.rows, key=lambda row: (row.params if row.params is not None else float("inf"), row.rank)
    ).identifier


def tune_smallest(ranking: Ranking, task: Task, out: Path, *, device: str, quiet: bool) -> dict[str, Tuned]:
    """Tune the smallest ranked model by B-Tuning with the best of the others, and alike without teachers; save both."""
    from hubscout.features import FeatureCache
    from hubscout.runs.display import display
    from hubscout.tuning import tune

    model = smallest(ranking)
    teachers = [identifier for identifier in ranking.identifiers if identifier != model][:TEACHERS]
    found = {}
    for method in FOLDERS if teachers else ("fine-tune",):
        folder = out / FOLDERS[method]
        with display(quiet=quiet, title=method) as observer:
            tuned = tune(
                task,
                model,
                teachers if method == "b-tuning" else (),
                method,
                out=folder,
                cache=FeatureCache(out / "cache"),
                observer=observer,
                device=device,
                **SETTINGS,
            )
        tuned.save(folder)
        found[method] = tuned
    return found


def tuning_table(found: dict[str, Tuned]) -> Table:
    """What each method achieves, with intervals."""
    from rich.table import Table
    from rich.text import Text

    from hubscout.runs.model_names import listing, short_names

    first = next(iter(found.values()))
    title = f"{short_names([first.model])[0]} tuned on {first.task_name}, {first.sizes.get('train', 0):,} samples"
    if first.teachers:
        title += f"; b-tuning learns from {listing(short_names(first.teachers))}"
    table = Table(title=Text(title), title_justify="left", header_style="bold")
    for head in ("method", "validation accuracy", "test accuracy", "95% interval"):
        table.add_column(head, justify="left" if head == "method" else "right")
    for method, tuned in found.items():
        validation, test = tuned.metric("validation"), tuned.metric("test")
        table.add_row(
            Text(method),
            f"{validation.value:.1%}",
            f"{test.value:.1%}",
            f"{test.low:.1%} to {test.high:.1%}",
        )
    return table
