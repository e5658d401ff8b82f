import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import InputError
from hubscout.evidence import logme
from hubscout.ranking import Ranking
from hubscout.report import Run, render
from hubscout.report.pictures import PICTURES, draw, write_pictures
from hubscout.tasks import Task


def test_every_picture_of_a_real_run_is_written_and_not_empty(run: Run, tmp_path: Path) -> None:
    paths = write_pictures(run, tmp_path / "figures")
    assert [path.stem for path in paths] == [name for name in PICTURES if name != "reference"]
    for path in paths:
        assert np.asarray(Image.open(path).convert("L")).std() > 5


def test_a_reference_makes_a_picture_with_the_score_across(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking(["timm/a", "timm/b", "timm/c"])
    run = Run(ranking=ranking, reference={row.identifier: -row.rank for row in ranking})
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", draw(run, "reference").svg())
    assert texts.index("logme") < texts.index("Result of fine-tuning")


def test_names_that_could_be_mathematics_or_markup_are_drawn_as_they_are(
    make_ranking: Callable[..., Ranking], tmp_path: Path
) -> None:
    ranking = make_ranking(["$\\frac{1}$", "timm/<b>\x00&"], targets=("$x", "a$b$c"))
    assert "$\\frac{1}$" in draw(Run(ranking=ranking), "scores").svg()
    assert len(write_pictures(Run(ranking=ranking), tmp_path)) == 4


def test_a_model_without_parameters_is_left_out_of_the_cost_and_said(
    make_ranking: Callable[..., Ranking],
) -> None:
    ranking = make_ranking(["timm/a", "timm/b", "timm/c"])
    rows = tuple(replace(row, params=0) if row.identifier == "timm/c" else row for row in ranking.rows)
    run = Run(ranking=replace(ranking, rows=rows))
    assert "1 model has no known parameters above 0" in render(run)
    assert draw(run, "cost").svg().count("<circle") == 2 + 2  # two models, and two entries of the legend


def test_what_is_missing_is_said(make_ranking: Callable[..., Ranking]) -> None:
    run = Run(ranking=make_ranking(["timm/a", "timm/b"]))
    with pytest.raises(InputError, match="layers='all'"):
        draw(run, "layers")
    with pytest.raises(InputError, match="Did you mean 'scores'"):
        draw(run, "score")
    with pytest.raises(InputError, match="no ranked model"):
        draw(Run(ranking=make_ranking([])), "scores")


def test_a_ranking_draws_itself(run: Run) -> None:
    drawn = run.ranking.plot()._repr_svg_()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert [text for text in texts if text in run.view.names] == run.view.names


def test_evidence_in_a_notebook_and_a_terminal() -> None:
    from rich.console import Console

    generator = np.random.default_rng(0)
    labels = np.array([f"<b>{label}</b>" for label in generator.integers(0, 20, 200)])
    found = logme(generator.standard_normal((200, 5)), labels)
    html = found._repr_html_()
    assert f"LogME {found.score:.4f}" in html
    assert "<b>" not in html
    assert "… 8 more" in html
    console = Console(width=120)
    with console.capture() as capture:
        console.print(found)
    assert "<b>3</b>" in capture.get() or "<b>4</b>" in capture.get()


def test_a_tuned_model_in_a_notebook_and_as_a_figure(task: Task, zoo: str) -> None:
    from hubscout.tuning.tuning_run import tune

    tuned = tune(task, f"{zoo}name=narrow&width=8", (), "fine-tune", epochs=2, bootstrap_resamples=10, device="cpu")
    accuracy = tuned.metric("test")
    html = tuned._repr_html_()
    assert f"<td>{accuracy.value:.1%}</td><td>{100 * accuracy.low:.1f} … {100 * accuracy.high:.1f}</td>" in html
    assert "name=narrow&amp;width=8" in html
    (line,) = re.findall(r'<path [^>]*stroke-width="2"[^>]* d="M([^"]*)"', tuned.plot().svg())
    assert line.count("L") == 1  # from the first epoch to the second
