"""Which rows a score sees, the pixels of these rows as a model wants them, and the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from data_sets import open_set
from references import vision_identifier

from hubscout.hubs import Backbone, load

JUDGED, TRAINED = 400, 640

Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Rows:
    """Train rows of a set in two parts that share none, with the labels of all train rows."""

    judged: np.ndarray
    trained: np.ndarray
    labels: np.ndarray


def choose(set_name: str, seed: int = 0) -> Rows:
    """Stratified: any first n of the judged rows have classes in about the proportions of the set."""
    labels = np.asarray(open_set(set_name).train.targets)
    generator = np.random.default_rng(seed)
    place = np.empty(len(labels))
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        place[members] = (np.arange(len(members)) + generator.random()) / len(members)
    order = np.argsort(place, kind="stable")
    return Rows(order[:JUDGED], generator.permutation(order[JUDGED : JUDGED + TRAINED]), labels)


def pixels(backbone: Backbone, set_name: str, rows: np.ndarray) -> Batch:
    """Prepared images of these train rows, all in memory."""
    inputs, prepare = open_set(set_name).train.inputs, backbone.preprocessing
    return dict(prepare.collate([prepare(inputs[int(row)]) for row in rows]))


@dataclass(frozen=True)
class Asked:
    """A model and the rows that it is judged on."""

    backbone: Backbone
    whole: Batch
    labels: np.ndarray


def ask(set_name: str, model: str, images: int) -> Asked:
    """The first so many of the judged rows, and the model as it comes."""
    rows = choose(set_name)
    chosen = rows.judged[:images]
    backbone = load(vision_identifier(model))
    backbone.module.eval()
    return Asked(backbone, pixels(backbone, set_name, chosen), rows.labels[chosen])


def batches(whole: Batch, size: int) -> list[Batch]:
    count = len(next(iter(whole.values())))
    return [{name: part[at : at + size] for name, part in whole.items()} for at in range(0, count, size)]


def features(backbone: Backbone, whole: Batch, size: int = 64) -> torch.Tensor:
    """Of the model as it is now: `extract` would open it afresh."""
    with torch.no_grad():
        return torch.cat([backbone.forward(part).features for part in batches(whole, size)])


def one_hot(labels: np.ndarray) -> np.ndarray:
    """A column for each class that occurs."""
    return np.eye(labels.max() + 1)[labels][:, np.unique(labels)]
