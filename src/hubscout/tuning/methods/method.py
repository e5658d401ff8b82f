"""The small interface behind which all tuning methods stand, and the plainest of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from hubscout.tuning.choices import METHODS
from hubscout.tuning.methods.feature_term import FeatureTerm

if TYPE_CHECKING:
    import torch

    from hubscout.hubs import Backbone, Batch
    from hubscout.tasks import Task
    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.frozen_features import FrozenFeatures
    from hubscout.tuning.teacher_answers import TeacherPanel


def _no_views(*arguments: Any) -> Tensor:
    raise NotImplementedError("There are no batches to make views of.")


@dataclass(frozen=True)
class Preparation:
    """What a method may look at before the first step."""

    task: Task
    """The labelled data."""
    model: Backbone
    """The model to be tuned."""
    teachers: Sequence[Backbone]
    """The backbones that teach it."""
    arguments: TuningArguments
    """Of the run, settled."""
    device: torch.device
    """On which it runs."""
    frozen_features: FrozenFeatures
    """Frozen features and posteriors of models on the train split, computed once and shared."""
    teacher_heads: Sequence[nn.Linear | None] = ()
    """The head of each teacher that was tuned for the task's targets; None for the others."""
    answers_of_views: Callable[[Mapping[str, Backbone], Callable[[Mapping[str, Batch]], Tensor]], Tensor] = _no_views
    """(views · rows, C): what teachers say, by a function of their inputs, of each of the `teacher_views` views, or
    of fewer where time is short."""

    def __post_init__(self) -> None:
        if not self.teacher_heads:
            object.__setattr__(self, "teacher_heads", (None,) * len(self.teachers))


class Method:
    """One way of tuning. A subclass changes what it needs to: by itself this is fine-tuning.

    Order of calls: `prepare` once; then in each step `references` (without gradient, outside the trained module) and
    `terms` (with gradient, inside it); `finish` once.
    """

    name: ClassVar[str]
    uses_teachers: ClassVar[bool] = False
    moves_norms: ClassVar[bool] = False
    """Whether batch norms must follow the batches, in short runs too."""

    def __init__(self) -> None:
        self.extra: nn.Module | None = None
        """Modules that are trained beside backbone and head, and thrown away afterwards."""
        self.notes: list[str] = []
        """What the user should know of how the method was set up."""
        self.views = 0
        """How many fixed views of each sample the answers are cached for; 0: views are new in each epoch. With views
        `references` is asked for row r of view v as row v·n + r."""

    def prepare(self, preparation: Preparation) -> None:
        """Study the teachers, build extra modules, rebuild the model.

        Args:
            preparation: the data, the model, the teachers and the arguments.

        """

    def live_teachers(self) -> Mapping[str, Backbone]:
        """Teachers that must see the inputs of each step; their names are the names of their views.

        Returns:
            Name → teacher; empty where the teachers are cached.

        """
        return {}

    def references(self, rows: Tensor, views: Mapping[str, Batch]) -> dict[str, Tensor]:
        """What `terms` compares with: one row for each of the step's rows.

        Args:
            rows: numbers of the step's rows.
            views: what the live teachers see of them: name → batch.

        Returns:
            Name → tensor with one row for each.

        """
        return {}

    def terms(
        self, extra: nn.Module, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Parts of the loss beside the task's: name → one number per row, already weighted.

        Args:
            extra: modules of the method that are trained beside the model.
            features: the model's, (rows, D).
            outputs: what its head makes of them, (rows, C).
            references: what `references` gave.

        Returns:
            Name → one number per row, already weighted.

        """
        return {}

    def new_parameters(self, body: nn.Module) -> Iterator[nn.Parameter]:
        """Parameters that the method put inside the backbone.

        Args:
            body: the backbone's module.

        Returns:
            An iterator over them.

        """
        return iter(())

    def finish(self, model: Backbone) -> None:
        """Undo what `prepare` did to the model's structure, keeping what it computes where that is possible.

        Args:
            model: the tuned backbone.

        """


class TaughtMethod(Method):
    """A method whose teachers give one vector per row: kept before tuning, or made for the inputs of each step."""

    uses_teachers = True
    panel: TeacherPanel
    feature_trade_off: ClassVar[float] = 0.0
    """Where the arguments have none."""
    cached: Tensor | None = None
    feature_term: FeatureTerm | None = None

    def take_answers(
        self, preparation: Preparation, live: Callable[[Mapping[str, Batch]], Tensor], cached: Callable[[], Tensor]
    ) -> None:
        """Have the teachers answer as `teacher_targets` says: `live`, by each view, or `cached` for the train split."""
        self.live, arguments = live, preparation.arguments
        there = len(preparation.teachers) > 0
        if arguments.teacher_targets == "views" and there:
            self.cached = preparation.answers_of_views(self.panel.by_view, live)
            self.views = len(self.cached) // len(preparation.task.train)
        elif arguments.teacher_targets != "live" and there:
            self.cached = cached()
        strength = arguments.feature_trade_off
        strength = self.feature_trade_off if strength is None else strength
        if strength and there:
            self.feature_term = FeatureTerm(preparation, strength)
            self.extra = self.feature_term.maps
        self.notes.append(self.panel.summary())

    def live_teachers(self) -> Mapping[str, Backbone]:
        """All of them, unless their answers are cached."""
        return {} if self.cached is not None else self.panel.by_view

    def references(self, rows: Tensor, views: Mapping[str, Batch]) -> dict[str, Tensor]:
        """The teachers' mixed answer for each row."""
        answers = {"teachers": self.cached[rows] if self.cached is not None else self.live(views)}
        return answers if self.feature_term is None else {**answers, **self.feature_term.references(rows)}

    def terms(
        self, extra: nn.Module, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """How far the model is from the teachers' answers, and from their features where those are asked for."""
        found = {"teachers" if self.panel.teachers else "labels": self.distance(features, outputs, references)}
        if self.feature_term is not None:
            found["features"] = self.feature_term.of(extra, features, references)
        return found

    def distance(self, features: Tensor, outputs: Tensor, references: Mapping[str, Tensor]) -> Tensor:
        """(rows,) how far the model is from the teachers' answers, already weighted.

        Args:
            features: the model's, (rows, D).
            outputs: what its head makes of them, (rows, C).
            references: what `references` gave; the teachers' answers are its "teachers".

        Returns:
            One number per row.

        """
        raise NotImplementedError


@METHODS.register("fine-tune")
class FineTune(Method):
    """A new head on the model, everything trained on the task's loss alone.

    For: the baseline, and the method of choice when the model is itself the best-ranked one.

        loss = L_task

    Requirements: none; teachers are ignored. Its neighbours add a term to this loss (`kd`, `b-tuning`) or change
    where the weights come from (`zoo`).

    Example: `tune(task, "timm/resnet18.a1_in1k", method="fine-tune", epochs=10)`.
    """

    name = "fine-tune"
