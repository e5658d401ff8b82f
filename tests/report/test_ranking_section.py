"""The table of models."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from hubscout.ranking import Ranking
from hubscout.report import Run, render
from hubscout.runs.row import Failure


def test_a_model_that_failed_is_there_with_its_reason(run: Run) -> None:
    (failure,) = run.ranking.failures
    page = render(run)
    assert "1 model could not be ranked" in page
    assert failure.error in page
    assert "must be tuple of ints" in page
    assert failure.reason.startswith("TypeError: "), "the name of the model stands beside it"


def test_no_model_at_all(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking([], failures=(Failure(identifier="timm/a", error="ModelError", reason="no weights"),))
    page = render(Run(ranking=ranking))
    assert "No model could be ranked" in page
    assert "no weights" in page


@pytest.mark.parametrize(
    ("tied", "said"),
    [
        ("tttr", "The first 3, above the line, are statistically tied"),
        ("tttt", "All of them are statistically tied"),
        ("trtr", "2 of the first 3, marked at the left, are statistically tied"),
        ("trrr", ""),
    ],
)
def test_the_line_is_drawn_once_below_the_last_tied_model(
    make_ranking: Callable[..., Ranking], tied: str, said: str
) -> None:
    ranking = make_ranking([f"timm/{letter}" for letter in "abcd"])
    rows = tuple(replace(row, tied_with_best=one == "t") for row, one in zip(ranking.rows, tied, strict=True))
    object.__setattr__(ranking, "rows", rows)  # a ranking works out its ties itself
    page = render(Run(ranking=ranking))
    assert said in page
    assert bool(said) == ("are statistically tied: P" in page)
    lines = re.findall(r'<tr class="\w+( line)?" data-model="(\d)"', page)
    assert [int(place) for line, place in lines if line] == ([tied.rindex("t")] if tied.rindex("t") < 3 else [])


def test_a_model_over_the_limits_is_said_to_be_that(make_ranking: Callable[..., Ranking]) -> None:
    over = Failure(identifier="timm/a", error="OverLimitError", reason="25.6M parameters, of at most 10M")
    page = render(Run(ranking=make_ranking([], failures=(over,))))
    assert "<td>over the limits</td>" in page
    assert "OverLimitError" not in page
    assert "failed" not in page.partition("<main")[2].partition("</main>")[0].lower()
