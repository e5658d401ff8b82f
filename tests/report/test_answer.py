import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hubscout.ranking import Ranking
from hubscout.report import Run
from hubscout.report.answer import answer, longer_race, next_command, next_commands
from hubscout.report.page import answer_section
from hubscout.runs.row import Expected, Failure


@pytest.fixture
def ranking(make_ranking: Callable[..., Ranking]) -> Ranking:
    """Four models far apart, the best with 50 M parameters."""
    made = make_ranking(["timm/large", "timm/medium", "timm/small", "timm/tiny"])
    sizes = {"timm/large": 50e6, "timm/medium": 30e6, "timm/small": 8e6, "timm/tiny": 1e6}
    scores = {"timm/large": 0.9, "timm/medium": 0.7, "timm/small": 0.5, "timm/tiny": 0.3}
    blocks = [0.01 * (place - 4.5) for place in range(10)]
    return replace(
        made,
        rows=tuple(
            replace(
                row,
                score=scores[row.identifier],
                params=int(sizes[row.identifier]),
                block_scores=tuple(scores[row.identifier] + noise * (1 + place) for noise in blocks),
            )
            for place, row in enumerate(made.rows)
        ),
    )


def words(command: str) -> list[str]:
    """What a shell makes of a command: a backslash at the end of a line joins it to the next."""
    return shlex.split(command.replace("\\\n", " "))


def with_row(ranking: Ranking, identifier: str, **fields: object) -> Ranking:
    rows = tuple(replace(row, **fields) if row.identifier == identifier else row for row in ranking.rows)
    return replace(ranking, rows=rows)


def test_a_clear_winner_and_a_smaller_model_with_teachers(ranking: Ranking) -> None:
    found = answer(ranking)
    assert found.best.identifier == "timm/large"
    assert found.tied == ()
    assert (found.small.identifier, found.limit) == ("timm/small", 20_000_000)
    assert [row.identifier for row in found.teachers] == ["timm/large", "timm/medium", "timm/tiny"]


def test_models_that_cannot_be_told_apart_are_named_and_the_lightest_recommended(ranking: Ranking) -> None:
    close = ranking["timm/large"]
    together = with_row(
        ranking,
        "timm/small",
        score=close.score - 0.001,
        block_scores=tuple(score - 0.001 + (0.05 if i % 2 else -0.05) for i, score in enumerate(close.block_scores)),
    )
    found = answer(together)
    assert [row.identifier for row in found.tied] == ["timm/small"]
    assert found.cheapest.identifier == "timm/small"
    assert (found.small.identifier, found.limit) == ("timm/tiny", 2_000_000)


def test_no_smaller_model_where_sizes_are_not_known(ranking: Ranking) -> None:
    blind = replace(ranking, rows=tuple(replace(row, params=None) for row in ranking.rows))
    found = answer(blind)
    assert found.small is None
    assert found.cheapest is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"complete": False}, "not complete"),
        ({"failures": (Failure(identifier="hf/gone", error="E", reason="not there"),)}, "1 of 5 models failed"),
        ({"rows": "no errors"}, "no error bars"),
    ],
)
def test_doubts_are_said(ranking: Ranking, change: dict[str, object], words: str) -> None:
    if change.get("rows") == "no errors":
        rows = tuple(replace(row, standard_error=None, block_scores=(), block_sizes=()) for row in ranking.rows)
        ranking = replace(ranking, rows=rows)
    else:
        ranking = replace(ranking, **change)
    assert any(words in caveat for caveat in answer(ranking).caveats)


def test_a_certain_ranking_has_no_doubts(ranking: Ranking) -> None:
    assert answer(ranking).caveats == ()


def test_where_no_model_explains_the_labels_nothing_is_recommended(ranking: Ranking) -> None:
    assert answer(ranking).explained
    assert answer(with_row(ranking, "timm/tiny", odds=50.0)).explained
    lost = replace(ranking, rows=tuple(replace(row, odds=1.0) for row in ranking.rows))
    assert not answer(lost).explained
    section = answer_section(Run(ranking=lost))
    assert section is not None
    page = str(section.body)
    assert "None of these models explains your labels" in page
    assert "Start from" not in page
    assert "Run next" not in page


def test_the_card_names_cost_accuracy_and_failures(ranking: Ranking) -> None:
    accuracy = Expected(metric="accuracy", value=0.912, low=0.9, high=0.924, guess=0.131)
    told = with_row(
        ranking, "timm/large", latency_seconds=0.012, latency_busy=True, bytes=200_000_000, expected=(accuracy,)
    )
    told = replace(told, failures=(Failure(identifier="hf/gone", error="E", reason="not there"),))
    section = answer_section(Run(ranking=told))
    assert section is not None
    page = str(section.body)
    assert "(50M parameters, 200 MB, 12 ms per sample on a busy machine)" in page
    assert "91.2%" in page
    assert "guessing 13.1%" in page
    assert "1 of 5 models failed" in page


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"constructor": "from_image_folder", "arguments": {"folder": "/data/my pets"}}, "/data/my pets"),
        ({"constructor": "from_table", "arguments": {"source": {"train": ["a/t.csv"], "test": ["a/s.csv"]}}}, "a"),
        ({"constructor": "from_table", "arguments": {"source": {"train": ["a/t.csv"]}}}, "a/t.csv"),
        ({"constructor": "from_url", "arguments": {"url": "s3://bucket/pets"}}, "s3://bucket/pets"),
        (None, "DATA"),
    ],
)
def test_the_data_is_named_as_it_can_be_opened_again(ranking: Ranking, source: object, place: str) -> None:
    told = replace(ranking, task=replace(ranking.task, source=source), environment={"command": ["hubscout", "demo"]})
    assert words(next_command(told, answer(told)))[2] == place


def test_the_command_is_ready_for_a_shell(ranking: Ranking) -> None:
    source = {"constructor": "from_table", "arguments": {"source": "my pets.parquet", "label": "breed", "kind": None}}
    ranking = replace(ranking, task=replace(ranking.task, source=source))
    parts = words(next_command(ranking, answer(ranking)))
    assert parts[:5] == ["hubscout", "tune", "my pets.parquet", "--label", "breed"]


def test_the_command_reads_the_data_as_the_ranking_did(ranking: Ranking) -> None:
    """What was skipped is skipped again, and images are looked for where they lie."""
    arguments = {"source": "photos.csv", "image": "file", "image_root": "/data/photos", "label": "breed"}
    ranking = replace(
        ranking,
        task=replace(ranking.task, source={"constructor": "from_table", "arguments": arguments}),
        environment={"command": ["hubscout", "rank", "photos.csv", "--image-root", "/data/photos", "--skip-bad"]},
    )
    parts = words(next_command(ranking, answer(ranking)))
    assert "--image-root /data/photos" in " ".join(parts)
    assert parts.count("--skip-bad") == 1


def test_the_command_tunes_the_model_that_the_answer_names(ranking: Ranking) -> None:
    """And it is one that the command line takes."""
    import typer.main

    from hubscout.cli.tune import app

    found = answer(ranking)
    parts = words(next_command(ranking, found))
    group = typer.main.get_command(app)
    command = vars(group)["commands"]["tune"]
    context = command.make_context("tune", parts[2:], resilient_parsing=False)
    assert found.best.identifier == "timm/large"
    assert context.params["model"] == "timm/large"
    assert context.params["method"] is None  # what tune does by itself


def test_models_that_are_tied_are_told_apart_by_a_race(ranking: Ranking) -> None:
    assert [words(command)[1] for command in next_commands(ranking, Path("run"))] == ["tune", "report"]
    close = with_row(ranking, "timm/medium", score=0.8999, block_scores=ranking.rows[0].block_scores[::-1])
    race, *rest = map(words, next_commands(close, Path("run")))
    assert race[:2] == ["hubscout", "race"]
    assert [race[place + 1] for place, word in enumerate(race) if word == "-m"] == ["timm/large", "timm/medium"]
    assert race[-4:] == ["--budget", "30min", "--out", "race/"]
    assert [command[1] for command in rest] == ["tune", "report"]


def test_a_longer_race_goes_on_in_its_folder() -> None:
    said = [
        "/bin/hubscout",
        "race",
        "pets/",
        "-m",
        "a b",
        "--budget=90s",
        "-o",
        "old",
        "--overwrite",
        "--max-params",
        "5M",
    ]
    expected = ["hubscout", "race", "pets/", "-m", "a b", "--max-params", "5M", "--budget", "6min", "--out", "run"]
    assert words(longer_race(said, "run")) == expected
    assert longer_race(["hubscout", "race", "pets/"], "run") == ""
    assert longer_race(["hubscout", "rank", "pets/", "--budget", "1h"], "run") == ""
    assert longer_race(["pytest"], "run") == ""
