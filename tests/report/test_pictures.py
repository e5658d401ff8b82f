from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import InputError
from hubscout.evidence import logme
from hubscout.ranking import Ranking
from hubscout.report import Run
from hubscout.report.pictures import available, draw, write_pictures
from hubscout.tasks import Task


def test_every_picture_of_a_real_run_is_written_and_not_empty(run: Run, tmp_path: Path) -> None:
    paths = write_pictures(run, tmp_path / "figures", dots_per_inch=80)
    assert [path.stem for path in paths] == [
        "scores", "cost", "metrics", "targets", "layers", "convergence", "tuning",
    ]  # fmt: skip
    for path in paths:
        assert np.asarray(Image.open(path).convert("L")).std() > 5


def test_a_reference_makes_a_picture_with_its_tau(make_ranking: Callable[..., Ranking]) -> None:
    ranking = make_ranking(["timm/a", "timm/b", "timm/c"])
    run = Run(ranking=ranking, reference={row.identifier: -row.rank for row in ranking})
    assert "reference" in available(run)
    assert "1.00" in draw(run, "reference").axes[0].get_title()


def test_names_with_dollars_are_not_read_as_mathematics(make_ranking: Callable[..., Ranking], tmp_path: Path) -> None:
    ranking = make_ranking(["$\\frac{1}$", "timm/b"], targets=("$x", "a$b$c"))
    for name in available(Run(ranking=ranking)):
        draw(Run(ranking=ranking), name).savefig(tmp_path / f"{name}.png", dpi=40)


def test_what_is_missing_is_said(make_ranking: Callable[..., Ranking]) -> None:
    run = Run(ranking=make_ranking(["timm/a", "timm/b"]))
    with pytest.raises(InputError, match="layers='all'"):
        draw(run, "layers")
    with pytest.raises(InputError, match="Did you mean 'scores'"):
        draw(run, "score")
    with pytest.raises(InputError, match="no ranked model"):
        draw(Run(ranking=make_ranking([])), "scores")


def test_a_ranking_draws_itself(run: Run) -> None:
    figure = run.ranking.plot()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == run.view.names


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
    assert f"<td>{accuracy.value:.4f}</td><td>{accuracy.low:.4f} … {accuracy.high:.4f}</td>" in html
    assert "name=narrow&amp;width=8" in html
    (line,) = tuned.plot().axes[0].get_lines()
    assert list(line.get_xdata()) == [1.0, 2.0]
