"""Ten labelled sentences of SST-2: posterior weights, re-trained heads and anchor words on the same draws.

    python experiments/few_shot/run.py                       # everything; a quarter of an hour on one core
    python experiments/few_shot/run.py --models sre-minilm   # one encoder; the others' results stay

Writes `accuracy-<encoder>.csv` (a row a draw, a column a method), `anchors-<encoder>.json` (the grid of anchor words)
and `words-<encoder>.json` (what the weight vectors are closest to) into `results/`.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import shared_hub  # noqa: E402
from data_sets import open_set, results_folder  # noqa: E402
from references import CACHE  # noqa: E402

import hubscout  # noqa: E402
from hubscout.evidence import logme, nearest  # noqa: E402
from hubscout.features import extract  # noqa: E402

DRAWS = {5: 200, 2: 30, 10: 30, 25: 30, 50: 30}
"""Sentences of each class, and how many draws of them; draw i has seed i."""
TEST_ROWS = 1000
TEN = 5
"""Sentences of each class where there are ten."""
VALIDATION_ROWS = 872
"""More labelled sentences, as many as SST-2 validates with, for the comparison in which anchor words and C are searched
on them. They are taken from train and never drawn."""
SEARCHES = 3
"""In so many draws C is also chosen for the ten and the 872 together: it takes long, and the ten matter little."""
POSITIVE = ("positive", "good", "fine", "great", "nice")
NEGATIVE = ("negative", "bad", "ill", "evil", "poor")
STRENGTHS = (0.001, 0.03, 1.0, 30.0, 1000.0)
NEAREST = 10


@dataclass(frozen=True)
class Encoded:
    """SST-2 as an encoder sees it, and words in the two spaces in which a weight vector can be read.

    `table` has the rows of the encoder's own word embeddings, which go into its first layer; `words` are the same
    words read as texts of one word, so they lie where sentences do. `anchors` are the anchor words read so: some are
    not in the Chinese encoder's vocabulary.
    """

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    names: list[str]
    table: np.ndarray
    words: np.ndarray
    anchors: np.ndarray


def encode(model: str) -> Encoded:
    """Features of the frozen encoder, from the cache where they are there."""
    from hubscout.features.feature_cache import FeatureCache
    from hubscout.hubs import load
    from hubscout.tasks import Task

    task, backbone = open_set("sst2"), load(shared_hub.text_identifier(model))
    assert task.target_names == ("negative", "positive")
    rows = np.sort(np.random.default_rng(0).permutation(len(task.test))[:TEST_ROWS])
    cache = FeatureCache(CACHE / "features")
    train = extract(backbone, task, cache=cache, statistics=False)
    test = extract(backbone, task, split="test", indices=rows, cache=cache, statistics=False)
    names, table = vocabulary(backbone)

    def read(texts: Sequence[str]) -> np.ndarray:
        listed = Task.from_arrays(
            list(texts),
            np.arange(len(texts)) % 2,
            kind="classification",
            modality="text",
            validation_size=0,
            test_size=0,
        )
        return extract(backbone, listed, cache=cache, statistics=False).features().astype(np.float64)

    return Encoded(
        train.features().astype(np.float64),
        train.targets,
        test.features().astype(np.float64),
        test.targets,
        names,
        table,
        read(names),
        read(POSITIVE + NEGATIVE),
    )


def vocabulary(backbone: object) -> tuple[list[str], np.ndarray]:
    """The whole English words among the encoder's tokens, and their rows of its embedding table."""
    found = backbone.preprocessing.tokenizer.get_vocab()
    kept = sorted((word, number) for word, number in found.items() if re.fullmatch(r"[a-z]{2,}", word))
    weights = backbone.module.get_input_embeddings().weight.detach().double().numpy()
    return [word for word, _ in kept], weights[[number for _, number in kept]]


def validation_rows(labels: np.ndarray) -> np.ndarray:
    """The rows of train that are kept for validation."""
    return np.random.default_rng(0).permutation(len(labels))[:VALIDATION_ROWS]


def draw(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """So many rows of each class, none of those kept for validation."""
    generator = np.random.default_rng(seed)
    free = np.setdiff1d(np.arange(len(labels)), validation_rows(labels))
    chosen = [generator.choice(free[labels[free] == label], per_class, replace=False) for label in (0, 1)]
    return np.concatenate(chosen)


def posterior(few: np.ndarray, labels: np.ndarray, test: np.ndarray, *, center: bool) -> tuple[np.ndarray, int]:
    """Classes by the posterior weights m of LogME, the larger of fᵀm, and for how many of the two classes m is zero.

    Nothing is chosen. It is zero where the evidence is largest without features; of equals the first class is taken.
    """
    evidence = logme(few, labels, center=center, jackknife="none")
    return evidence.predict(test).argmax(1), int((~evidence.weights.any(axis=1)).sum())


def logistic(features: np.ndarray, labels: np.ndarray, test: np.ndarray, strength: float) -> np.ndarray:
    """Classes by a logistic regression with scikit-learn's C.

    Its weights lie in the span of the samples, so it is fitted there: the same solution in as many dimensions as there
    are samples.
    """
    from sklearn.linear_model import LogisticRegression

    basis = np.linalg.svd(features, full_matrices=False)[2].T
    head = LogisticRegression(C=strength, max_iter=1000)
    return head.fit(features @ basis, labels).predict(test @ basis)


def chosen_strength(features: np.ndarray, labels: np.ndarray) -> float:
    """The C with the fewest errors when each sample is left out in turn (at most ten folds); the smallest of equals."""
    folds = np.arange(len(labels)) % min(len(labels), 10)
    # Labels come class by class: dealt out in this order, a fold has both classes or one sample.
    errors = dict.fromkeys(STRENGTHS, 0)
    for fold in range(folds.max() + 1):
        out = folds == fold
        for strength in STRENGTHS:
            errors[strength] += int(
                (logistic(features[~out], labels[~out], features[out], strength) != labels[out]).sum()
            )
    return min(STRENGTHS, key=lambda strength: (errors[strength], strength))


def stochastic(features: np.ndarray, labels: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """Classes by a logistic head trained by stochastic gradient descent as scikit-learn sets it by default."""
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="log_loss", random_state=seed).fit(features, labels).predict(test)


def nearest_mean(features: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Classes by the nearer of the two means."""
    means = np.stack([features[labels == label].mean(0) for label in (0, 1)])
    return ((test[:, None] - means[None]) ** 2).sum(2).argmin(1)


class AnchorWords:
    """All pairs of the paper's words: a sentence is positive if its embedding is more like the positive word's."""

    def __init__(self, names: Sequence[str], embeddings: np.ndarray) -> None:
        place = {name: number for number, name in enumerate(names)}
        self.known = [(p, n) for p in POSITIVE for n in NEGATIVE if p in place and n in place]
        self.directions = np.stack([embeddings[place[p]] - embeddings[place[n]] for p, n in self.known])

    def accuracies(self, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Of every pair of words."""
        return ((features @ self.directions.T > 0) == (labels[:, None] == 1)).mean(0)


def experiment(data: Encoded) -> tuple[list[dict[str, float | None]], dict[str, object]]:
    """A row of accuracies for each draw, and the grid of anchor words."""
    anchors = {"table": AnchorWords(data.names, data.table), "encoded": AnchorWords(POSITIVE + NEGATIVE, data.anchors)}
    kept = validation_rows(data.train_labels)
    more, more_labels = data.train[kept], data.train_labels[kept]
    grids: dict[str, object] = {}
    on_test = {}
    for space, words in anchors.items():
        on_test[space] = words.accuracies(data.test, data.test_labels)
        known = words.accuracies(more, more_labels)
        best = int(known.argmax())
        grids[space] = {
            "pairs": {f"{p}/{n}": round(float(a), 4) for (p, n), a in zip(words.known, on_test[space], strict=True)},
            "searched": "/".join(words.known[best]),
            "searched_test": round(float(on_test[space][best]), 4),
        }
    rows = []
    for per_class, draws in DRAWS.items():
        for seed in range(draws):
            chosen = draw(data.train_labels, per_class, seed)
            few, labels = data.train[chosen], data.train_labels[chosen]
            strength = chosen_strength(few, labels)
            plain, zero = posterior(few, labels, data.test, center=False)
            centred, zero_centred = posterior(few, labels, data.test, center=True)
            found = {
                "posterior": plain,
                "posterior_centred": centred,
                "logistic": logistic(few, labels, data.test, 1.0),
                "logistic_chosen": logistic(few, labels, data.test, strength),
                "sgd": stochastic(few, labels, data.test, seed),
                "nearest_mean": nearest_mean(few, labels, data.test),
            }
            row: dict[str, float | None] = {"per_class": per_class, "seed": seed, "strength": strength}
            row |= {"zero": zero, "zero_centred": zero_centred}
            row |= {name: round(float((guess == data.test_labels).mean()), 4) for name, guess in found.items()}
            for space, words in anchors.items():
                # Of pairs that do equally well on the few, what one of them gives on average.
                few_accuracies = words.accuracies(few, labels)
                ties = few_accuracies == few_accuracies.max()
                row[f"anchors_{space}"] = round(float(on_test[space][ties].mean()), 4)
            if per_class == TEN:
                row |= with_validation(few, labels, more, more_labels, data, search=seed < SEARCHES)
            rows.append(row)
    return rows, grids


def with_validation(
    few: np.ndarray, labels: np.ndarray, more: np.ndarray, more_labels: np.ndarray, data: Encoded, *, search: bool
) -> dict[str, float | None]:
    """Accuracies where the validation sentences are there too: to choose C by, or to be fitted with the ten."""
    strength = max(STRENGTHS, key=lambda c: ((logistic(few, labels, more, c) == more_labels).mean(), -c))
    all_features, all_labels = np.concatenate([few, more]), np.concatenate([labels, more_labels])
    found = {
        "logistic_validated": logistic(few, labels, data.test, strength),
        "posterior_all": posterior(all_features, all_labels, data.test, center=False)[0],
        "logistic_all": logistic(all_features, all_labels, data.test, 1.0),
    }
    result: dict[str, float | None] = {"logistic_all_chosen": None}
    if search:
        strength = chosen_strength(all_features, all_labels)
        found["logistic_all_chosen"] = logistic(all_features, all_labels, data.test, strength)
    return result | {name: round(float((guess == data.test_labels).mean()), 4) for name, guess in found.items()}


def closest_words(data: Encoded) -> dict[str, object]:
    """Words nearest to the weight vectors of both classes, from ten sentences, many draws of ten, and all of train."""
    fits: dict[str, list[np.ndarray]] = {
        "ten (seed 0)": [draw(data.train_labels, TEN, 0)],
        "mean of 200 draws of ten": [draw(data.train_labels, TEN, seed) for seed in range(DRAWS[TEN])],
        "all of train": [np.arange(len(data.train))],
    }
    result: dict[str, object] = {}
    centre = data.words.mean(0)
    for center in (False, True):
        for name, draws in fits.items():
            units = []
            for rows in draws:
                weights = logme(data.train[rows], data.train_labels[rows], center=center, jackknife="none").weights
                lengths = np.linalg.norm(weights, axis=1, keepdims=True)
                # Where the evidence finds nothing in the ten, the weights are zero and say nothing of words.
                units.append(np.divide(weights, lengths, out=np.zeros_like(weights), where=lengths > 0))
            mean = np.mean(units, axis=0)
            if not mean.any():
                continue
            spaces = {
                "table": (data.table, "word embeddings"),
                "encoded": (data.words - centre if center else data.words, "words read as texts"),
            }
            for embeddings, space in spaces.values():
                found = nearest(mean, embeddings, data.names, k=NEAREST)
                result[f"{'centred' if center else 'uncentred'}; {name}; {space}"] = {
                    label: [[word.name, round(word.similarity, 3)] for word in words]
                    for label, words in zip(("negative", "positive"), found, strict=True)
                }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(shared_hub.TEXT))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    results = results_folder(__file__)
    for model in arguments.models:
        data = encode(model)
        print(
            f"{model}: {data.train.shape} features, {len(data.names)} words, hubscout {hubscout.__version__}",
            flush=True,
        )
        rows, grids = experiment(data)
        with (results / f"accuracy-{model}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        (results / f"anchors-{model}.json").write_text(json.dumps(grids, indent=1) + "\n")
        (results / f"words-{model}.json").write_text(json.dumps(closest_words(data), indent=1) + "\n")
        print(f"{model}: done", flush=True)


if __name__ == "__main__":
    main()
