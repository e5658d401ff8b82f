"""`TuningArguments`: everything that a tuning run can be told, in one place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hubscout.amounts import parse_seconds
from hubscout.errors import InputError, check_keywords
from hubscout.tuning.rates import default_optimizer, default_warmup, rates_of


@dataclass(frozen=True)
class _Limit:
    """What a number may be, in words and in deed."""

    words: str
    allows: Callable[[Any], bool]


PositiveInt = Annotated[
    int, _Limit("must be a whole number of at least 1", lambda value: isinstance(value, int) and value >= 1)
]
NonNegativeInt = Annotated[
    int, _Limit("must be a whole number of at least 0", lambda value: isinstance(value, int) and value >= 0)
]
Positive = Annotated[float, _Limit("must be above 0", lambda value: value > 0)]
NonNegative = Annotated[float, _Limit("must be at least 0", lambda value: value >= 0)]
Share = Annotated[float, _Limit("must lie in [0, 1)", lambda value: 0 <= value < 1)]
Between0And1 = Annotated[float, _Limit("must lie between 0 and 1", lambda value: 0 < value < 1)]

EPOCHS = 20
"""Passes over the train split where nobody says how long a run is."""
RESTART_FACTOR = 5
"""What the learning rates are divided by each time a diverged run starts anew."""
_RUNTIME_FIELDS = frozenset(
    {
        "bootstrap_resamples",
        "checkpoint_every_steps",
        "confidence",
        "cuda_graphs",
        "data_in_memory",
        "device",
        "evaluation_batch_size",
        "keep_checkpoints",
        "log_every_steps",
        "micro_batch_size",
        "processes",
        "shown_samples",
        "trackers",
        "workers",
    }
)
"""Fields that may differ between a run and its resumption: they say where and how it runs, not what comes out."""


@dataclass(frozen=True, kw_only=True)
class TuningArguments:
    """What a run of `tune` can be told beside task, model, teachers and method.

    >>> TuningArguments(epochs=5).epochs
    5
    >>> TuningArguments(optimizer="adam")
    Traceback (most recent call last):
    hubscout.errors.InputError: optimizer='adam': allowed are 'auto', 'sgd', 'adamw'.
    """

    seed: int = 0
    """All randomness of the run is a function of this: the new head, the order of the data, augmentation, dropout."""

    epochs: PositiveInt | None = None
    """Passes over the train split. None: 20, where neither `steps` nor `budget` is given."""
    steps: PositiveInt | None = None
    """Optimiser steps in all, in place of `epochs`."""
    budget: float | str | None = None
    """Time for the whole run, in seconds or as a text such as `20min`, in place of `epochs` and `steps`. How many steps
    there is time for is planned from the pace of the first ones; the cool-down of `wsd`, measuring and saving end with
    the budget. Teachers whose passes over the train split would take more than a quarter of it are left out. A resumed
    run counts the time that was spent before."""
    batch_size: PositiveInt = 48
    """Samples an optimiser step sees, over all processes and micro-batches: the number of processes changes the speed
    and not the result. An epoch is cut into equal batches of at most this size: none is left with one sample."""
    micro_batch_size: PositiveInt | None = None
    """Samples that go through the network at once on one process; gradients are accumulated up to `batch_size`.
    None: all of them, halved whenever the device runs out of memory."""

    optimizer: Literal["auto", "sgd", "adamw"] = "auto"
    """`sgd` has Nesterov momentum. `auto`: `adamw` for text and tokens and for regression, `sgd` otherwise."""
    learning_rate: Positive | None = None
    """Of the backbone. None: 0.001 for `sgd`; for `adamw` 5e-5 on text and tokens, 3e-4 on other inputs; or what
    `rate_search` finds."""
    head_learning_rate: Positive | None = None
    """Of the new head and of modules a method adds. None: ten times `learning_rate`."""
    rate_search: bool = True
    """Where neither rate is given: try three in short runs of 5% of the steps each, or 45 steps in shorter runs, from a
    low one (0.0005 for `sgd`) up by factors of four as long as validation is clearly better, else down by four; half
    of a higher one that diverges or falls back to guessing. Without a validation split, or below 200 steps, there is no
    search."""
    momentum: NonNegative = 0.9
    """Of `sgd`."""
    weight_decay: NonNegative = 1e-4
    """L2 for `sgd`, decoupled for `adamw`; biases and norms are spared under `adamw`."""
    schedule: Literal["auto", "cosine", "step", "constant", "wsd"] = "auto"
    """Of the learning rates. `auto`: `wsd` under a `budget`, else `cosine`. `step` divides them by ten at 60% and 85%
    of the steps. `wsd` (warm-up, stable, decay) keeps them constant and lets them fall linearly in the last `cooldown`
    of the steps: a run can be prolonged from any step of its stable part."""
    cooldown: Share = 0.2
    """Share of the steps in which the rates fall under `wsd`."""
    warmup: Share | None = None
    """Share of the steps in which the learning rates rise linearly from zero. None: 0.1 for regression, else 0."""
    gradient_clip: Positive | None = None
    """Largest norm of the gradient; None: not clipped."""
    restarts: NonNegativeInt = 3
    """How often a run that diverges starts anew, each time at a fifth of its learning rates. 0: divergence is an error.
    """
    label_smoothing: Share = 0.0
    """Share of each target that goes to all classes alike; for several labels, to yes and no alike."""
    mixup: Positive | None = None
    """α of mixup: train on w·x + (1 − w)·x' and w·y + (1 − w)·y', w ~ Beta(α, α); for images and arrays. 0.2
    in its paper."""
    ema: Between0And1 | None = None
    """Decay of a moving average of the weights, such as 0.99: the average is what is validated, kept and saved."""

    augment: Literal["standard", "none"] = "standard"
    """`standard`: what the model's own preprocessing says; `none`: the inputs as they are ranked."""
    data_in_memory: bool | None = None
    """None: images are decoded once and kept in main memory, as many as a quarter of what is free has room for (at most
    4 GiB), and what is not augmented is kept as it was prepared. The result is the same. False: everything is decoded
    whenever it is needed. True: the prepared images are on the device, and are cropped and mirrored there. That is
    another augmentation: crops are of 35% of the prepared image or more, and colours stay. For data that fits, on a
    machine whose processors cannot prepare as fast as its accelerator trains."""
    workers: NonNegativeInt | None = None
    """Decoding processes of each process. None: as many as there are processors, eight at most, none for small data."""

    validate_every_epochs: Positive = 1.0
    """How often the validation metric is measured."""
    patience: PositiveInt | None = None
    """Stop after so many validations without a new best; None: never."""
    keep_best: bool = True
    """End with the weights of the best validation, not with the last; of equal ones, with the surer predictions."""

    trade_off: NonNegative | None = None
    """λ, the weight of the teachers' term, or the labels' where nobody teaches. None: the method's default (b-tuning:
    six times the number of classes C, sensible from C to 10·C, C for several labels, 1 for tagging and regression; kd:
    0.5 over the teachers' mean number of features for classification, otherwise by the size of the features; logit-kd,
    distill-weighted: 0.3). 0 is fine-tuning, bit for bit."""
    feature_trade_off: NonNegative | None = None
    """λ of a second term of b-tuning, logit-kd and distill-weighted: the share of the variance of the teachers'
    features that a linear map of the model's does not explain. None: 0, which is without it."""
    posterior_folds: PositiveInt | None = None
    """b-tuning: into how many folds the train samples are cut, groups whole. A sample is compared through a head of
    the model that was fitted to all other folds; 1: through one that was fitted to all samples, as in the paper. None:
    5 for classification, else 1."""
    label_share: Share | None = None
    """b-tuning: share of the labels in what the model follows, of which the teachers' answers are the rest. None: 0.5
    for classification with `posterior_folds` above 1, else 0."""
    teacher_targets: Literal["cached", "left-out", "live", "views"] = "cached"
    """`cached`: the teachers see each sample once, before tuning, unaugmented; a step costs what fine-tuning costs.
    `left-out`: the same, each sample predicted by posteriors that were fitted to all the others (b-tuning alone).
    `live`: they see the augmented inputs at each step, as in the paper. `views`: before tuning, they see
    `teacher_views` augmented views of each image, and the model is shown the same views in turn: live teachers at
    cached cost."""
    teacher_views: PositiveInt = 4
    """How many views of each image with `teacher_targets="views"`: so many passes of each teacher over the data."""
    teacher_weights: Literal["softmax", "bayes-factor", "precision", "uniform"] = "softmax"
    """How teachers are mixed; `uniform`: all alike; see `hubscout.tuning.teacher_answers.mixing_weights`."""
    temperature: Positive = 0.1
    """Of the softmax over the teachers' LogME."""
    kd_temperature: Positive = 2.0
    """T of `logit-kd` and `distill-weighted`: how far both answers are flattened before they are compared."""
    zoo_lite: bool = False
    """Zoo-Tuning with one set of gates for all inputs, which merges into a plain network afterwards."""
    zoo_start: Share = 0.8
    """Zoo-Tuning: share of the model's own parameters at the start; the teachers have the rest in equal parts."""

    l2_sp: NonNegative | None = None
    """α of L2-SP: ½α‖w − w₀‖² pulls the backbone to where it started, in the place of its weight decay."""
    bss: NonNegative | None = None
    """η of batch spectral shrinkage: η·σ²_min of each batch's features; 1e-3 in its paper."""
    lora_rank: PositiveInt | None = None
    """Train low-rank adapters of this rank instead of the backbone's weights; merged into them at the end."""
    head_init: Literal["random", "posterior"] = "random"
    """`posterior`: start the head from the posterior weights m of the model's frozen features."""
    linear_probe: bool | None = None
    """Measure the linear probe of the frozen features (and of the teachers') before tuning, and keep it as the result
    where validation never reaches it, if `keep_best`. None: where the learning rate is left to hubscout, unless the
    run is shorter than the probe."""
    freeze: str | None = None
    """A layer's name: it and everything before it stay as they are. `all`: the whole backbone (linear probing)."""

    frozen_norm_statistics: bool | None = None
    """Batch norms use the statistics they came with, in training too; their weights and biases are trained. None: in
    runs of at most 2,000 steps at no more than the default learning rate, if the norms have been trained."""

    mixed_precision: Literal["auto", "no", "fp16", "bf16"] = "auto"
    """`auto`: bf16 on a GPU that has it, else none."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto`, `cpu` or `cuda`; which of several GPUs is the launcher's affair."""
    cuda_graphs: bool = True
    """On one GPU, for images: record the two passes of a step once and play them back, which launches all of their
    kernels at once. What comes out is the same; small images train faster."""
    processes: PositiveInt | None = None
    """How many processes the run is meant to have; a run with another number warns."""
    evaluation_batch_size: PositiveInt | None = None
    """None: twice `batch_size`."""
    bootstrap_resamples: int = 1000
    """For the intervals of the reported metrics."""
    confidence: Share = 0.95
    """Of those intervals."""
    shown_samples: NonNegativeInt = 24
    """How many test samples, of the worst predicted and of the probably mislabelled each, are kept with the run for its
    report, as thumbnails or texts. 0: none, for a folder that others will see."""
    checkpoint_every_steps: PositiveInt | None = None
    """None: at each validation."""
    keep_checkpoints: PositiveInt = 2
    """How many of the latest checkpoints stay on disk."""
    log_every_steps: PositiveInt = 10
    """How often losses are read back from the device and written to `metrics.jsonl`."""
    trackers: tuple[str, ...] = ()
    """Trackers of accelerate that losses, rates and validation metrics go to: `tensorboard`, `wandb`, `mlflow`, `aim`,
    `clearml`, `comet_ml`, `dvclive`, `swanlab`, `trackio`. The package of each must be installed."""

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            value = getattr(self, name)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise InputError(f"{name}={value!r}: allowed are {', '.join(map(repr, get_args(hint)))}.")
            limits = [limit for part in (hint, *get_args(hint)) for limit in getattr(part, "__metadata__", ())]
            if value is not None and not all(limit.allows(value) for limit in limits):
                raise InputError(f"{name}={value!r}: {limits[0].words}.")
        if self.budget is not None:
            object.__setattr__(self, "budget", parse_seconds(self.budget))
        said = {"epochs": self.epochs, "steps": self.steps, "budget": self.budget}
        given = [f"{name}={value:g}" for name, value in said.items() if value is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} both say how long the run is: give one of them.")
        if self.budget is not None and self.schedule not in ("auto", "wsd"):
            raise InputError(
                f"schedule={self.schedule!r} must know its last step beforehand: a budget goes with 'wsd' or 'auto'."
            )
        if isinstance(self.trackers, str):
            raise InputError(f"trackers={self.trackers!r}: give a tuple of names, such as ('tensorboard',).")
        object.__setattr__(self, "trackers", tuple(self.trackers))

    @classmethod
    def of(cls, **options: Any) -> TuningArguments:
        """Arguments out of keywords, with an error that names the unknown ones.

        Args:
            options: fields by name.

        Returns:
            The arguments.

        Raises:
            UnknownNameError: there is no such field.

        """
        check_names(options)
        return cls(**options)

    def replace(self, **changes: Any) -> TuningArguments:
        """The same with some fields changed.

        Args:
            changes: fields by name.

        Returns:
            New arguments.

        Raises:
            UnknownNameError: there is no such field.

        """
        check_names(changes)
        return dataclasses.replace(self, **changes)

    def decisive(self) -> dict[str, Any]:
        """The fields that decide what comes out: those in which a resumed run must agree with its checkpoint.

        Returns:
            Name → value.

        """
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in _RUNTIME_FIELDS}

    @property
    def intervals(self) -> dict[str, Any]:
        """How the intervals of reported metrics are made."""
        return {"resamples": self.bootstrap_resamples, "confidence": self.confidence}

    def settled(self, modality: str, kind: str) -> TuningArguments:
        """The same with every `auto` and None that depends on the kind of data made definite.

        Args:
            modality: of the data, such as "image".
            kind: of the task.

        Returns:
            New arguments.

        """
        optimizer = self.optimizer if self.optimizer != "auto" else default_optimizer(modality, kind)
        rate = self.learning_rate or rates_of(optimizer, modality).default
        left_to_us = self.learning_rate is None and self.head_learning_rate is None
        return self.replace(
            epochs=EPOCHS if self.epochs is None and self.steps is None and self.budget is None else self.epochs,
            optimizer=optimizer,
            schedule=self.schedule if self.schedule != "auto" else "cosine" if self.budget is None else "wsd",
            warmup=default_warmup(kind) if self.warmup is None else self.warmup,
            learning_rate=rate,
            head_learning_rate=self.head_learning_rate or 10 * rate,
            rate_search=self.rate_search and left_to_us,
        )

    def length(self, batches_per_epoch: int) -> int:
        """How many steps the run has, unless a budget says otherwise.

        Args:
            batches_per_epoch: how many steps an epoch has.

        Returns:
            The number of steps.

        """
        return self.steps or (self.epochs or EPOCHS) * batches_per_epoch

    def at_rate(self, rate: float | None) -> TuningArguments:
        """Settled arguments with the learning rate that a search chose; None: as they are.

        Args:
            rate: the learning rate, or None.

        Returns:
            New arguments.

        """
        return self if rate is None else self.replace(learning_rate=rate, head_learning_rate=10 * rate)

    def slower(self, times: int) -> TuningArguments:
        """Settled arguments with the learning rates of the run that starts anew for the `times`-th time.

        Args:
            times: how often the run has started anew.

        Returns:
            New arguments.

        """
        if not times:
            return self
        assert self.learning_rate is not None
        assert self.head_learning_rate is not None
        factor = RESTART_FACTOR**times
        return self.replace(
            learning_rate=float(f"{self.learning_rate / factor:.6g}"),
            head_learning_rate=float(f"{self.head_learning_rate / factor:.6g}"),
        )


def check_names(names: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise for a name that is no field of `TuningArguments`, nor one of those that a function has beside them."""
    known = {field.name for field in dataclasses.fields(TuningArguments)}
    if "lr" in names:  # too short to be near its name
        raise InputError("There is no tuning argument 'lr': it is called learning_rate.")
    check_keywords(names, known | {*also}, context="" if also else "tuning arguments")


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(TuningArguments, include_extras=True)
