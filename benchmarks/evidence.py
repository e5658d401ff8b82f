"""How fast the evidence is maximised: every solver, and the Gram product alone, in one run.

    python benchmarks/evidence.py                      # the table
    python benchmarks/evidence.py --peer PATH          # beside a checkout of the paper's released LogME (needs numba)
    python benchmarks/evidence.py --memory             # peak memory of a stream of a million samples
    python benchmarks/evidence.py --one-thread         # processor seconds of one thread, for a machine that others use
    python benchmarks/evidence.py --device cuda        # with features on the device: every shape, and its parts
    python benchmarks/evidence.py --device cuda --shapes Aircraft --degrees 6x8 8x8 8x10   # of other polynomials
    python benchmarks/evidence.py --device cpu --size 1500 256 20                          # to try that without one

Times are the best of several repeats in one process; on a noisy machine only their ratios mean anything. What the
spectrum could cost at best is in `benchmarks/reduction.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hubscout.evidence import Evidence, Statistics, array_backend, chebyshev, condensed, logme, maximize_evidence
from hubscout.evidence.array_backend import Array
from hubscout.evidence.maximize import Jackknife


@dataclass(frozen=True)
class Shape:
    name: str
    n: int
    dim: int
    classes: int
    naive_classes: int
    """How many classes the naive solver is timed on; its time is that of a class times all classes. 0: not timed."""


AS_RELEASED: dict = {"tolerance": 1e-3, "max_iterations": 11, "jackknife": "none"}
"""When the released code stops. To the accuracy of "newton" the paper's three need many times the repetitions."""

SHAPES = (
    Shape("Aircraft, ResNet-50", 6667, 2048, 100, 1),
    Shape("a thousand classes", 6667, 2048, 1000, 0),
    Shape("n < D", 2000, 2048, 100, 0),
    Shape("50 000 samples", 50_000, 2048, 100, 0),
)


def make(shape: Shape, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features with a decaying spectrum and classes that they explain in part, as those of networks."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(shape.classes), rng.integers(shape.classes, size=shape.n - shape.classes)])
    scales = np.arange(1, shape.dim + 1) ** -0.5
    centres = rng.normal(size=(shape.classes, shape.dim)).astype(np.float32)
    features = rng.standard_normal((shape.n, shape.dim), dtype=np.float32) + 0.5 * centres[labels]
    return np.maximum(features * scales, 0).astype(np.float32), labels


CLOCKS: dict[bool, Callable[[], float]] = {False: time.perf_counter, True: time.process_time}
"""By whether one thread is timed."""


def best_of(repeats: int, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of `repeats` runs, after none to warm up: the best run is the warm one."""
    seconds = []
    for _ in range(repeats):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def load_peer(folder: Path) -> Callable[[np.ndarray, np.ndarray], float]:
    """The released LogME of a checkout, as a function of features and class ids."""
    specification = importlib.util.spec_from_file_location("released_logme", folder / "LogME.py")
    if specification is None or specification.loader is None:
        raise SystemExit(f"no LogME.py in {folder}")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return lambda features, labels: float(module.LogME(regression=False).fit(features, labels))


def time_shape(
    shape: Shape,
    repeats: int,
    peer: Callable[[np.ndarray, np.ndarray], float] | None,
    clock: Callable[[], float],
    paper: bool,
) -> dict[str, float]:
    """Seconds by what was timed; with `paper`, the paper's solvers as well."""
    features, labels = make(shape)
    wide = np.ascontiguousarray(features.T if shape.n < shape.dim else features, dtype=np.float64)

    def timed(work: Callable[[], object], times: int = repeats) -> float:
        return best_of(times, work, clock)

    seconds = {
        "gram": timed(lambda: wide.T @ wide),
        "newton": timed(lambda: logme(features, labels, jackknife="none")),
        "with error bar": timed(lambda: logme(features, labels)),
    }
    for name in ("fixed-point", "mackay") if paper else ():
        seconds[name] = timed(lambda name=name: logme(features, labels, solver=name, **AS_RELEASED), 1)
    if paper and shape.naive_classes:
        columns = (labels[:, None] == np.arange(shape.naive_classes)).astype(np.int64)
        one = timed(lambda: logme(features, columns, kind="multilabel", solver="naive", **AS_RELEASED), 1)
        seconds["naive"] = one * shape.classes / shape.naive_classes
    if peer is not None:
        seconds["released"] = timed(lambda: peer(features, labels), max(1, repeats - 1))
    return seconds


def stream_memory(n: int, dim: int, classes: int, batch: int) -> dict[str, float]:
    """Peak memory above the interpreter with torch loaded, while a stream of batches is scored."""
    import torch

    torch.zeros(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, dim), dtype=np.float32)
    statistics = Statistics("classification", [str(c) for c in range(classes)], feature_dim=dim)
    start = time.perf_counter()
    for position in range(0, n, batch):
        labels = rng.integers(classes, size=min(batch, n - position))
        noise = rng.standard_normal((len(labels), dim), dtype=np.float32)
        statistics.update(noise + centres[labels], labels, block=position * 10 // n)
    streamed = time.perf_counter() - start
    evidence = maximize_evidence(statistics)
    total = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "n": n,
        "dim": dim,
        "classes": classes,
        "mebibytes_above_torch": peak - before,
        "seconds_streaming": streamed,
        "seconds_scoring": total - streamed,
        "score": evidence.score,
    }


def time_on_device(shape: Shape, device: str, *, compare: bool) -> dict[str, float]:
    """Median milliseconds with features on an accelerator: the score and its parts, by eigenvectors and without.

    To `compare` it with the score of the CPU takes longer than all the rest.
    """
    import torch

    features, labels = make(shape)
    on_device, ids = torch.from_numpy(features).to(device), torch.from_numpy(labels).to(device)
    rows = on_device.double()
    dual = shape.n < shape.dim
    gram = rows @ rows.T if dual else rows.T @ rows

    def milliseconds(work: Callable[[], object]) -> float:
        def waited() -> None:
            work()
            if on_device.is_cuda:
                torch.cuda.synchronize()

        best_of(3, waited)
        return 1000 * sorted(best_of(1, waited) for _ in range(15))[7]

    def scored(*, eigenvectors: bool, jackknife: Jackknife) -> Evidence:
        kept = condensed.SMALLEST_DIM
        try:
            condensed.SMALLEST_DIM = sys.maxsize if eigenvectors else kept
            return logme(on_device, ids, jackknife=jackknife)
        finally:
            condensed.SMALLEST_DIM = kept

    works: dict[str, Callable[[], object]] = {
        "gram": lambda: rows @ rows.T if dual else rows.T @ rows,
        "eigh": lambda: torch.linalg.eigh(gram),
        "newton by eigh": lambda: scored(eigenvectors=True, jackknife="none"),
        "with error bar by eigh": lambda: scored(eigenvectors=True, jackknife="linear"),
        "newton": lambda: scored(eigenvectors=False, jackknife="none"),
        "with error bar": lambda: scored(eigenvectors=False, jackknife="linear"),
    }
    found = {name: milliseconds(work) for name, work in works.items()}
    direct, fitted = (scored(eigenvectors=one, jackknife="linear") for one in (True, False))
    if isinstance(fitted.spectrum, condensed.Condensed):
        found |= parts_of_condensing(rows, labels, gram, fitted.spectrum, milliseconds)
    found["condensed"] = float(isinstance(fitted.spectrum, condensed.Condensed))
    found["score differs"] = float(abs(fitted.per_target - direct.per_target).max())
    found["gain differs"] = float(abs(fitted.per_target_gain - direct.per_target_gain).max())
    distance = np.linalg.norm(fitted.weights - direct.weights, axis=1)
    length = np.linalg.norm(direct.weights, axis=1)
    found["weights differ, relative"] = float((distance / np.where(length > 0, length, 1.0)).max())
    if fitted.standard_error and direct.standard_error:
        found["error bar differs, relative"] = abs(fitted.standard_error / direct.standard_error - 1)
    if compare:
        reference = logme(features.astype(np.float64), labels, jackknife="none").score
        found["distance from the CPU"] = abs(fitted.score - reference)
    return found


def parts_of_condensing(
    rows: Array, labels: np.ndarray, gram: Array, spectrum: condensed.Condensed, timer: Callable[..., float]
) -> dict[str, float]:
    """Milliseconds of what a condensed spectrum is made of, about its own t₀."""
    import torch

    one_hot = np.eye(int(labels.max()) + 1)[labels]
    targets = torch.cat([torch.from_numpy(one_hot).to(rows.device).T @ rows, rows.sum(0)[None]])
    t = spectrum.profile.scale
    shifted = gram + t * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(shifted)
    inverse = torch.cholesky_inverse(factor)
    points = chebyshev.points(gram, targets, t)
    assert points is not None
    works: dict[str, Callable[[], object]] = {
        "one product": lambda: gram @ gram,
        "factor": lambda: torch.linalg.cholesky_ex(shifted),
        "triangular solve": lambda: torch.linalg.solve_triangular(factor, targets.T, upper=False),
        "solve": lambda: torch.cholesky_solve(targets.T, factor),
        "inverse": lambda: torch.cholesky_inverse(factor),
        "inverse by two solves": lambda: torch.cholesky_solve(torch.eye(len(gram)).to(gram), factor),
        "polynomials": lambda: chebyshev.polynomials(2 * t * inverse),
        "points": lambda: chebyshev.points(gram, targets, t),
        "weights": lambda: points.weights(spectrum.solution.ratio),
        "condense": lambda: condensed.condense(spectrum.block, spectrum.n, spectrum.drift),
    }
    return {name: timer(work) for name, work in works.items()}


def show(results: dict[str, dict[str, float]]) -> None:
    """A table of seconds, and of how many times as long as the fast solver each takes."""
    columns = ["gram", "newton", "with error bar", "fixed-point", "mackay", "naive", "released"]
    columns = [name for name in columns if any(name in row for row in results.values())]
    table = Table("shape", *columns, "newton / gram", title="Seconds (and times newton's)")
    for shape, row in results.items():
        cells = [f"{row[c]:.2f} ({row[c] / row['newton']:.1f}×)" if c in row else "–" for c in columns]
        table.add_row(shape, *cells, f"{row['newton'] / row['gram']:.2f}")
    Console(width=140).print(table)
    Console().print("newton: the score, as the others give it; with error bar: what `logme` does by default.")
    for shape, row in results.items():
        line = f"{shape.splitlines()[0]}: the error bar adds {row['with error bar'] / row['newton'] - 1:.0%}"
        if "released" in row:
            line += f"; the released code takes {row['released'] / row['with error bar']:.1f} times as long as both"
        Console().print(line)
    if "naive" in columns:
        Console().print("naive: timed on a sample of the classes and multiplied up.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="folder of a checkout of the released LogME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shapes", nargs="*", help="parts of shape names; default: all")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--device")
    parser.add_argument("--degrees", nargs="*", default=[""], help="of polynomials on a device, as STEPxSTRIDES")
    parser.add_argument("--smallest-dim", type=int, help="from which eigenvectors are done without on a device")
    parser.add_argument("--size", nargs=3, type=int, metavar=("N", "D", "CLASSES"), help="one shape of this size")
    parser.add_argument("--newton-only", action="store_true", help="leave the paper's solvers out")
    parser.add_argument("--one-thread", action="store_true", help="processor seconds of one thread")
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    shapes = [s for s in SHAPES if not arguments.shapes or any(part in s.name for part in arguments.shapes)]
    if arguments.size:
        shapes = [Shape("made to measure", *arguments.size, 0)]
    names = {shape: f"{shape.name}\n{shape.n}×{shape.dim}, {shape.classes} classes" for shape in shapes}
    if arguments.memory:
        results["stream"] = stream_memory(1_000_000, 1024, 100, 4096)
        print(json.dumps(results, indent=1))
    elif arguments.device:
        if arguments.device == "cpu":
            array_backend.HOST_TENSORS_AS_NUMPY, condensed.SMALLEST_DIM = False, 1
        condensed.SMALLEST_DIM = arguments.smallest_dim or condensed.SMALLEST_DIM
        for degree in arguments.degrees:
            if degree:
                chebyshev.STEP, chebyshev.STRIDES = (int(number) for number in degree.split("x"))
            for shape in shapes:
                found = time_on_device(shape, arguments.device, compare=not results)
                name = f"{names[shape]}, degree {chebyshev.STEP}×{chebyshev.STRIDES}".replace("\n", ", ")
                results[name] = found
                print(
                    f"{name}; ms, and differences:",
                    *(f"  {key:30}{value:.3g}" for key, value in found.items()),
                    sep="\n",
                )
                sys.stdout.flush()
    else:
        import scipy.linalg  # noqa: F401  it has a library of its own, which can be limited once it is loaded
        from threadpoolctl import threadpool_limits

        peer = load_peer(arguments.peer) if arguments.peer else None
        with threadpool_limits(1 if arguments.one_thread else None):
            for shape in shapes:
                results[names[shape]] = time_shape(
                    shape, arguments.repeats, peer, CLOCKS[arguments.one_thread], not arguments.newton_only
                )
        show(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
