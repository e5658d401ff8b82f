"""`ExtractionOptions`: every field reaches a model through `extract` and `rank` without a line in between."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from hubscout.errors import UnknownNameError
from hubscout.features import ExtractionOptions, extract
from hubscout.features.extractor import Extractor
from hubscout.ranking import rank

OTHERS: dict[str, Any] = {
    "layers": ("stem",),
    "device": "cpu",
    "precision": "float32",
    "batch_size": 7,
    "blocks": 4,
    "skip_bad": True,
}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[ExtractionOptions]:
    """The options of every pass of a model."""
    found: list[ExtractionOptions] = []
    real = Extractor.__init__

    def watch(self: Extractor, job: Any, log: Any, options: ExtractionOptions, **rest: Any) -> None:
        found.append(options)
        real(self, job, log, options, **rest)

    monkeypatch.setattr(Extractor, "__init__", watch)
    return found


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ExtractionOptions)])
def test_every_field_is_a_keyword_of_extract_and_rank(name, used, make_backbone, make_image_task):
    value = OTHERS.get(name, getattr(ExtractionOptions(), name))
    extract(make_backbone(), make_image_task(40), **{name: value})
    ranking = rank(make_image_task(40), make_backbone(), cache=False, measure_latency=False, **{name: value})
    assert not ranking.failures
    assert used == [ExtractionOptions.of(**{name: value})] * 2


def test_a_ranking_keeps_the_options_that_decide_what_comes_out(make_backbone, make_image_task):
    ranking = rank(make_image_task(40), make_backbone(), cache=False, extraction=ExtractionOptions(**OTHERS), blocks=5)
    kept = json.loads(json.dumps(ranking.settings))
    expected = {name: value for name, value in {**OTHERS, "blocks": 5}.items() if name not in ("device", "batch_size")}
    assert {name: kept[name] for name in expected} == {**expected, "layers": ["stem"]}
    assert not {"device", "batch_size"} & set(kept)
    assert ExtractionOptions.from_record(kept) == ExtractionOptions(**expected).replace(layers=["stem"])


def test_an_unknown_option_is_named_before_anything_runs(make_image_task):
    for function in (extract, rank):
        with pytest.raises(UnknownNameError, match=r"'devise'\. Did you mean 'device'"):
            function("no/such/model", make_image_task(40), devise="cpu")
