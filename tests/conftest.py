"""Settings of the whole suite."""

import gc
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `small_models` is a plain module beside the tests, for all folders of them.
sys.path.insert(0, str(Path(__file__).parent))

# A busy machine is slow now and then: that is no property of the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What the libraries and the tests themselves are made of is not looked through by every search for garbage.

    These are millions of objects, and none of them is ever garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`, the tests of a file run in one process, which makes what they share once.

    Those of `tests/engines` run in one process all together: there is one Ray cluster. (The marker `xdist_group` does
    nothing beside pytest 9.2 and pytest-xdist 3.8, and says nothing.)
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "tests/engines" if path.startswith("tests/engines/") else path

        def _reschedule(self, node: Any) -> None:
            """Without the files that a process has done before it died: who is given one of them waits for ever."""
            for file in [file for file, tests in self.workqueue.items() if all(tests.values())]:
                del self.workqueue[file]
            super()._reschedule(node)

    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Say how a process of tests ended that was not asked to: -9 is a kill, -11 a fault of memory."""
    if error and error != "keyboard-interrupt":  # one that was interrupted has done its tests, and is still there
        with suppress(subprocess.TimeoutExpired):
            node.gateway._io.popen.wait(10)
        print(f"\n[{node.gateway.id}] ended with status {node.gateway._io.popen.returncode}")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory):
    """No test, and no fixture that is made before one, uses the cache, or the store of races, of who runs it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HUBSCOUT_CACHE", str(tmp_path_factory.getbasetemp() / "feature-cache"))
        patched.setenv("HUBSCOUT_RACES", str(tmp_path_factory.getbasetemp() / "races.jsonl"))
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, headless; tests that ask for it are skipped where there is none. One for all folders of tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no browser: install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ],
        )
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def word_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A BERT with random weights that knows a few names and verbs, each a token."""
    import torch

    from hubscout.hubs.image_preprocessing import prepare_torchvision

    prepare_torchvision()
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = [
        "[PAD]",
        "[UNK]",
        "near",
        ".",
        "Ann",
        "Bob",
        "Eve",
        "Tom",
        "Mia",
        "Sam",
        "sings",
        "runs",
        "reads",
        "sleeps",
    ]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path_factory.mktemp("word-encoder")
    PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    return f"file:{folder}"


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small images of two classes."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    for place, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8)):
        (folder / f"class{place % 2}").mkdir(exist_ok=True)
        image.fromarray(pixels).save(folder / f"class{place % 2}" / f"{place}.png")
    return folder


@pytest.fixture(scope="session")
def odd_pictures() -> dict[str, tuple[bytes, Any]]:
    """Files of every sort that a decoder can get wrong, by name, each with the pixels that a person sees.

    All show the same picture of 24 x 16 pixels: in colour, or in the grey that its format can hold. Those of JPEG are
    about right.
    """
    import io

    from PIL import Image

    pixels = np.zeros((16, 24, 3), dtype=np.uint8)
    pixels[:, :, 0] = np.arange(24) * 10
    pixels[:, :, 1] = np.arange(16)[:, None] * 16
    pixels[:6, :8] = (250, 20, 20)
    colour = Image.fromarray(pixels)
    grey = np.asarray(colour.convert("L"))
    as_grey = np.repeat(grey[:, :, None], 3, axis=2)
    other = Image.fromarray(255 - pixels)
    found: dict[str, tuple[bytes, Any]] = {}

    def add(name: str, image: Image.Image, expected: Any, **options: Any) -> None:
        buffer = io.BytesIO()
        image.save(buffer, Image.registered_extensions()[f".{name.rpartition('.')[2]}"], **options)
        found[name] = (buffer.getvalue(), expected)

    turns = {
        2: "FLIP_LEFT_RIGHT",
        3: "ROTATE_180",
        4: "FLIP_TOP_BOTTOM",
        5: "TRANSPOSE",
        6: "ROTATE_90",
        7: "TRANSVERSE",
        8: "ROTATE_270",
    }
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = colour.transpose(Image.Transpose[turns[orientation]]) if orientation > 1 else colour
        for ending, options in (("png", {}), ("jpg", {"quality": 95, "subsampling": 0}), ("tif", {})):
            add(f"exif-{orientation}.{ending}", stored, pixels, exif=exif, **options)
    clear = np.zeros((16, 24), dtype=np.uint8)
    clear[:, :20] = 255
    on_white, grey_on_white = pixels.copy(), as_grey.copy()
    on_white[:, 20:] = grey_on_white[:, 20:] = 255
    add("alpha.png", Image.fromarray(np.dstack([pixels, clear])), on_white)
    add("alpha.webp", Image.fromarray(np.dstack([pixels, clear])), on_white, lossless=True, exact=True)
    add("grey-alpha.png", Image.fromarray(np.dstack([grey, clear])), grey_on_white)
    palette = colour.quantize(16)
    add("palette.png", palette, np.asarray(palette.convert("RGB")))
    gone = np.asarray(palette.convert("RGB")).copy()
    gone[np.asarray(palette) == 3] = 255
    add("palette-transparent.png", palette, gone, transparency=3)
    add("palette-transparent.gif", palette, gone, transparency=3)
    add(
        "colour-transparent.png",
        colour,
        np.where((pixels == (250, 20, 20)).all(2)[..., None], 255, pixels),
        transparency=(250, 20, 20),
    )
    add("cmyk.jpg", colour.convert("CMYK"), pixels, quality=95, subsampling=0)
    add("sixteen-bits.png", Image.fromarray(grey.astype(np.uint16) * 257), as_grey)
    add("float.tif", Image.fromarray((grey / 255).astype(np.float32)), as_grey)
    add("float-255.tif", Image.fromarray(grey.astype(np.float32)), as_grey)
    add("int-32.tif", Image.fromarray(grey.astype(np.int32) * 257), as_grey)
    add("one-bit.png", Image.fromarray(grey > 99), np.repeat((grey > 99)[:, :, None], 3, axis=2) * np.uint8(255))
    add("grey.png", Image.fromarray(grey), as_grey)
    add("animated.gif", palette, np.asarray(palette.convert("RGB")), save_all=True, append_images=[other.quantize(16)])
    add("animated.webp", colour, pixels, save_all=True, append_images=[other], lossless=True)
    add("pages.tif", colour, pixels, save_all=True, append_images=[other])
    return found


@pytest.fixture
def task_summary() -> Any:
    """Of a small task that has no data."""
    from hubscout.runs.ranking import TaskSummary

    return TaskSummary(
        name="pets",
        kind="classification",
        modality="image",
        fingerprint="f" * 16,
        target_names=("cat", "dog"),
        rows={"train": 1000, "validation": 100, "test": 100},
        notes=("labels from folders",),
        source={"kind": "image-folder", "path": "pets"},
    )


@pytest.fixture
def make_row() -> Callable[..., Any]:
    """Rows made by hand, with block scores whose differences are known."""
    from hubscout.runs.row import Row

    def build(name: str, score: float, *, spread: float = 0.01, seed: int = 0, **fields: object) -> Any:
        noise = np.random.default_rng(seed).standard_normal(10)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        defaults: dict[str, object] = {
            "identifier": name,
            "score": score,
            "scores": {"logme": score},
            "standard_error": spread / np.sqrt(10),
            "gain": score + 1.0,
            "per_target": (score + 0.9, score + 1.1),
            "block_scores": tuple((score + spread * noise).tolist()),
            "block_sizes": (100,) * 10,
            "n": 1000,
            "feature_dim": 64,
            "params": 1_000_000,
        }
        return Row(**{**defaults, **fields})

    return build


@pytest.fixture
def make_ranking(task_summary: Any) -> Callable[..., Any]:
    """Rankings made by hand, of such rows."""
    from hubscout.runs.ranking import Ranking

    def build(*rows: Any, **fields: object) -> Any:
        return Ranking(**{"task": task_summary, "metrics": ("logme",), "rows": rows, **fields})

    return build
