"""`rank()`: which of these models should I start from?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from hubscout.amounts import parse_limit, parse_seconds
from hubscout.credentials import strip_credentials
from hubscout.engines import Engine
from hubscout.engines.engine import check_engine, running_engine
from hubscout.errors import HubscoutError, InputError, check_choice, check_keywords, keywords
from hubscout.features.options import ExtractionOptions
from hubscout.hubs.model_listing import TEXT_MODALITIES
from hubscout.hubs.pooling import MEAN_LAYER
from hubscout.optional import torch_ahead
from hubscout.ranking.assess import Layer, Settings
from hubscout.ranking.assessor import Assessor
from hubscout.ranking.candidates import find_candidates
from hubscout.ranking.jobs import ImportForModels, workers_ahead
from hubscout.ranking.journal import Journal
from hubscout.ranking.progressive import rank_in_stages
from hubscout.ranking.ranking_run import RankingRun
from hubscout.runs.display import shown
from hubscout.runs.events import Message, silent
from hubscout.runs.profiler import profiled, step
from hubscout.runs.ranking import Ranking, check_limits
from hubscout.runs.ranking_storage import import_for_table
from hubscout.runs.run_folder import RANKING, check_folder
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.runs.events import Observer
    from hubscout.tasks import Task


_JOB_SECONDS = 3600.0


def rank(
    task: Any,
    models: Any = None,
    *,
    metrics: Sequence[str] | str = ("logme",),
    layer: Layer | None = None,
    center: bool | None = None,
    cache: FeatureCache | str | Path | bool = True,
    limit: int | str | None = None,
    budget: float | str | None = None,
    progressive: bool | None = None,
    drop: bool = True,
    measure_latency: bool = True,
    max_params: float | str | None = None,
    max_flops: float | str | None = None,
    max_latency: float | str | None = None,
    engine: str | Engine = "local",
    engine_options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    observer: Observer | None = None,
    progress: bool = True,
    profile: bool = False,
    load_ahead: bool | None = None,
    extraction: ExtractionOptions | None = None,
    **options: Any,
) -> Ranking:
    """Rank models by how well their frozen features explain the labels of the train split.

    Args:
        task: the labelled data, or what `hubscout.open_task` opens: a folder, a table, a data set's name, a data
            frame, `(X, y)`, a `Dataset` or `DataLoader`.
        models: identifiers (`timm/resnet50.a1_in1k`), patterns (`timm/mobilenetv3*`), models in memory (a torch module,
            a model of timm or transformers, a `SentenceTransformer`, a backbone, a `Tuned`), one or a list of any of
            these; or a mapping from names to models in memory. Such a model is copied, not changed. "small", "base" or
            "large" is a list of hubscout's own (`hubscout.hubs.default_models`); None is "small" on a CPU and "base" on
            a GPU. Without a network a list is replaced by the models on this machine. Models of a pattern or a list
            that take another kind of input are left out.
        metrics: names of metrics; the first one orders the models. See `hubscout.metrics.available`.
        layer: "final" ranks by the final features; "best" by each model's best layer of those in `layers`, by default
            all, each of which has a LogME of its own in the row; "mean" by the average of all layers of a transformer.
            None is "best" for texts and "final" for all else.
        center: whether LogME takes the means of features and labels away first. None does so for regression: a
            target that is far from zero is otherwise explained best by whichever features happen to be far from zero
            too. For classes, None is the paper's way, which does not.
        cache: True for the default folder, a folder, a URL such as s3://bucket/features, or False to keep sufficient
            statistics alone. With an engine on several machines, a folder that is named must be seen by all of them.
        limit: rank on a stratified subset of so many train samples, such as 2000 or "2k".
        budget: a time such as "10min". Models run on growing subsets, hopeless ones are dropped on the way, and the
            subsets stop growing when the time is up.
        progressive: growing subsets and dropping without a time limit; None is only where `budget` is given.
        drop: give hopeless models up on the way. False keeps them all: `budget` then decides how many samples are
            used, at least those of the first subset, for which there is three times the time.
        measure_latency: time single samples through each model, for about half a second.
        max_params: rank only models of at most so many parameters, such as 5e6 or "5M". One that is over a limit is
            not run, and not opened where its hub tells that; it is in `failures`. To have larger models as teachers,
            rank them too and ask for the small ones afterwards: `Ranking.within`.
        max_flops: rank only models of at most so many operations per sample.
        max_latency: rank only models of at most so many seconds for one sample, or a text such as "20ms".
        engine: where models run: "local" is this process, or processes of this machine; "ray" is a cluster; or an
            engine that is open already.
        engine_options: for the engine, such as `{"workers": 4}` for "local" or `{"address": "auto"}` for "ray".
        time_limit: how long a job of an engine may be silent, such as "20min", before its model is given up as
            hanging; every batch is a sign of life. None is an hour. "local" without workers cannot end a job.
        seed: of subsets and of the draws for P(best).
        out: a run folder. Every finished model is saved there at once; the same call goes on where one was stopped,
            and the same configuration with other models adds them to those that are there. Another one (other data,
            metrics or settings) is refused. One process at a time writes a folder.
        resume: refuse to start where `out` holds no ranking to go on with.
        overwrite: score all models anew, and let `out` replace whatever ranking is there once the first is scored.
        observer: hears of progress in place of the display; see `hubscout.runs.events`.
        progress: show progress in a terminal or a notebook; False shows nothing.
        profile: measure where each second goes (`hubscout.runs.profiler`): the table says it for each model and in
            sum, a row in its `profile`, the ranking in its `environment`. On a GPU it waits for every step.
        load_ahead: open the next models while one runs, where models run in this process; a GPU has them there by
            then, and the one before is scored meanwhile. None does so where a GPU runs them: on a CPU the two take the
            cores from each other.
        extraction: how models are run; or as keywords:
        options: fields of `hubscout.features.ExtractionOptions`: `layers`, `device`, `precision`, `batch_size`,
            `accelerate`, `blocks`, `skip_bad`.

    Returns:
        The `Ranking`. A model that could not be loaded or run is in its `failures` with the reason.

    Raises:
        TaskError: the data cannot be read.
        InputError: an argument is wrong.
        RunError: `out` holds another ranking, or another process is writing it.
        InterruptedRunError: Ctrl-C; what was finished is in `out` and in the error's `ranking`.

    Example:
        >>> ranking = rank("flowers/", ["timm/resnet50.a1_in1k", "timm/mobilenetv3*"], out="run/")  # doctest: +SKIP
        >>> ranking.best.identifier, ranking.top(3)  # doctest: +SKIP

    """
    from hubscout.features.decoded import PreparedPool
    from hubscout.features.early_decoders import start_decoders
    from hubscout.features.precision import pick_device, warm_up
    from hubscout.tasks import open_task

    started = time.perf_counter()
    check_keywords(options, {*keywords(rank), *vars(ExtractionOptions())})
    chosen = ExtractionOptions.of(**options) if extraction is None else extraction.replace(**options)
    limit = None if limit is None else parse_limit(limit)
    check_folder(out, RANKING, resume=resume, overwrite=overwrite)
    limit_seconds = _JOB_SECONDS if time_limit is None else parse_seconds(time_limit, "time_limit")
    seconds = None if budget is None else parse_seconds(budget)
    if seconds is not None and progressive is False:
        raise InputError("budget stops the growth of subsets, and progressive=False has none: give one of them.")
    check_choices(metrics, layer, engine, engine_options, time_limit=time_limit)
    limits = check_limits(max_params=max_params, max_flops=max_flops, max_latency=max_latency)
    elsewhere = engine != "local" if isinstance(engine, str) else engine.elsewhere
    elsewhere = elsewhere or bool((engine_options or {}).get("workers"))
    with ExitStack() as stack:
        engine, engine_options = stack.enter_context(workers_ahead(engine, engine_options, models))
        here = None if elsewhere or limit is not None else chosen.device
        opened = open_ahead(task, lambda: open_task(task), here, elsewhere=elsewhere)
        names = _metric_names(metrics, opened.kind)
        centred = kind_of(opened.kind).center if center is None else center
        if layer is None:
            layer = default_layer(opened.modality)
        chosen = chosen.replace(layers=_layers(layer, chosen.layers))
        subset = opened if limit is None or limit >= len(opened.train) else opened.subset(limit, seed=seed)
        candidates = find_candidates(models, opened.modality, chosen.device)
        growing = bool(progressive) or (progressive is None and seconds is not None)
        journal = Journal(None if out is None else Path(out))
        profiler = stack.enter_context(profiled(profile, since=started))
        observer = stack.enter_context(shown(observer, progress, candidates.identifiers, notes=candidates.notes))
        settings = Settings(
            metrics=names,
            layer=layer,
            center=centred,
            extraction=chosen,
            measure_latency=measure_latency or max_latency is not None,
            limits=limits,
            cache=_open_cache(cache, stack, always=growing),
            observer=journal.watched(observer),
            prepared=PreparedPool() if len(candidates.models) > 1 else None,
            profile=profile,
        )
        configuration = {
            "metrics": list(names),
            "layer": layer,
            "center": centred,
            "limit": limit,
            "budget_seconds": seconds,
            "progressive": growing,
            "drop": growing and drop,
            "seed": seed,
            **chosen.decisive(),
            **({"limits": limits} if limits else {}),
        }
        run = RankingRun(
            task=subset,
            candidates=candidates.models,
            settings=settings,
            configuration=configuration,
            whole=opened,
            cache_folder=None if cache is False or settings.cache is None else settings.cache.place,
            journal=journal,
            started=started,
            notes=candidates.notes,
            seed=seed,
            profiler=profiler,
        )
        stack.callback(run.journal.close)
        with step("start"):
            run.begin(overwrite)
        if run.over:
            return run.finish()
        with step("start"):
            runner = stack.enter_context(running_engine(engine, engine_options))
            ImportForModels.begin(runner, candidates.identifiers)
            for note in runner.notes:
                (observer or silent)(Message("engine", note))
            device = "cpu" if runner.elsewhere else pick_device(chosen.device)
        if device.startswith("cuda"):
            warm_up(device)
            start_decoders(device, subset)
        run.assessor = Assessor(
            runner,
            subset,
            settings,
            shared_cache=not isinstance(cache, bool) or runner.shares_files(),
            seconds_limit=limit_seconds,
            began=lambda model: run.journal.note("model-started", model=model),
            load_ahead=device if load_ahead or (load_ahead is None and device != "cpu") else None,
            at_last=None if out is None else import_for_table,
        )
        try:
            if growing:
                rank_in_stages(run, seconds)
            else:
                run.at_once()
        except KeyboardInterrupt:
            raise run.interrupted() from None
        except HubscoutError as error:
            run.journal.note("failed", error=strip_credentials(str(error)))
            raise
        if len(run.skipped) == len(run.candidates):
            raise InputError(f"models: none of those found takes {opened.modality} inputs, which are the task's.")
        return run.finish()


def open_ahead(data: Any, opening: Callable[[], Task], device: str | None, *, elsewhere: bool = False) -> Task:
    """Open `data` while torch is imported, and start a `device` of this process, and what decodes the data for it.

    Where models run `elsewhere`, this process may do without torch.
    """
    from hubscout.features.early_decoders import start_decoders
    from hubscout.features.precision import pick_device, warm_up

    def start_device() -> None:
        if device is not None and (picked := pick_device(device)).startswith("cuda"):
            warm_up(picked)

    with nullcontext() if elsewhere else torch_ahead(data, start_device):
        task = opening()
        if device is not None:
            start_decoders(device, task)
    return task


def check_choices(
    metrics: Sequence[str] | str,
    layer: str | None = None,
    engine: str | Engine = "local",
    engine_options: Mapping[str, Any] | None = None,
    *,
    time_limit: float | str | None = None,
) -> None:
    """Refuse what can be refused before data are read, which can take long: names that there are not, idle options."""
    from hubscout.metrics import METRICS

    for name in [metrics] if isinstance(metrics, str) else metrics:
        METRICS[name]
    if layer is not None:
        check_choice("layer", layer, get_args(Layer))
    if isinstance(engine, str):
        check_engine(engine, engine_options or ())
    elif engine_options:
        raise InputError("engine_options are for an engine that is named, not for one that is open already.")
    if engine == "local" and time_limit is not None and not (engine_options or {}).get("workers"):
        raise InputError(
            f"time_limit={time_limit!r} is for engine='ray' or for workers: here nothing ends a model that hangs."
        )


def default_layer(modality: str) -> Layer:
    """What models are ranked by where nobody says.

    The last layer of a text encoder is made for what it was trained to do, and often explains other labels worse than
    one before it; the order by best layers was that of fine-tuning more often (experiments/text_layers).

    >>> default_layer("text-pair"), default_layer("image")
    ('best', 'final')
    """
    return "best" if modality in TEXT_MODALITIES else "final"


def _layers(layer: str, asked: Sequence[str] | str | None) -> Sequence[str] | str | None:
    """The layers to tap: those that were asked for and those that the ranking goes by."""
    if layer == "best":
        return asked or "all"
    if layer == "mean":
        return tuple(dict.fromkeys([*([asked] if isinstance(asked, str) else asked or ()), MEAN_LAYER]))
    return asked


def _metric_names(metrics: Sequence[str] | str, kind: str) -> tuple[str, ...]:
    from hubscout.metrics import lookup

    names = tuple(dict.fromkeys([metrics] if isinstance(metrics, str) else metrics))
    if not names:
        raise InputError("metrics is empty: give at least one, such as 'logme'.")
    for name in names:
        lookup(name, kind)
    return names


def _open_cache(cache: FeatureCache | str | Path | bool, stack: ExitStack, *, always: bool) -> FeatureCache | None:
    from hubscout.features.feature_cache import FeatureCache

    if cache is False:
        if not always:
            return None
        # Growing subsets need the features of the smaller ones again; for the time of the run only.
        return FeatureCache(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubscout-"))))
    if cache is True:
        return FeatureCache()
    return FeatureCache(cache) if isinstance(cache, str | Path) else cache
