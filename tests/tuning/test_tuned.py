from __future__ import annotations

import numpy as np
import pytest
from tuning_networks import make_task

import hubscout as hs
from hubscout.errors import InputError
from hubscout.tuning import Predictions

SHARES = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])


def test_predictions_of_classes_as_a_frame() -> None:
    pytest.importorskip("pandas")
    found = Predictions("classification", ("a", "b", "c"), SHARES)
    np.testing.assert_array_equal(found.probabilities, SHARES)
    frame = found.to_frame()
    assert list(frame.columns) == ["label", "probability", "a", "b", "c"]
    assert frame["label"].tolist() == found.labels == ["a", "c"]
    assert frame["probability"].tolist() == [0.7, 0.6]


def test_predictions_of_other_kinds_as_a_frame() -> None:
    pytest.importorskip("pandas")
    several = Predictions("multilabel", ("a", "b", "c"), SHARES).to_frame()
    assert several["labels"].tolist() == [["a"], ["c"]]
    numbers = Predictions("regression", ("x", "y", "z"), SHARES)
    assert numbers.to_frame().iloc[1].tolist() == [0.1, 0.3, 0.6]
    with pytest.raises(InputError, match=r"\.values"):
        _ = numbers.probabilities
    words = Predictions("tagging", ("a", "b", "c"), SHARES, lengths=(0, 2)).to_frame()
    assert words[["input", "word", "label"]].values.tolist() == [[1, 0, "a"], [1, 1, "c"]]


def test_what_is_shown_of_a_result_is_one_short_line() -> None:
    from torch import nn

    task = make_task()
    network = nn.Linear(np.asarray(task.train.inputs[0]).size, 4)
    ranking = hs.rank(task, {"net": network})
    tuned = hs.tune(task, network, method="fine-tune", steps=2, device="cpu", bootstrap_resamples=20)
    backbone = tuned.backbone
    for value in (ranking, tuned, backbone, tuned.predict(list(task.test.inputs))):
        assert "\n" not in repr(value)
        assert len(repr(value)) < 200, repr(value)
    assert "memory:net" in repr(ranking)
    assert task.name in repr(tuned)
    assert "4 features" in repr(backbone)
