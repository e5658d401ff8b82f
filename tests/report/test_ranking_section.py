"""The table of models."""

from collections.abc import Callable

from hubscout.ranking import Ranking
from hubscout.report import Run, render
from hubscout.runs.row import Failure


def test_a_model_that_failed_is_there_with_its_reason(run: Run) -> None:
    (failure,) = run.ranking.failures
    page = render(run)
    assert "1 model could not be ranked" in page
    assert failure.error in page
    assert "must be tuple of ints" in page


def test_no_model_at_all(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking([], failures=(Failure(identifier="timm/a", error="ModelError", reason="no weights"),))
    page = render(Run(ranking=ranking))
    assert "No model could be ranked" in page
    assert "no weights" in page
