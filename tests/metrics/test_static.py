from __future__ import annotations

import pytest

from hubscout.errors import InputError
from hubscout.hubs import ModelCard
from hubscout.metrics import score

CARD = ModelCard(
    identifier="timm/x",
    architecture="x",
    modalities=("image",),
    feature_dim=8,
    params=1000,
    bytes=4000,
    source_accuracy=0.75,
)


def test_values_come_from_the_card():
    assert score("params", card=CARD, kind="classification").value == 1000
    assert score("source-accuracy", card=CARD, kind="regression").value == 0.75


def test_what_the_card_does_not_state_is_an_error():
    with pytest.raises(InputError, match=r"card of 'timm/x' does not state the number of downloads"):
        score("popularity", card=CARD, kind="tagging")
    with pytest.raises(InputError, match="finite number"):
        score("params", card={"params": "many"}, kind="tagging")
    with pytest.raises(InputError, match="needs card="):
        score("params", kind="tagging")
