"""How often labels that have nothing to do with the features are said to be explained (`Ranking.explains_labels`).

    python experiments/left_out/shuffled.py

By the odds of the evidence alone, and with the demand that samples left out are predicted better than by base rates.
"""

from __future__ import annotations

import warnings

import numpy as np

from hubscout.errors import EvidenceWarning
from hubscout.evidence import logme
from hubscout.evidence.statistics import KeptRows
from hubscout.ranking.expected import left_out
from hubscout.runs.paired_comparison import any_explains
from hubscout.tasks import Task
from hubscout.tasks.kinds import kind_of

DRAWS = 400
KINDS = ("classification", "multilabel", "regression")


def draw(generator: np.random.Generator, number: int) -> Task:
    """Features of one distribution, some with heavy tails, and labels of another."""
    n, dim, targets = (int(generator.choice(sizes)) for sizes in ((40, 100, 300), (5, 50, 200), (2, 5, 20)))
    heavy = number % 2 == 1
    features = generator.standard_t(3, size=(n, dim)) if heavy else np.abs(generator.normal(size=(n, dim)))
    kind = KINDS[number % 3]
    labels: np.ndarray
    if kind == "classification":
        labels = generator.choice(targets, size=n, p=generator.dirichlet(np.ones(targets)))
        labels[:2] = 0, 1
    elif kind == "multilabel":
        labels = (generator.uniform(size=(n, targets)) < generator.uniform(0.02, 0.5, size=targets)).astype(int)
        labels[0] = 1
    else:
        labels = generator.standard_t(3, size=(n, targets))
    return Task.from_arrays(features.astype(np.float32), labels, kind=kind)


def main() -> None:
    generator = np.random.default_rng(0)
    warnings.simplefilter("ignore", EvidenceWarning)
    by_odds = by_both = 0
    for number in range(DRAWS):
        task = draw(generator, number)
        rows = np.stack([np.asarray(task.train.inputs[row]) for row in range(len(task.train))])
        labels, names = np.asarray(task.train.targets), task.target_names
        classes = range(len(names)) if kind_of(task.kind).has_classes else None
        found = logme(rows, labels, kind=task.kind, classes=classes, target_names=names)
        predicted = left_out(found, KeptRows(rows, labels, np.arange(len(labels))), task)
        by_odds += bool(any_explains([found.n * float(found.per_target_gain.max())], len(names)))
        by_both += bool(any_explains([predicted.odds], len(names)))
    print(f"said to be explained, of {DRAWS}: {by_odds} by odds alone, {by_both} with samples left out")


if __name__ == "__main__":
    main()
