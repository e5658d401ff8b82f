from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hubscout.errors import InputError
from hubscout.ranking.evaluate_ranking import evaluation_table
from hubscout.runs.ranking_storage import read_reference
from hubscout.runs.row import Dropped

Make = Callable[..., Any]


@pytest.fixture
def eight(make_row: Make, make_ranking: Make) -> Any:
    generator = np.random.default_rng(0)
    rows = []
    for index in range(8):
        scores = {"logme": 0.1 * index, "knn": 0.1 * index + 0.2 * generator.standard_normal()}
        rows.append(
            make_row(f"m{index}", scores["logme"], scores=scores, params=1000 - index, card={"downloads": index})
        )
    return make_ranking(*rows, metrics=("logme", "knn", "leep"))


def test_agreement_is_scipys(eight: Any) -> None:
    found = eight.agreement()
    logme = [row.scores["logme"] for row in eight]
    knn = [row.scores["knn"] for row in eight]
    assert found.weighted_tau[0, 1] == pytest.approx(stats.weightedtau(logme, knn).statistic)
    assert found.kendall_tau[1, 0] == pytest.approx(stats.kendalltau(logme, knn).statistic)
    assert found.models.tolist() == [[8, 8, 0], [8, 8, 0], [0, 0, 0]]
    assert np.isfinite(found.weighted_tau).all()


def test_evaluate_puts_baselines_beside_the_metrics(eight: Any) -> None:
    reference = {f"m{index}": 50.0 + index for index in range(8)} | {"stranger": 1.0}
    found = eight.evaluate(reference)
    assert found.metrics["logme"].weighted_tau == pytest.approx(1.0)
    assert "leep" not in found.metrics
    assert found.baselines["params"].weighted_tau == pytest.approx(-1.0)
    assert found.baselines["downloads"].weighted_tau == pytest.approx(1.0)
    assert "source_accuracy" not in found.baselines
    assert found.unused == ("stranger",)
    assert eight.evaluate({name: -value for name, value in reference.items()}, better="lower").metrics[
        "logme"
    ].weighted_tau == pytest.approx(1.0)
    assert evaluation_table(found).row_count == 4


def test_dropped_models_are_not_evaluated(make_row: Make, make_ranking: Make) -> None:
    dropped = Dropped(n=500, stage=1, leader="a", probability=0.001)
    ranking = make_ranking(make_row("a", 0.3), make_row("b", 0.2), make_row("c", 0.9, n=500, dropped=dropped))
    found = ranking.evaluate({"a": 3.0, "b": 2.0, "c": 1.0})
    assert found.models == ("a", "b")
    assert found.metrics["logme"].weighted_tau == 1.0


def test_too_few_in_common_names_both_sides(eight: Any) -> None:
    with pytest.raises(InputError, match=r"has 1 of the 8 ranked models.*stranger.*m7"):
        eight.evaluate({"m1": 1.0, "stranger": 2.0})


def test_reading_a_csv_with_two_columns_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Model,top-1 on pets\ntimm/x, 91.5\n")
    assert read_reference(tmp_path / "a.csv") == {"timm/x": 91.5}
