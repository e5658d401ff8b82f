"""The forward pass as a graph that ONNX Runtime or OpenVINO runs, which is faster on a CPU than torch's own.

The graph is exported from the backbone's own `forward`, so taps, poolings and normalisation are in it, with a free
batch size and, for text, a free length. It is kept, without the weights, in the feature cache by what the network is
made of and the shape of its inputs. It runs only where it gives what torch gives for samples of the data; otherwise the
model runs in torch.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from hubscout.errors import AccelerationError, CacheError, HubscoutError, first_line
from hubscout.evidence import logme
from hubscout.features.feature_cache import GRAPH
from hubscout.features.graph_export import export, weights_of
from hubscout.features.graph_sessions import SESSIONS
from hubscout.features.pipeline import collate
from hubscout.features.precision import relative_error
from hubscout.features.static_padding import write_padding_down
from hubscout.features.storage import ABOUT, About
from hubscout.hubs import Batch, Output
from hubscout.hubs.mapped_weights import let_go_of_pages
from hubscout.hubs.text_preprocessing import IDS, MASK, SECOND, TYPES, WORD_ENDS, WORDS
from hubscout.tasks.kinds import kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from hubscout.features.extraction_plan import ExtractionPlan
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.features.forward import Runner
    from hubscout.features.preparing import Reader
    from hubscout.hubs import Backbone

_IMAGES_AT_ONCE = 8
"""Measured with EfficientNet-Lite0 and MobileNetV2: 32 take 3% longer each, and four times the memory."""
_CHECKED_SAMPLES, _CHECKED_BATCHES, _EXPORTED_SAMPLES = 16, 5, 2
_SAFE_RELATIVE_ERROR, _SAFE_NATS = 1e-3, 1e-4
_FILE = "graph.onnx"
_LAYER = "layer "
_TEXT = tuple(prefix + name for prefix in ("", SECOND) for name in (IDS, MASK, TYPES))
_FREE_LENGTH = (*_TEXT, WORDS, WORD_ENDS)

_graphs: WeakKeyDictionary[Backbone, tuple[str, Graph | None]] = WeakKeyDictionary()
"""Of each backbone that is in use: its graph, or None where it can have none, so that neither is found out twice."""


class Graph:
    """An exported network, ready to run."""

    def __init__(self, runtime: str, path: Path, backbone: Backbone) -> None:
        import torch

        self._session = SESSIONS[runtime](path, weights_of(backbone), threads=torch.get_num_threads())
        let_go_of_pages(backbone.module)  # the session has its own, packed

    def __call__(self, batch: Batch) -> Output:
        import torch

        # The exporter leaves out inputs that the network does not look at, such as counts for a report.
        inputs = {name: batch[name].numpy() for name in self._session.inputs}
        samples = max(len(value) for value in inputs.values())
        size = _IMAGES_AT_ONCE if all(value.ndim == 4 for value in inputs.values()) else samples
        pieces = [
            self._session.run({name: value[start : start + size] for name, value in inputs.items()})
            for start in range(0, samples, size)
        ]
        found = pieces[0] if len(pieces) == 1 else [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
        named = dict(zip(self._session.outputs, map(torch.from_numpy, found), strict=True))
        layers = {name.removeprefix(_LAYER): value for name, value in named.items() if name.startswith(_LAYER)}
        return Output(named["features"], named.get("logits"), layers)


def open_graph(runtime: str, job: ExtractionPlan, runner: Runner, reader: Reader, cache: FeatureCache | None) -> Graph:
    """The graph of a model, from the cache or exported, after it has been checked on samples of the data.

    Raises:
        AccelerationError: the network cannot be exported, or the graph gives something else than torch.

    """
    name = ""
    try:
        rows, samples = _samples(job, reader)
        about = _describe(job, collate(job.backbone.preprocessing, samples[:1]))
        known_by = {**about, "data": job.split.fingerprint or job.task.fingerprint, "runtime": runtime}
        name = str(sorted(known_by.items()))
        known, graph = _graphs.get(job.backbone, ("", None))
        if known != name:
            graph = _make(runtime, job, runner, rows, samples, about, cache)
            _graphs[job.backbone] = (name, graph)
    except Exception as error:
        _graphs[job.backbone] = (name, None)
        if isinstance(error, AccelerationError):
            raise
        # Torch will meet it again, and say it better.
        raise AccelerationError(f"it cannot be checked ({first_line(error)[:200]})") from error
    if graph is None:
        raise AccelerationError("")  # why was said before
    return graph


def _make(
    runtime: str,
    job: ExtractionPlan,
    runner: Runner,
    rows: np.ndarray,
    samples: Sequence[Any],
    about: Mapping[str, str],
    cache: FeatureCache | None,
) -> Graph:
    longest_first = np.argsort([-len(sample) if hasattr(sample, "__len__") else 0 for sample in samples], kind="stable")
    # A few at a time: torch's maps of all of them would take more memory than the run that follows.
    parts = np.array_split(longest_first, min(_CHECKED_BATCHES, len(samples)))
    batches = [collate(job.backbone.preprocessing, [samples[place] for place in part]) for part in parts]
    batches[1] = _shorter_and_padded(batches[1])
    exact = [runner.eager(batch) for batch in batches]
    files = None if cache is None or not job.identity else cache.graph_folder(about)
    if files is not None and files.local is not None and (files.local / _FILE).is_file():
        try:
            return _checked(job, Graph(runtime, files.local / _FILE, job.backbone), batches, exact, rows[longest_first])
        except Exception:
            pass  # of another time, or broken: it is made again
    example = {name: value[:_EXPORTED_SAMPLES] for name, value in batches[1].items()}
    with tempfile.TemporaryDirectory(prefix="hubscout-") as temporary:
        path = Path(temporary) / _FILE
        try:
            export(job.backbone, job.layers, example, _named, list(_named(exact[1])), path, free_length=_FREE_LENGTH)
            if not set(_FREE_LENGTH) & set(example):
                inputs = {name: value.numpy() for name, value in example.items()}
                write_padding_down(path, inputs, weights_of(job.backbone))
        except Exception as error:  # whatever a network does that the exporter does not know
            raise AccelerationError(f"the network cannot be exported ({first_line(error)[:200]})") from error
        try:
            graph = Graph(runtime, path, job.backbone)
        except Exception as error:
            raise AccelerationError(f"the exported network cannot be opened ({first_line(error)[:200]})") from error
        graph = _checked(job, graph, batches, exact, rows[longest_first])
        if files is not None:
            try:
                files.write(_FILE, path.read_bytes())
                files.write(ABOUT, About(about, GRAPH, ()).encode())
            except CacheError as error:
                runner.tell(f"the exported network is not kept: {error}")
    return graph


def _samples(job: ExtractionPlan, reader: Reader) -> tuple[np.ndarray, list[Any]]:
    """Samples from all over the split, whichever of its rows are asked for."""
    places = np.unique(np.linspace(0, len(job.split) - 1, _CHECKED_SAMPLES).astype(int))
    found = {int(row): sample for row in places if (sample := reader(int(row))) is not None}
    if len(found) < 2:
        raise AccelerationError("there are no two samples to check it with")
    return np.array(list(found)), list(found.values())


def _describe(job: ExtractionPlan, batch: Batch) -> dict[str, str]:
    """What a graph depends on."""
    import onnxruntime
    import torch

    shapes = {name: "free" if name in _FREE_LENGTH else str(tuple(value.shape[1:])) for name, value in batch.items()}
    return {
        "model": job.backbone.card.identifier,
        "weights": job.identity,
        "layers": ", ".join(job.layers),
        "inputs": ", ".join(f"{name} {value.dtype} {shapes[name]}" for name, value in batch.items()),
        "versions": f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}",
    }


def _shorter_and_padded(batch: Batch) -> Batch:
    """Texts with a token less and one of them half empty: what was fixed to a length or to full rows shows."""
    changed = dict(batch)
    for name in set(_TEXT) & set(batch):
        value = batch[name]
        if WORDS not in batch and value.shape[1] > 2:
            value = value[:, :-1]
        changed[name] = value.clone()
        if name.endswith(MASK):
            changed[name][0, (value.shape[1] + 1) // 2 :] = 0
    return changed


def _named(output: Output) -> dict[str, Tensor]:
    """What a network gives, under the names that it has in the graph."""
    named = {"features": output.features, **{_LAYER + name: value for name, value in output.layers.items()}}
    return named if output.logits is None else {**named, "logits": output.logits}


def _checked(
    job: ExtractionPlan, graph: Graph, batches: Sequence[Batch], exact: Sequence[Output], rows: np.ndarray
) -> Graph:
    """The graph, if it gives what torch gives: `exact` for `batches`."""
    found = []
    for batch, expected in zip(batches, exact, strict=True):
        try:
            given = graph(batch)
        except Exception as error:
            raise AccelerationError(f"it fails ({first_line(error)[:200]})") from error
        others = _named(given)
        for name, one in _named(expected).items():
            other = others[name]
            if one.shape != other.shape:
                raise AccelerationError(f"it gives the shape {tuple(other.shape)} instead of {tuple(one.shape)}")
            if not (change := relative_error(other, one)) <= _SAFE_RELATIVE_ERROR:
                raise AccelerationError(f"it changes the features by {change:.2%}")
        found.append(given.features)
    difference = abs(_score(job, rows, [output.features for output in exact]) - _score(job, rows, found))
    if not difference <= _SAFE_NATS:
        raise AccelerationError(f"it changes LogME of {len(rows)} samples by {difference:.1g} nats")
    return graph


def _score(job: ExtractionPlan, rows: np.ndarray, features: Sequence[Tensor]) -> float:
    """LogME of a few samples; 0 where they are too few to say, such as those of one class."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = logme(
                np.concatenate([part.float().numpy() for part in features]),
                job.targets(rows),
                kind=kind_of(job.task.kind).row_kind,
                keep_spectrum=False,
            )
        except HubscoutError:
            return 0.0
    return float(found.score)
