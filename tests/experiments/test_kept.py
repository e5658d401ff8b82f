"""What the runs of an experiment share: made once, read by the others, and no run differs for it."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOGETHER = """
import sys
from pathlib import Path
import kept
file, made = Path(sys.argv[1]) / "a" / "one.pickle", Path(sys.argv[1]) / "made"
def make():
    made.open("a").write("made\\n")
    return {"answer": 42}
print(kept.once(file, make)["answer"])
"""
ALIKE = """
import sys
from pathlib import Path
import numpy as np
import kept
from PIL import Image
from hubscout.tasks import Task
from hubscout.tuning import decoded_batches, tune
colours = np.random.default_rng(0).integers(0, 255, (24, 12, 12, 3), dtype=np.uint8)
images = [Image.fromarray(one) for one in colours]
labels = ["cat", "dog"] * 12
parts = {"validation": (images[12:18], labels[12:18]), "test": (images[18:], labels[18:])}
task = Task.from_arrays(images[:12], labels[:12], **parts)
options = {"steps": 4, "learning_rate": 0.01, "data_in_memory": True, "batch_size": 6, "device": "cpu", "workers": 0}
def losses():
    run = tune(task, *models, bootstrap_resamples=2, progress=False, **options)
    return [line["loss"] for line in run.curves if line["event"] == "step"]
models = ("python:tuning_networks:images?seed=0", ["python:tuning_networks:images?seed=1"])
alone = losses()
kept.known(task, "images")
for _ in range(2):  # asked for by every run of a process
    kept.share(Path(sys.argv[1]))
models = tuple(kept.opened_once(one) if isinstance(one, str) else list(map(kept.opened_once, one)) for one in models)
for _ in range(2):  # the second out of what the first has kept
    decoded_batches._kept.clear()  # by the process itself
    assert losses() == alone
tuned = tune(task, models[0], bootstrap_resamples=2, progress=False, **{**options, "learning_rate": 0.1})
models = (models[0], [tuned.backbone])  # whose card is that of models[0], and not its weights
losses()
found = [len(list((Path(sys.argv[1]) / name).glob("*.pickle"))) for name in ("decoded", "posteriors", "heads")]
assert found == [3, 2, 1], found
"""


def run(code: str, folder: Path) -> str:
    paths = [ROOT / "experiments" / "teaching", ROOT / "experiments", ROOT / "src", ROOT / "tests" / "tuning"]
    added = f"import sys; sys.path[:0] = {[str(path) for path in paths]}\n"
    given = [sys.executable, "-W", "ignore", "-c", added + code, str(folder)]
    return subprocess.run(given, check=True, capture_output=True, text=True, timeout=120).stdout


def test_processes_that_ask_at_the_same_time_make_a_thing_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda _: run(TOGETHER, tmp_path), range(2)))
    assert told == ["42\n", "42\n"]
    assert (tmp_path / "made").read_text() == "made\n"


def test_a_run_out_of_what_others_have_kept_is_the_same_run(tmp_path: Path) -> None:
    run(ALIKE, tmp_path)
