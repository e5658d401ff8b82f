"""Contrastive pre-training of a ResNet-20 on the 50,000 images of CIFAR-10, on one GPU: SimCLR, MoCo V1, V2, V2 longer.

    python ../shared/data/cifar10.py DATA
    python experiments/contrastive/pretrain.py --data DATA --seconds 280

Every method is a process of its own and all run at once. Beside them: the same network trained with the labels for as
long as the shorter ones, and one with random weights. Weights go to $HUBSCOUT_EXPERIMENT_CACHE/contrastive, not into
the repository, loss and the accuracy of nearest neighbours to `pretraining.jsonl` there. A run that was stopped goes
on from its checkpoint.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from models import IMAGENET_MEAN, IMAGENET_STD, WEIGHTS, resnet20
from safetensors.torch import save_file
from torch import Tensor, nn
from views import Augmentation

BATCH = 512
EPOCHS = 100
LONG = 4
"""How many times the epochs of the others the longer MoCo has: 800 against 200 in its paper."""
QUEUE = 4096
KEY_MOMENTUM = 0.99
LOG = "pretraining.jsonl"


@dataclass(frozen=True)
class Method:
    """What one pre-training is."""

    kind: str
    """`simclr`, `moco`, `supervised` or `random`."""
    augmentation: Augmentation
    temperature: float = 0.0
    learning_rate: float = 0.0
    weight_decay: float = 5e-4
    mlp_head: bool = True
    schedule: str = "cosine"
    length: int = 1
    """Times the usual number of epochs."""


STRONG = Augmentation(smallest_area=0.2, jitter=0.4, hue=0.1, jitter_probability=0.8, grey_probability=0.2)
V2 = Method(
    "moco",
    Augmentation(
        smallest_area=0.2, jitter=0.4, hue=0.1, jitter_probability=0.8, grey_probability=0.2, blur_probability=0.5
    ),
    temperature=0.2,
    learning_rate=0.12,
)
METHODS = {
    "simclr": Method("simclr", STRONG, temperature=0.5, learning_rate=0.5, weight_decay=1e-4),
    "moco_v1": Method(
        "moco",
        Augmentation(smallest_area=0.2, jitter=0.4, hue=0.4, grey_probability=0.2),
        temperature=0.07,
        learning_rate=0.12,
        mlp_head=False,
        schedule="steps",
    ),
    "moco_v2": V2,
    "moco_v2_long": Method(**{**vars(V2), "length": LONG}),
    "supervised": Method("supervised", Augmentation(shift=0.125), learning_rate=0.2),
    "random": Method("random", Augmentation(), length=0),
}


@dataclass(frozen=True)
class Images:
    """CIFAR-10 as bytes, with its labels for the supervised network and for the nearest neighbours."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    def to(self, device: str) -> Images:
        return Images(*(tensor.to(device) for tensor in vars(self).values()))


def read_images(folder: Path) -> Images:
    """All image tables below a folder, in the order of their names; decoded once and kept beside them."""
    kept = folder / "decoded.npz"
    if not kept.exists():
        arrays = decode(folder)
        partial = folder / "partial.npz"
        np.savez(partial, **arrays)
        partial.replace(kept)
    with np.load(kept) as arrays:
        return Images(*(torch.from_numpy(arrays[name]) for name in Images.__dataclass_fields__))


def decode(folder: Path) -> dict[str, np.ndarray]:
    import pandas as pd
    from PIL import Image

    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise SystemExit(f"No .parquet below {folder}: `python ../shared/data/cifar10.py {folder}` makes them.")
    rows = pd.concat([pd.read_parquet(file, columns=["image", "label", "split"]) for file in files], ignore_index=True)
    classes = sorted(rows["label"].unique())

    def pixels(content: bytes) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)

    arrays = {}
    for part in ("train", "test"):
        chosen = rows[rows["split"] == part]
        with ThreadPoolExecutor(8) as pool:
            arrays[part] = np.stack(list(pool.map(pixels, chosen["image"])))
        arrays[f"{part}_labels"] = chosen["label"].map(classes.index).to_numpy(np.int64)
    return arrays


def half_precision(device: str) -> torch.autocast:
    """bfloat16 on the GPU; few processors gain by it."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


class Encoder(nn.Module):
    """The network and the head that pre-training throws away."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone = resnet20()
        self.head = head
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(3, 1, 1), persistent=False)

    def features(self, views: Tensor) -> Tensor:
        x = (views - self.mean) / self.std
        return self.backbone.forward_head(self.backbone.forward_features(x), pre_logits=True)

    def forward(self, views: Tensor) -> Tensor:
        return self.head(self.features(views))


def contrastive_head(mlp: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128)) if mlp else nn.Linear(64, 128)


class Learner:
    """One method at work: its networks, its optimiser and the loss of a batch."""

    def __init__(self, method: Method, device: str) -> None:
        self.method, self.device = method, device
        head = nn.Linear(64, 10) if method.kind in ("supervised", "random") else contrastive_head(method.mlp_head)
        self.encoder = self._place(Encoder(head))
        self.optimiser = torch.optim.SGD(
            self.encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=method.weight_decay
        )
        self.loss: Callable[[Tensor, Tensor], Tensor] = getattr(self, method.kind)
        if method.kind == "moco":
            # The keys' network normalises by its moving averages, not by the batch: on one GPU, queries and keys of
            # the same images would otherwise recognise one another by their batch's statistics.
            self.keys = self._place(Encoder(contrastive_head(method.mlp_head))).eval().requires_grad_(False)
            self.keys.load_state_dict(self.encoder.state_dict())
            self.followers, self.leaders = floats(self.keys), floats(self.encoder)
            self.queue = F.normalize(torch.randn(QUEUE, 128, device=device), dim=1)

    def _place(self, encoder: Encoder) -> Encoder:
        return encoder.to(self.device).to(memory_format=torch.channels_last)

    def embed(self, encoder: Encoder, views: Tensor) -> Tensor:
        with half_precision(self.device):
            return F.normalize(encoder(views).float(), dim=1)

    def simclr(self, images: Tensor, labels: Tensor) -> Tensor:
        """Each view has to find the other view of its image among all views of the batch."""
        views = torch.cat([self.method.augmentation(images), self.method.augmentation(images)])
        embedded = self.embed(self.encoder, views)
        likeness = (embedded @ embedded.T / self.method.temperature).fill_diagonal_(float("-inf"))
        return F.cross_entropy(likeness, torch.arange(len(views), device=views.device).roll(len(images)))

    def moco(self, images: Tensor, labels: Tensor) -> Tensor:
        """Each view has to find the other view of its image among the keys of earlier batches."""
        queries = self.embed(self.encoder, self.method.augmentation(images))
        with torch.no_grad():
            self._follow()
            keys = self.embed(self.keys, self.method.augmentation(images))
        positive = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([positive, queries @ self.queue.T], 1) / self.method.temperature
        loss = F.cross_entropy(logits, torch.zeros(len(images), dtype=torch.long, device=images.device))
        # Only now: the backward pass needs the queue as the queries met it.
        self.queue = self.queue.roll(len(keys), 0)
        self.queue[: len(keys)] = keys
        return loss

    def supervised(self, images: Tensor, labels: Tensor) -> Tensor:
        with half_precision(self.device):
            logits = self.encoder(self.method.augmentation(images))
        return F.cross_entropy(logits.float(), labels)

    def random(self, images: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError("Random weights are not trained.")

    def _follow(self) -> None:
        """The keys' network moves a little towards the queries'."""
        torch._foreach_lerp_(self.followers, self.leaders, 1 - KEY_MOMENTUM)

    def step(self, images: Tensor, labels: Tensor, progress: float) -> Tensor:
        """One step of the optimiser; the loss stays on the device."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.method.learning_rate * rate_factor(self.method.schedule, progress)
        loss = self.loss(images, labels)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def state(self) -> dict[str, Any]:
        found = {"encoder": self.encoder.state_dict(), "optimiser": self.optimiser.state_dict()}
        if self.method.kind == "moco":
            found |= {"keys": self.keys.state_dict(), "queue": self.queue}
        return found

    def load(self, state: dict[str, Any]) -> None:
        self.encoder.load_state_dict(state["encoder"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.method.kind == "moco":
            self.keys.load_state_dict(state["keys"])
            self.queue = state["queue"]


def floats(encoder: Encoder) -> list[Tensor]:
    """Weights and the norms' averages, where they lie."""
    return [tensor for tensor in encoder.state_dict().values() if tensor.is_floating_point()]


def rate_factor(schedule: str, progress: float) -> float:
    """The learning rate's share of its peak: a short warm-up, then a cosine or MoCo V1's two steps."""
    warm = min(1.0, progress / 0.03 + 1e-3)
    if schedule == "steps":
        return warm * (1.0 if progress < 0.6 else 0.1 if progress < 0.8 else 0.01)
    return warm * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


@torch.no_grad()
def neighbours_accuracy(encoder: Encoder, images: Images, device: str, k: int = 200) -> float:
    """How often the nearest training images, weighted by e^(cosine / 0.1), name the class of a test image."""

    def embed(pictures: Tensor) -> Tensor:
        batches = (unchanged(batch) for batch in pictures.split(1000))
        with half_precision(device):
            return torch.cat([F.normalize(encoder.features(batch).float(), dim=1) for batch in batches])

    unchanged = Augmentation(mirror=False)
    encoder.eval()
    train, test = embed(images.train), embed(images.test)
    classes = F.one_hot(images.train_labels).float()
    right = torch.zeros((), device=device)
    for queries, labels in zip(test.split(1000), images.test_labels.split(1000), strict=True):
        likeness, nearest = (queries @ train.T).topk(min(k, len(train)), dim=1)
        votes = (classes[nearest] * (likeness / 0.1).exp()[:, :, None]).sum(1)
        right += (votes.argmax(1) == labels).sum()
    encoder.train()
    return float(right) / len(test)


def save_weights(encoder: Encoder, path: Path, supervised: bool) -> None:
    """The network without its projection head, matrices in half precision; a supervised one keeps its classes."""
    state = dict(encoder.backbone.state_dict())
    if supervised:
        state |= {f"fc.{name}": tensor for name, tensor in encoder.head.state_dict().items()}
    state = {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in state.items()}
    partial = path.with_suffix(".partial")
    save_file({name: tensor.contiguous().cpu() for name, tensor in state.items()}, partial)
    partial.replace(path)


def pretrain(name: str, images: Images, arguments: argparse.Namespace) -> None:
    """Train one method up to its epochs or its share of the time, whichever comes first; the schedule follows."""
    method, device, out = METHODS[name], arguments.device, arguments.out
    weights, checkpoint = out / f"{name}.safetensors", out / "checkpoints" / f"{name}.pt"
    if weights.exists():
        return
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    torch.backends.cudnn.benchmark = True
    learner, images = Learner(method, device), images.to(device)
    epochs = arguments.epochs * method.length
    limit = arguments.seconds * (1.0 if method.length == LONG else 0.5)
    epoch, spent, progress = 0, 0.0, 0.0 if epochs else 1.0
    if checkpoint.exists():
        kept = torch.load(checkpoint, map_location=device, weights_only=True)
        learner.load(kept["learner"])
        epoch, spent, progress = kept["epoch"], kept["spent"], kept["progress"]
        torch.manual_seed(arguments.seed + epoch)
    batch = min(arguments.batch, len(images.train))
    steps = len(images.train) // batch

    def note(loss: float | None, **facts: Any) -> None:
        accuracy = neighbours_accuracy(learner.encoder, images, device)
        line = {"method": name, "epoch": epoch, "seconds": round(spent, 1), "loss": loss, "neighbours": accuracy}
        print(json.dumps({**line, **facts}), flush=True)
        with (out / LOG).open("a") as file:
            file.write(json.dumps({**line, **facts}) + "\n")

    if not epochs:
        note(None, finished=True)
    last = started = time.perf_counter()
    while progress < 1:
        losses = torch.zeros((), device=device)
        for taken, index in enumerate(torch.randperm(len(images.train), device=device).split(batch)[:steps], 1):
            spent += time.perf_counter() - last
            last = time.perf_counter()
            progress = min(1.0, max((epoch + taken / steps) / epochs, spent / limit))
            losses += learner.step(images.train[index], images.train_labels[index], progress)
            if progress == 1.0:
                break
        epoch += 1
        mean_loss = float(losses) / taken
        if not math.isfinite(mean_loss):
            raise SystemExit(f"{name} diverged in epoch {epoch}.")
        if progress == 1.0 or epoch % arguments.every == 0:
            note(mean_loss, **({"finished": True} if progress == 1.0 else {}))
            partial = checkpoint.with_suffix(".partial")
            state = {"learner": learner.state(), "epoch": epoch, "spent": spent, "progress": progress}
            torch.save(state, partial)
            partial.replace(checkpoint)
            last = time.perf_counter()
    save_weights(learner.encoder, weights, method.kind in ("supervised", "random"))
    print(f"{name}: {epoch} epochs in {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the image tables of all of CIFAR-10")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"the longer MoCo has {LONG} times it")
    parser.add_argument("--seconds", type=float, default=3600, help="for the longer MoCo; the others have half of it")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--every", type=int, default=10, help="epochs between lines of the log and checkpoints")
    parser.add_argument("--images", type=int, help="only the first so many, for a trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    images = read_images(arguments.data)
    if len(arguments.methods) == 1:
        if arguments.images:
            images = Images(*(tensor[: arguments.images] for tensor in vars(images).values()))
        pretrain(arguments.methods[0], images, arguments)
        return
    given = sys.argv[1:]
    if "--methods" in given:
        given = given[: given.index("--methods")] + given[given.index("--methods") + 1 + len(arguments.methods) :]
    running = [subprocess.Popen([sys.executable, __file__, *given, "--methods", name]) for name in arguments.methods]
    sys.exit(max(process.wait() for process in running))


if __name__ == "__main__":
    main()
