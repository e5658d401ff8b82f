"""`Tuned`: a tuned model with everything known of it: metrics, curves, predictions, a folder to keep it in."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hubscout.errors import InputError, ModelError, first_line
from hubscout.features.precision import is_device_fault, is_out_of_memory
from hubscout.hubs.length_groups import forward_by_length
from hubscout.metric_texts import bounds_text, interval_text, metric_text
from hubscout.runs.evaluation_record import EvaluationRecord
from hubscout.runs.hooks import call
from hubscout.runs.tuning_record import TuningRecord, TuningRun, plain_metrics, tuning_run
from hubscout.tasks.images import Images, image_pixels
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.task_metrics import Metrics, MetricValue
from hubscout.text_table import html_table, text_table
from hubscout.tuning import tuned_folder
from hubscout.tuning.arguments import TuningArguments
from hubscout.tuning.losses import TaskLoss
from hubscout.tuning.methods.zoo import merge
from hubscout.tuning.network import head_in_target_units
from hubscout.tuning.predictions import Predictions

if TYPE_CHECKING:
    from rich.table import Table

    from hubscout.hubs import Backbone, Batch
    from hubscout.report.charts.chart import Chart


_HEADS = ("split", "metric", "value", "interval")


@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """A tuned model. `metrics` are those of the network as it stands here; see `merged_metrics`.

    Example:
        >>> tuned = hubscout.tune(task, "timm/resnet18.a1_in1k", teachers=ranking.top(3))  # doctest: +SKIP
        >>> tuned.save("my-model/")  # doctest: +SKIP

    """

    backbone: Backbone
    """The network without its head."""
    head: nn.Module
    """From features to outputs."""
    loss: TaskLoss
    """That of the task, which knows what outputs mean."""
    task_name: str
    """The name of the data."""
    task_fingerprint: str
    """A hash of its inputs and labels."""
    target_names: tuple[str, ...]
    """Of the classes, labels or numbers."""
    method: str
    """Such as "b-tuning"."""
    model: str
    teachers: tuple[str, ...] = ()
    """The identifiers of its teachers."""
    arguments: TuningArguments = field(default_factory=TuningArguments)
    """Of the run."""
    metrics: Metrics = field(default_factory=dict)
    merged_metrics: Metrics | None = None
    """Zoo-Tuning with gates that depend on the input: what the plain network that `save` writes achieves."""
    curves: tuple[Mapping[str, Any], ...] = ()
    """The lines of `metrics.jsonl`: losses by step, validation metrics."""
    best_step: int = 0
    """After which validation was best."""
    steps: int = 0
    """How many there were."""
    notes: tuple[str, ...] = ()
    """What the user should know."""
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
        """The metric that validation goes by, with its interval.

        Args:
            split: `test` or `validation`.

        Returns:
            Its value and interval.

        Raises:
            InputError: that split was not measured.

        """
        if split not in self.metrics:
            raise InputError(f"split={split!r}: measured were {', '.join(self.metrics) or 'none'}.")
        return next(iter(self.metrics[split].values()))

    def predict(self, inputs: Sequence[Any], *, batch_size: int = 64) -> Predictions:
        """Predictions for raw inputs.

        Args:
            inputs: images, texts, pairs of texts, lists of words, or arrays. An image is a path, bytes, a Pillow image
                or an array; it is decoded as tasks decode images.
            batch_size: how many inputs go through the network at once.

        Returns:
            Classes, labels, tags or numbers, with probabilities.

        Raises:
            InputError: a single input in place of a sequence, none at all, or inputs that the network does not take
                or gives no finite number for.
            ModelError: memory ran out, or the device failed.

        Example:
            `tuned.predict(["a.jpg", "b.jpg"]).labels`

        """
        if isinstance(inputs, str | bytes | Path) or hasattr(inputs, "convert"):
            raise InputError("inputs must be a sequence of samples; a single one came: put it into a list.")
        if not len(inputs):
            raise InputError("inputs is empty: there is nothing to predict.")
        if "image" in self.backbone.card.modalities:
            inputs = Images(image_pixels(inputs, "inputs"), origin="inputs")
        preprocessing, parameter = self.backbone.preprocessing, next(self.head.parameters())
        if self.backbone.module is not None:
            self.backbone.module.eval()
        outputs, device = [], parameter.device

        def forward(batch: Batch) -> Tensor:
            placed = {name: value.to(device) for name, value in batch.items()}
            try:
                return self.head(self.backbone.forward(placed).features.to(parameter.dtype))
            except RuntimeError as error:
                shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in batch.items())
                if is_out_of_memory(error):
                    told = f"Out of memory on {device} with inputs of {shapes}"
                    raise ModelError(f"{told}: give a smaller batch_size than {batch_size}.") from error
                if is_device_fault(error):
                    raise ModelError(
                        f"{device} failed while the network ran: {first_line(error)}. Start a new process: this one "
                        'cannot use the device after such a fault. On a CPU (to("cpu")) the reason may be plainer.'
                    ) from error
                raise InputError(
                    f"The network does not take these inputs ({shapes}): {first_line(error)}. Give samples such as "
                    "those that it was tuned on."
                ) from error

        with torch.no_grad():
            for start in range(0, len(inputs), batch_size):
                samples = [preprocessing(inputs[i]) for i in range(start, min(start + batch_size, len(inputs)))]
                outputs.append(forward_by_length(forward, preprocessing.collate(samples), device.type))
        lengths = tuple(len(words) for words in inputs) if kind_of(self.kind).rows_are_words else None
        found = torch.cat(outputs)
        finite = torch.isfinite(found).all(dim=1)
        if not finite.all():
            raise InputError(
                f"The network gives no finite numbers for {int((~finite).sum()):,} of {len(found):,} rows, the first "
                f"is row {int((~finite).nonzero()[0])}: are the inputs finite?"
            )
        return Predictions(self.kind, self.target_names, self.loss.decode(found), lengths)

    def to(self, device: str | torch.device) -> Tuned:
        """Move to a device, in place.

        Args:
            device: such as "cuda".

        Returns:
            Itself.

        """
        self.backbone.to(device)
        self.head.to(device)
        return self

    def deployable(self) -> tuple[Backbone, nn.Linear]:
        """What is saved: a plain backbone, and a head whose outputs are logits or numbers in the targets' units.

        Returns:
            The backbone and the head.

        """
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

        Args:
            folder: files of an earlier model there are replaced, others left alone.

        Returns:
            The folder.

        Raises:
            TuningError: the folder cannot be written.

        """
        return tuned_folder.save(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str, *, allow_code: bool = False, model: Any = None) -> Tuned:
        """Open what `save` wrote. Only data is read from the folder, no code.

        Args:
            folder: the folder.
            allow_code: the `python:` function that the folder names may run. Bare weights of a network that such a
                function builds need it.
            model: the network that was tuned, where it was one in memory (`memory:...`) and the folder holds its
                weights alone: a torch module or a backbone, built as it was then. It is copied, not changed.

        Returns:
            The tuned model.

        Raises:
            RunError: the folder holds no tuned model.
            ModelNotFoundError: the weights are of a model in memory, and `model` was not given.
            CodeNotAllowedError: the network is built by code that was not allowed.

        Example:
            `hs.Tuned.load("my-model").predict(["a.jpg"]).labels`

        """
        return tuned_folder.load(Path(folder), allow_code=allow_code, model=model)

    def export_onnx(self, path: Path | str, *, tolerance: float = 1e-3) -> float:
        """Write the network with its head as ONNX, and run the file beside torch on random inputs.

        Inputs are the preprocessing's batch (for images: uint8 pixels, normalised inside the graph), outputs are
        logits, or numbers in the targets' own units. Labels and preprocessing stand in the metadata of the file.

        Args:
            path: the file.
            tolerance: how far the outputs may be from torch's, as a share of the largest.

        Returns:
            The largest difference from the outputs of torch.

        Raises:
            TuningError: it is above `tolerance`, the inputs are neither images nor texts, or the file cannot be
                written. A file that was there stays as it was.

        """
        from hubscout.tuning.onnx_export import export_onnx

        return export_onnx(self, Path(path), tolerance=tolerance)

    def metrics_record(self) -> dict[str, Any]:
        """The metrics as plain numbers.

        Returns:
            Split → metric → value.

        """
        return plain_metrics(self.metrics)

    def record(self) -> dict[str, Any]:
        """Everything but the weights and the curves, as plain values.

        Returns:
            Name → value.

        """
        return self.tuning_record().to_json()

    def tuning_record(self) -> TuningRecord:
        """What `tuning.json` holds.

        Returns:
            The record.

        """
        changed = {"task": self.task_name, "arguments": asdict(self.arguments)}
        return TuningRecord(**{**common_fields(self, TuningRecord), **changed})

    def plot(self) -> Chart:
        """The validation metric over epochs, for a notebook or a file (`.save("curve.pdf")`).

        Returns:
            The chart.

        """
        return call("draw", call("Run", tuning=(self.tuning_run(),)), "tuning")

    def tuning_run(self) -> TuningRun:
        """What a report is made from.

        Returns:
            The record with its curves.

        """
        return replace(tuning_run(self.method, self.tuning_record(), self.curves), evaluation=self.evaluation)

    def report(self, path: Path | str) -> Path:
        """Write one self-contained HTML page: the answer, accuracy by class, the samples to look at, the settings.

        Args:
            path: the page.

        Returns:
            The path.

        """
        return call("write_report", call("Run", tuning=(self.tuning_run(),)), path)

    @property
    def _title(self) -> str:
        if self.tuning_record().is_linear_probe:
            why = ": training did not come up to it" if self.steps else ""
            return f"{self.model} on {self.task_name}, as a linear probe{why}"
        words = f"{self.model} tuned on {self.task_name} by {self.method}"
        return f"{words} with {', '.join(self.teachers)}" if self.teachers else words

    @property
    def _parts(self) -> Iterator[tuple[str, Mapping[str, MetricValue]]]:
        """The metrics of each split; for a mixture also those of the merged network that is saved."""
        yield from self.metrics.items()
        yield from ((f"{split}, merged", found) for split, found in (self.merged_metrics or {}).items())

    @property
    def _cells(self) -> Iterator[tuple[str, str, str, str]]:
        """Split, metric, value and interval."""
        for split, found in self._parts:
            for name, one in found.items():
                yield split, name, metric_text(name, one.value), bounds_text(name, one.low, one.high, " … ")

    def __rich__(self) -> Table:
        return text_table(_HEADS, self._cells, right=("value", "interval"), title=self._title)

    def _repr_html_(self) -> str:
        return html_table(_HEADS, self._cells, title=self._title, notes=self.notes)

    def __repr__(self) -> str:
        first = {split: next(iter(found)) for split, found in self.metrics.items()}
        measured = "".join(
            f", {split} {name} {interval_text(name, *self.metric(split))}" for split, name in first.items()
        )
        return f"Tuned({self.model!r} on {self.task_name!r} by {self.tuning_record().made_by}{measured})"

    def __str__(self) -> str:
        lines = [self._title]
        for split, found in self._parts:
            lines.append(
                f"  {split}: " + ", ".join(f"{name} {interval_text(name, *one)}" for name, one in found.items())
            )
        if self.warning:
            lines.append(f"  Warning: {self.warning}")
        return "\n".join(lines)


def common_fields(source: Any, kind: Any) -> dict[str, Any]:
    """The values of all fields of a dataclass that another object has too."""
    return {field.name: getattr(source, field.name) for field in fields(kind) if hasattr(source, field.name)}
