"""What hubs say of a model is taken where it makes sense, and noted where it does not."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from hubscout.errors import InputError, ModelError
from hubscout.hubs import ModelCard
from hubscout.hubs.backbone import check_modality


def card(**facts: Any) -> ModelCard:
    known = {"identifier": "x/y", "architecture": "net", "modalities": ("image",), "feature_dim": 8, "params": 10}
    return ModelCard(**{**known, "bytes": 40, **facts})


@pytest.mark.parametrize(
    ("fact", "said", "taken"),
    [
        ("source_accuracy", "81.2%", None),
        ("source_accuracy", float("nan"), None),
        ("source_accuracy", float("inf"), None),
        ("source_accuracy", True, None),
        ("source_accuracy", np.float32(0.5), 0.5),
        ("source_accuracy", 1, 1.0),
        ("licence", ["apache-2.0", "mit"], "apache-2.0, mit"),
        ("licence", {"name": "mine"}, None),
        ("licence", 3, None),
        ("licence", "a\udcffb", "a?b"),
        ("source_data", ["imagenet", 3], None),
        ("downloads", "many", None),
        ("downloads", 1 << 70, None),
        ("downloads", np.int64(7), 7),
        ("downloads", 12.5, None),
        ("flops", float("nan"), None),
        ("source_classes", [10], None),
        ("architecture", None, "unknown"),
        ("architecture", ["a"], "a"),
    ],
)
def test_a_fact_of_a_wrong_type_is_a_gap_with_a_note(fact: str, said: Any, taken: Any) -> None:
    found = card(**{fact: said})
    assert getattr(found, fact) == taken
    assert type(getattr(found, fact)) is type(taken)
    gap = taken is None
    assert [fact in note for note in found.notes] == ([True] if gap else [])
    json.dumps(asdict(found), allow_nan=False).encode("utf-8")
    assert replace(found, feature_dim=9).notes == found.notes


def test_nothing_said_is_no_note() -> None:
    assert card().notes == ()
    assert card(licence=None, flops=None).notes == ()


@pytest.mark.parametrize("error", [ModelError, InputError])
def test_a_model_of_another_modality_is_refused_in_one_sentence(error: type[Exception]) -> None:
    check_modality(card(), "image")
    check_modality(card(modalities=()), "image")
    with pytest.raises(error, match=r"^This model takes images, but the task's inputs are text\.$"):
        check_modality(card(), "text")
    reader = card(modalities=("text", "text-pair"))
    with pytest.raises(error, match=r"^The teacher takes text or pairs of texts, but the task's inputs are lists of "):
        check_modality(reader, "tokens", called="The teacher")
