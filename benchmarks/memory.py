"""Peak memory of `rank` and `tune` against the size of the model itself, for an image model and a text encoder.

    python benchmarks/memory.py
    python benchmarks/memory.py --samples 256 --steps 10 --json

Each line is a process of its own. "above" is the peak of the process less what it had with all libraries imported and
the data open; beside it the same in sizes of the model. With transformer-ranker installed its run on the same texts
stands below; see `benchmarks/extraction.py` for its time. "bare steps" are forward and backward passes in torch with
batches of 16, without anything of ours. At the end, what a process has after each import, each in one of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from extraction import encoder_folder, make_texts, peak_bytes, write_jpegs

IMAGES = "pypi/efficientnet-lite0"
_PREPARED = "from hubscout.hubs import prepare_torchvision; prepare_torchvision(); "
IMPORTS = {
    "Python": "pass",
    "torch": "import torch",
    "torch, sympy": "import torch, sympy",
    "torch and its compiler": "import torch._dynamo",
    "torch, torchvision": f"{_PREPARED}import torchvision",
    "torch, timm": f"{_PREPARED}import timm",
    "torch, transformers": f"{_PREPARED}from transformers import AutoModel, AutoTokenizer",
    "torch, transformers' BERT": f"{_PREPARED}from transformers.models.bert.modeling_bert import BertModel",
    "hubscout.ranking": "import hubscout.ranking.rank_models",
    "hubscout.ranking, BERT": f"{_PREPARED}import hubscout.ranking.rank_models; "
    "from transformers.models.bert.modeling_bert import BertModel",
}
MIB = 1 << 20


def process_bytes(name: str) -> int:
    """What the process has now (VmRSS), or had at its peak (VmHWM)."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(f"{name}:"))


def forget_peak() -> None:
    """Let the peak begin anew, where the system can."""
    Path("/proc/self/clear_refs").write_text("5")


def measured(model: str, data: str, samples: int, steps: int, work: str) -> dict[str, Any]:
    """In a process of its own: one ranking or one tuning."""
    import torch

    from hubscout.hubs import load
    from hubscout.ranking import rank
    from hubscout.tasks import Split, Task, open_task

    if data == "texts":
        texts, labels = make_texts(samples)
        names = tuple(map(str, sorted(set(labels))))
        split = Split(texts, np.array(labels))
        task = Task(
            "texts", "classification", "text", names, {"train": split, "validation": split, "test": split}, "texts"
        )
    else:
        task = open_task(data)
    load(model)  # all libraries are there, and the model is gone again
    torch.zeros(8) @ torch.zeros(8)
    before = process_bytes("VmRSS")
    forget_peak()
    if work == "load":
        size = load(model).card.bytes
    elif work == "bare steps":
        size = take_bare_steps(model, task)
    elif work == "tune":
        from hubscout.tuning import tune

        with tempfile.TemporaryDirectory() as folder:
            tune(task, model, method="fine-tune", steps=steps, batch_size=16, out=folder, device="cpu")
        size = 0
    else:
        accelerate = "onnxruntime" if work.endswith("ONNX Runtime") else "off"
        ranking = rank(task, [model], cache=False, accelerate=accelerate, measure_latency=False)
        assert len(ranking) == 1, ranking.failures
        size = ranking[0].bytes or 0
    after = process_bytes("VmHWM")
    return {"work": work, "before": before, "above": after - before, "model_bytes": size}


def take_bare_steps(model: str, task: Any, steps: int = 4) -> int:
    """Forward, backward and the optimiser's move over 16 samples; what the model itself takes."""
    import torch

    from hubscout.hubs import load

    backbone = load(model)
    assert backbone.module is not None
    network = backbone.module.train()
    # The optimiser that `tune` takes for them.
    optimizer: torch.optim.Optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9)
    if task.modality == "text":
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    for step in range(steps):
        rows = [(16 * step + place) % len(task.train) for place in range(16)]
        batch = backbone.preprocessing.collate([backbone.preprocessing(task.train.inputs[row]) for row in rows])
        backbone.forward(batch).features.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return backbone.card.bytes


def imported() -> dict[str, int]:
    """What a process has after each import."""
    code = "{0}; print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"
    found = {}
    for name, text in IMPORTS.items():
        done = subprocess.run([sys.executable, "-c", code.format(text)], capture_output=True, text=True, check=True)
        found[name] = int(done.stdout) * 1024
    return found


def peer(samples: int, encoder: str) -> dict[str, Any]:
    """transformer-ranker on the same texts."""
    from extraction import measure_peer

    found = measure_peer(*make_texts(samples), encoder)
    return {
        "work": "transformer-ranker",
        "before": found["before_bytes"],
        "above": peak_bytes() - found["before_bytes"],
    }


def in_process(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        model, data, samples, steps, work = options.child
        run = peer(int(samples), model) if data == "peer" else measured(model, data, int(samples), int(steps), work)
        print(json.dumps(run))
        return
    with tempfile.TemporaryDirectory() as temporary:
        images, encoder = Path(temporary, "images"), Path(temporary, "encoder")
        write_jpegs(images, options.samples * 10 // 7 + 10)
        encoder.mkdir()
        folder = encoder_folder(encoder)
        works = ["load", "rank", "rank, ONNX Runtime", "bare steps", "tune"]
        if importlib.util.find_spec("onnxruntime") is None:
            works.remove("rank, ONNX Runtime")
        found: dict[str, list[dict[str, Any]]] = {}
        for name, model, data in (("images", IMAGES, str(images)), ("texts", f"file:{folder}", "texts")):
            found[name] = [in_process(model, data, options.samples, options.steps, work) for work in works]
            if name == "texts" and importlib.util.find_spec("transformer_ranker") is not None:
                found[name].append(in_process(folder, "peer", options.samples, 0, "peer"))
            size = found[name][0]["model_bytes"]
            if not options.json:
                print(f"{name}: {model.rpartition('/')[2]}, {size / MIB:.0f} MiB, {options.samples} samples")
                for run in found[name]:
                    above = run["above"]
                    print(f"  {run['work']:22} above {above / MIB:6.0f} MiB, {above / size:5.1f} times the model")
    after = imported()
    if options.json:
        print(json.dumps({**found, "imports": after}, indent=1))
        return
    print("a process after importing")
    for name, taken in after.items():
        print(f"  {name:26} {taken / MIB:6.0f} MiB")


if __name__ == "__main__":
    main()
