"""Where the time of a ranking goes on a GPU: first passes, layouts, decoding, and samples on their way to it.

    python benchmarks/gpu.py layouts        # first and later passes by number format and layout, a process each
    python benchmarks/gpu.py decoding       # JPEG files by Pillow and by nvJPEG, and how far their pixels are apart
    python benchmarks/gpu.py resizing       # 256 images of 32 pixels to 224, on the device and by Pillow
    python benchmarks/gpu.py passes         # `rank` of a ResNet-50 on 50,000 small images beside bare forward passes
    python benchmarks/gpu.py spectrum       # the eigenproblem of the evidence alone, in both number formats
    python benchmarks/gpu.py hub            # `rank` of seventeen networks on 2,936 JPEG files of 128 pixels
    python benchmarks/gpu.py hub --files DIR --workers 1 4 --repeats 3    # their weights from files, in workers too
    python benchmarks/gpu.py hub --models 'timm/mobilenetv3*' @models.txt

`hub` runs the command in a process of its own for each number of workers, in turns, and then rankings of one process.

Networks have random weights, unless `hub` is told which to take; images are made up: neither changes the time, but that
weights which are drawn at random are not read. `--device cpu` and few `--samples` try it without a GPU.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LAYOUTS = [(number, layout) for number in ("float32", "float16", "bfloat16") for layout in ("usual", "channels-last")]
NETWORKS = ("mobilenetv2_100", "legacy_xception", "tf_efficientnet_lite0", "resnet50", "inception_v3")
HUB = (
    *("tf_efficientnet_lite0", "tf_efficientnet_lite1", "tf_efficientnet_lite2", "mobilenetv2_100", "mobilenetv2_110d"),
    *("mobilenetv2_120d", "mobilenetv2_140", "mobilenetv3_small_100", "resnet10t", "resnet14t", "resnet18", "resnet26"),
    *("resnet50", "vgg11", "vgg16", "inception_v3", "legacy_xception"),
)


def build(name: str, pixels: int = 128) -> Any:
    """A network of timm for another size of images; `rank` opens it as python:FILE:build?name=NAME."""
    from hubscout.hubs import prepare_torchvision

    prepare_torchvision()
    import timm

    return timm.create_model(name, pretrained_cfg_overlay={"input_size": (3, pixels, pixels), "crop_pct": 1.0})


def timed(work: Callable[[], object], device: str) -> float:
    import torch

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def layouts(samples: int, device: str) -> None:
    """A process each: what was compiled or loaded for one is there for the next."""
    print(
        f"{samples} images of 128 pixels; milliseconds of a later pass, seconds of a first one of so many, and of one"
    )
    for name in NETWORKS:
        for number, layout in LAYOUTS:
            child = multiprocessing.get_context("spawn").Process(
                target=passes_of, args=(name, number, layout, samples, device)
            )
            child.start()
            child.join()


def passes_of(name: str, number: str, layout: str, samples: int, device: str) -> None:
    import torch

    shape = torch.channels_last if layout == "channels-last" else torch.contiguous_format
    network = build(name).eval().to(device).to(memory_format=shape)

    def run(count: int) -> float:
        images = torch.randn(count, 3, 128, 128, device=device).to(memory_format=shape)
        reduced = torch.autocast(
            device, getattr(torch, number if number != "float32" else "bfloat16"), number != "float32"
        )
        with torch.inference_mode(), reduced:
            return timed(lambda: network(images), device)

    first, later = run(samples), min(run(samples) for _ in range(5))
    print(f"{name:24}{number:10}{layout:15}{1000 * later:8.1f} ms{first:8.2f} s{run(1):8.2f} s", flush=True)


def write_images(folder: Path, samples: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for index in range(samples):
        place = folder / f"class{index % 10}" / f"{index:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        small.resize((128, 128), Image.Resampling.BICUBIC).save(place, quality=90)


def decoding(samples: int) -> None:
    import torch
    from PIL import Image
    from torchvision.io import decode_jpeg, read_file

    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), samples)
        files = sorted(Path(folder).rglob("*.jpg"))
        raw = [read_file(str(file)) for file in files]
        decode_jpeg(raw[:16], device="cuda")
        found: list[torch.Tensor] = []
        on_gpu = timed(lambda: found.extend(decode_jpeg(raw, device="cuda")), "cuda")
        pillow: list[np.ndarray] = []
        on_core = timed(lambda: pillow.extend(np.asarray(Image.open(file)) for file in files), "cpu")
        apart = [
            np.abs(one.astype(int) - two.permute(1, 2, 0).cpu().numpy()) for one, two in zip(pillow, found, strict=True)
        ]
    print(f"{samples} files: nvJPEG {on_gpu:.3f} s, Pillow in one thread {on_core:.3f} s")
    mean, most = np.mean([one.mean() for one in apart]), max(one.max() for one in apart)
    print(f"pixels differ by {mean:.2f} of 255 in the mean, {most} at most")


def small_images(samples: int) -> Any:
    """As CIFAR-10: PNG files of 32 pixels in memory."""
    from PIL import Image

    from hubscout.tasks import Split, Task
    from hubscout.tasks.images import Images

    rng = np.random.default_rng(0)

    def png() -> bytes:
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((32, 32)).save(file, "PNG")
        return file.getvalue()

    distinct = min(samples, 5000)
    files = [png() for _ in range(distinct)] * -(-samples // distinct)
    split = Split(Images(files[:samples]), np.arange(samples) % 10)
    return Task("small", "classification", "image", tuple("abcdefghij"), {"train": split}, f"small {samples}")


def resizing(samples: int, device: str) -> None:
    """By the size of the pieces, in MiB of sums; the last line is Pillow in one thread."""
    import torch
    from PIL import Image

    from hubscout.hubs import device_resizing
    from hubscout.hubs.image_preprocessing import ImageConfig, ImagePreprocessing

    images = np.random.default_rng(0).integers(0, 256, (samples, 32, 32, 3), dtype=np.uint8)
    steps = ImagePreprocessing(ImageConfig(crop_pct=0.95))
    found = device_resizing.resizing_on(device, steps, images.shape[1:])
    assert found is not None, "the device does not give Pillow's pixels"
    batch = {name: value.to(device) for name, value in found.collate(images).items()}
    for mebibytes in (16, 32, 64, 128, 256, 512, 1024):
        device_resizing.MOST_BYTES = mebibytes << 20
        resized = found.resize(batch)
        took = min(timed(lambda: found.resize(batch), device) for _ in range(10))
        launched = min(timed(lambda: found.resize(batch), "cpu") for _ in range(10))
        print(f"{mebibytes:5} MiB: {1000 * took:8.2f} ms for {samples} images, {1000 * launched:.2f} ms to begin")
    began = time.perf_counter()
    expected = [steps(Image.fromarray(image)) for image in images]
    print(f"   Pillow: {1000 * (time.perf_counter() - began):8.2f} ms")
    pixels = next(iter(resized.values())).cpu()
    print(f"pixels that differ: {int((pixels != torch.from_numpy(np.stack(expected))).sum())} of {pixels.numel():,}")


def passes(samples: int, device: str) -> None:
    import torch

    from hubscout.hubs import load
    from hubscout.ranking import rank
    from hubscout.runs.profiler import profile_cells

    task, backbone = small_images(samples), load("python:timm:create_model?model_name=resnet50")
    assert backbone.module is not None
    backbone.module.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = 256 if device != "cpu" else 4
    images = torch.randint(0, 256, (size, 3, 224, 224), dtype=torch.uint8, device=device)
    batch = {"pixel_values": images.contiguous(memory_format=torch.channels_last)}
    rounds = 100 if device != "cpu" else 1

    def bare() -> None:
        for _ in range(rounds):
            backbone.forward(batch)

    with torch.inference_mode(), torch.autocast(device, torch.float16, enabled=device != "cpu"):
        bare()
        rate = rounds * size / timed(bare, device)
    print(f"bare forward passes: {rate:,.0f} images per second", flush=True)
    for label in ("with processes that start", "with processes that are there"):
        began = time.perf_counter()
        ranking = rank(task, [backbone], cache=False, measure_latency=False, progress=False, accelerate="off")
        seconds = time.perf_counter() - began
        share = samples / seconds / rate
        print(f"rank {label}: {seconds:.2f} s, {share:.0%} of the bare passes")
        print(f"  extraction alone: {ranking[0].samples_per_second:,.0f} images per second", flush=True)
    ranking = rank(task, [backbone], cache=False, measure_latency=False, progress=False, accelerate="off", profile=True)
    heads, lines = profile_cells(ranking)
    print("where the time goes, waiting for every step:")
    for line in (heads, *lines):
        print("  " + "".join(f"{text:>14}" for text in line), flush=True)


def spectrum(dim: int, device: str) -> None:
    import torch

    rows = torch.randn(3 * dim, dim, device=device, dtype=torch.float64)
    inner = rows.T @ rows
    single = inner.float()
    work: dict[str, Callable[[], object]] = {
        "Gram product": lambda: rows.T @ rows,
        "eigenvalues and vectors, float64": lambda: torch.linalg.eigh(inner),
        "eigenvalues and vectors, float32": lambda: torch.linalg.eigh(single),
        "eigenvalues alone, float64": lambda: torch.linalg.eigvalsh(inner),
    }
    for name, each in work.items():
        print(f"{name:36}{1000 * min(timed(each, device) for _ in range(4)):8.1f} ms", flush=True)


def write_weights(folder: Path) -> list[str]:
    """Random weights in files, where there are none yet; the identifiers that open them."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for name in HUB:
        if not (place := folder / f"{name}.safetensors").exists():
            save_file(build(name).state_dict(), place)
    return [f"file:{folder / name}.safetensors?arch=timm/{name}&input_size=128&crop_pct=1.0" for name in HUB]


def hub(samples: int, names: list[str], device: str, workers: list[int], repeats: int) -> None:
    """The command in a process of its own; then the first and a later ranking of one process, and their steps."""
    import subprocess
    import sys

    from hubscout.runs.profiler import profile_cells

    # Installed packages have compiled files: the first command makes those that are not there yet.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "images", Path(folder) / "run"
        write_images(data, samples * 10 // 7)
        given = [part for name in names for part in ("-m", name)]
        command = [sys.executable, "-m", "hubscout", "rank", str(data), *given, "--device", device, "--no-cache"]
        for count in repeats * workers:
            beside = [] if count == 1 else ["--workers", str(count)]
            began = time.perf_counter()
            subprocess.run(
                [*command, *beside, "--out", str(out), "--overwrite"],
                check=True,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
            seconds = time.perf_counter() - began
            print(f"with the start of the process, --workers {count}: {seconds:.2f} s", flush=True)

        for label, profile in (("first", True), ("second", False), ("third", True)):
            began = time.perf_counter()
            from hubscout.ranking import rank

            ranking = rank(data, names, device=device, cache=False, progress=False, profile=profile)
            seconds = time.perf_counter() - began
            print(f"{label} ranking of a process, {len(ranking)} networks: {seconds:.2f} s")
            heads, lines = profile_cells(ranking) if profile else ([], [])
            for line in (heads, *lines):
                print("".join(f"{text:>{13 if place else 30}}" for place, text in enumerate(line)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["layouts", "decoding", "resizing", "passes", "spectrum", "hub"])
    parser.add_argument("--samples", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="*", default=[], help="of `hub`: as `hubscout rank -m` takes them, or @FILE")
    parser.add_argument("--files", type=Path, help="of `hub`: a folder for weights of its networks, which are read")
    parser.add_argument("--repeats", type=int, default=1, help="of `hub`: how often the command runs")
    parser.add_argument("--workers", nargs="*", type=int, default=[1], help="of `hub`: processes of the command")
    given = parser.parse_args()
    if given.part == "layouts":
        layouts(given.samples or 256, given.device)
    elif given.part == "decoding":
        decoding(given.samples or 2048)
    elif given.part == "resizing":
        resizing(given.samples or 256, given.device)
    elif given.part == "passes":
        passes(given.samples or 50_000, given.device)
    elif given.part == "spectrum":
        spectrum(given.samples or 2048, given.device)
    else:
        names = [f"python:{Path(__file__).resolve()}:build?name={name}" for name in HUB]
        if given.files is not None:
            names = write_weights(given.files)
        elif given.models:
            from hubscout.cli.values import split_models

            names = split_models(given.models, allow_code=True)
        hub(given.samples or 2936, names, given.device, given.workers, given.repeats)


if __name__ == "__main__":
    main()
