"""`Tuned`: a tuned model with everything known of it: metrics, curves, predictions, a folder to keep it in."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hubscout.errors import InputError
from hubscout.optional import require
from hubscout.runs.evaluation_record import EvaluationRecord
from hubscout.runs.hooks import call
from hubscout.runs.tuning_record import Interval, TuningRecord, TuningRun, plain_metrics, tuning_run
from hubscout.tasks.images import Images, image_pixels
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import MetricValue
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.losses import TaskLoss

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from rich.table import Table
    from torch import Tensor, nn

    from hubscout.hubs import Backbone
    from hubscout.report.charts.chart import Chart


Metrics = Mapping[str, Mapping[str, MetricValue]]
"""Split → metric → value with its interval."""


@dataclass(frozen=True, repr=False)
class Predictions:
    """What a model says of inputs.

    `values` are (rows, C): probabilities of classes or labels, or numbers in the targets' own units. A row is an
    input, or a word of a tagging task; `lengths` then tells how many words each input has.
    """

    kind: str
    target_names: tuple[str, ...]
    values: np.ndarray
    lengths: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.lengths) if self.lengths is not None else len(self.values)

    @property
    def probabilities(self) -> np.ndarray:
        """(rows, C) probabilities, a column per name in `target_names`; not for regression, which has `values`."""
        if kind_of(self.kind).is_real_valued:
            raise InputError("A regression has no probabilities: its predictions are numbers, in .values.")
        return self.values

    def to_frame(self) -> pd.DataFrame:
        """A pandas data frame with one line per input, or per word of a tagging task.

        For classes `label`, `probability` (of that class) and a column per class; for several labels `labels`, as a
        list, and a column per label; for numbers a column per target. Words have the numbers `input` and `word`.
        """
        pandas = require("pandas", extra="tables", purpose="Predictions.to_frame")
        kind = kind_of(self.kind)
        first: dict[str, Any] = {}
        if self.lengths is not None:
            first["input"] = np.repeat(np.arange(len(self)), self.lengths)
            first["word"] = np.concatenate([np.arange(length) for length in self.lengths] or [np.arange(0)])
        if not kind.is_real_valued:
            first["labels" if kind.has_label_sets else "label"] = kind.labels_of(self.values, self.target_names)
        if kind.has_classes:
            first["probability"] = self.values.max(axis=1)
        columns = pandas.DataFrame(self.values, columns=list(self.target_names))
        return pandas.concat([pandas.DataFrame(first), columns], axis=1) if first else columns

    def __repr__(self) -> str:
        return f"Predictions({self.kind}, {len(self)} inputs, {len(self.target_names)} targets)"

    @property
    def labels(self) -> list[Any]:
        """By kind: the most probable class; the labels of at least one half; the numbers; a list of tags."""
        labels = kind_of(self.kind).labels_of(self.values, self.target_names)
        if self.lengths is None:
            return labels
        words = iter(labels)
        return [[next(words) for _ in range(length)] for length in self.lengths]

    def records(self, top: int = 1) -> list[dict[str, Any]]:
        """One plain dictionary per input; for classes with the `top` most probable and their probabilities."""
        if not kind_of(self.kind).classes_of_samples:
            return [{"prediction": label} for label in self.labels]
        order = np.argsort(-self.values, axis=1)[:, :top]
        return [
            {
                "prediction": self.target_names[chosen[0]],
                "probabilities": {self.target_names[c]: round(float(row[c]), 6) for c in chosen},
            }
            for row, chosen in zip(self.values, order, strict=True)
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """A tuned model. `metrics` are those of the network as it stands here; see `merged_metrics`."""

    backbone: Backbone
    head: nn.Module
    loss: TaskLoss
    task_name: str
    task_fingerprint: str
    target_names: tuple[str, ...]
    method: str
    model: str
    teachers: tuple[str, ...] = ()
    arguments: TuningArguments = field(default_factory=TuningArguments)
    metrics: Metrics = field(default_factory=dict)
    merged_metrics: Metrics | None = None
    """Zoo-Tuning with gates that depend on the input: what the plain network that `save` writes achieves."""
    curves: tuple[Mapping[str, Any], ...] = ()
    """The lines of `metrics.jsonl`: losses by step, validation metrics."""
    best_step: int = 0
    steps: int = 0
    notes: tuple[str, ...] = ()
    warning: str = ""
    """Where the model is worse than guessing: on which split, by how much. Empty for a model that may be used."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Samples by split."""
    guess: Mapping[str, float] = field(default_factory=dict)
    """By split, what saying the same of every input achieves, in the metric that validation goes by."""
    seconds: float | None = None
    """What the run took, since it was last resumed."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions, hardware and command of the run."""
    evaluation: EvaluationRecord | None = None
    """What the model makes of the test samples: by class, and which of them to look at."""

    @property
    def kind(self) -> str:
        """The kind of task."""
        return self.loss.kind

    def metric(self, split: str = "test") -> MetricValue:
        """The metric that validation goes by, on a split."""
        if split not in self.metrics:
            raise InputError(f"split={split!r}: measured were {', '.join(self.metrics) or 'none'}.")
        return next(iter(self.metrics[split].values()))

    def predict(self, inputs: Sequence[Any], *, batch_size: int = 64) -> Predictions:
        """Predictions for raw inputs: images, texts, pairs of texts, lists of words, arrays.

        An image is a path, bytes, a Pillow image or an array; it is decoded as tasks decode images.
        """
        import torch

        if isinstance(inputs, str | bytes | Path) or hasattr(inputs, "convert"):
            raise InputError("inputs must be a sequence of samples; a single one came: put it into a list.")
        if not len(inputs):
            raise InputError("inputs is empty: there is nothing to predict.")
        if "image" in self.backbone.card.modalities:
            inputs = Images(image_pixels(inputs, "inputs"), origin="inputs")
        preprocessing = self.backbone.preprocessing
        outputs = []
        with torch.no_grad():
            for start in range(0, len(inputs), batch_size):
                samples = [preprocessing(inputs[i]) for i in range(start, min(start + batch_size, len(inputs)))]
                outputs.append(self._outputs(preprocessing.collate(samples)))
        lengths = tuple(len(words) for words in inputs) if kind_of(self.kind).rows_are_words else None
        return Predictions(self.kind, self.target_names, self.loss.decode(torch.cat(outputs)), lengths)

    def _outputs(self, batch: Mapping[str, Tensor]) -> Tensor:
        device = next(self.head.parameters()).device
        if self.backbone.module is not None:
            self.backbone.module.eval()
        features = self.backbone.forward({name: value.to(device) for name, value in batch.items()}).features
        return self.head(features.to(next(self.head.parameters()).dtype))

    def to(self, device: str | torch.device) -> Tuned:
        """Move to a device, in place."""
        self.backbone.to(device)
        self.head.to(device)
        return self

    def deployable(self) -> tuple[Backbone, nn.Linear]:
        """What is saved: a plain backbone, and a head whose outputs are logits or numbers in the targets' units."""
        import torch

        from hubscout.tuning.methods.zoo import merge
        from hubscout.tuning.tuned_folder import head_in_target_units

        backbone = copy.deepcopy(self.backbone)
        if backbone.module is not None:
            merge(backbone.module)
            # Saved weights are on the CPU and in the plain memory layout, whatever was fastest for training.
            backbone.to("cpu")
            backbone.module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return backbone, head_in_target_units(self.head, self.loss)

    def save(self, folder: Path | str) -> Path:
        """Write the model so that the library it came from opens it again, with labels, preprocessing and a card.

        A timm network: `timm.create_model("local-dir:FOLDER", pretrained=True)`, or by its architecture with
        `checkpoint_path="FOLDER/model.safetensors"`. A transformers model: `from_pretrained(FOLDER)`.
        """
        from hubscout.tuning.tuned_folder import save

        return save(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str, *, allow_code: bool = False) -> Tuned:
        """Open what `save` wrote. Only data is read from the folder, no code.

        Bare weights of a network that a `python:` function builds need that function: `allow_code` says that the one
        which the folder names may run.
        """
        from hubscout.tuning.tuned_folder import load

        return load(Path(folder), allow_code=allow_code)

    def export_onnx(self, path: Path | str, *, tolerance: float = 1e-3) -> float:
        """Write the network with its head as ONNX and return the largest difference of its outputs from torch's.

        Raises `TuningError` where that is above `tolerance` times the size of the outputs.
        """
        from hubscout.tuning.onnx_export import export_onnx

        return export_onnx(self, Path(path), tolerance=tolerance)

    def metrics_record(self) -> dict[str, Any]:
        """The metrics as plain numbers."""
        return plain_metrics(_intervals(self.metrics))

    def record(self) -> dict[str, Any]:
        """Everything but the weights and the curves, as plain values."""
        return self.tuning_record().to_json()

    def tuning_record(self) -> TuningRecord:
        """What `tuning.json` holds."""
        merged = self.merged_metrics
        return TuningRecord(
            task=self.task_name,
            task_fingerprint=self.task_fingerprint,
            kind=self.kind,
            model=self.model,
            teachers=self.teachers,
            method=self.method,
            metrics=_intervals(self.metrics),
            merged_metrics=None if merged is None else _intervals(merged),
            best_step=self.best_step,
            steps=self.steps,
            notes=self.notes,
            warning=self.warning,
            sizes=dict(self.sizes),
            guess=dict(self.guess),
            seconds=self.seconds,
            environment=dict(self.environment),
            arguments=asdict(self.arguments),
        )

    def plot(self) -> Chart:
        """The validation metric over epochs, for a notebook or a file (`.save("curve.pdf")`)."""
        return call("draw", call("Run", tuning=(self.tuning_run(),)), "tuning")

    def tuning_run(self) -> TuningRun:
        """What a report is made from."""
        return replace(tuning_run(self.method, self.tuning_record(), self.curves), evaluation=self.evaluation)

    def report(self, path: Path | str) -> Path:
        """Write one self-contained HTML page: the answer, accuracy by class, the samples to look at, the settings."""
        return call("write_report", call("Run", tuning=(self.tuning_run(),)), path)

    def __rich__(self) -> Table:
        from hubscout.tuning.tuned import as_table

        return as_table(self)

    def _repr_html_(self) -> str:
        from hubscout.tuning.tuned import as_html

        return as_html(self)

    def __repr__(self) -> str:
        measured = "".join(f", {split} {self.metric(split)}" for split in self.metrics)
        return f"Tuned({self.model!r} on {self.task_name!r} by {self.method}{measured})"

    def __str__(self) -> str:
        lines = [f"{self.model} tuned on {self.task_name} by {self.method}"]
        if self.teachers:
            lines[0] += f" with {', '.join(self.teachers)}"
        for split, found in self.metrics.items():
            lines.append(f"  {split}: " + ", ".join(f"{name} {value}" for name, value in found.items()))
        if self.merged_metrics is not None:
            for split, found in self.merged_metrics.items():
                lines.append(f"  {split}, merged: " + ", ".join(f"{name} {value}" for name, value in found.items()))
        if self.warning:
            lines.append(f"  Warning: {self.warning}")
        return "\n".join(lines)


def _intervals(metrics: Metrics) -> dict[str, dict[str, Interval]]:
    return {split: {name: (m.value, m.low, m.high) for name, m in found.items()} for split, found in metrics.items()}


def title(tuned: Tuned) -> str:
    """What was tuned on what, and how."""
    words = f"{tuned.model} tuned on {tuned.task_name} by {tuned.method}"
    return f"{words} with {', '.join(tuned.teachers)}" if tuned.teachers else words


def cells(tuned: Tuned) -> list[tuple[str, str, str, str]]:
    """Split, metric, value and interval; for a mixture also those of the merged network that is saved."""
    parts = [("", tuned.metrics), (", merged", tuned.merged_metrics or {})]
    return [
        (f"{split}{suffix}", name, f"{found.value:.4f}", f"{found.low:.4f} … {found.high:.4f}")
        for suffix, metrics in parts
        for split, values in metrics.items()
        for name, found in values.items()
    ]


HEADS = ("split", "metric", "value", "interval")


def as_table(tuned: Tuned) -> Table:
    """For a rich console. Names are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title(tuned)), title_justify="left", header_style="bold")
    for head in HEADS:
        table.add_column(head, justify="right" if head in {"value", "interval"} else "left")
    for line in cells(tuned):
        table.add_row(*(Text(cell) for cell in line))
    return table


def as_html(tuned: Tuned) -> str:
    """For a notebook. Every name is escaped."""
    head = "".join(f"<th>{head}</th>" for head in HEADS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in cells(tuned))
    notes = "".join(f"<p>{escape(note)}</p>" for note in tuned.notes)
    caption = f"<caption>{escape(title(tuned))}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
