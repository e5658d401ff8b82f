"""Scores against known results."""

from pathlib import Path

from hubscout.report import Run, open_run, render


def test_known_results_are_set_against_the_scores(run_folder: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "accuracies.csv"
    lines = [f"{row.identifier},{0.9 - 0.01 * row.rank}" for row in run.ranking.rows]
    file.write_text("model,accuracy\n" + "\n".join(lines))
    page = render(open_run(run_folder, reference=file))
    # The reference was made in the order of LogME, so the agreement is perfect.
    assert "logme: τ<sub>w</sub> = 1.00" in page
    assert "params (baseline)" in page
