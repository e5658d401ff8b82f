import json
from pathlib import Path

from typer.testing import CliRunner

from hubscout.cli.app import app

runner = CliRunner()


def test_the_page_goes_into_the_run_folder_unless_told_otherwise(run_folder: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, ["report", str(run_folder)])
    assert result.exit_code == 0, result.output
    assert (run_folder / "report.html").exists()
    result = runner.invoke(app, ["report", str(run_folder), "-o", str(tmp_path / "here.html"), "--json"])
    told = json.loads(result.stdout)
    assert told["report"] == str(tmp_path / "here.html")
    assert told["bytes"] == (tmp_path / "here.html").stat().st_size
    (run_folder / "report.html").unlink()


def test_pictures_and_reference(run_folder: Path, tmp_path: Path) -> None:
    from hubscout.ranking import Ranking

    reference = tmp_path / "reference.json"
    reference.write_text(json.dumps({name: place for place, name in enumerate(Ranking.load(run_folder).identifiers)}))
    page = tmp_path / "report.html"
    arguments = ["report", str(run_folder), "-o", str(page), "--reference", str(reference), "--lower-is-better"]
    result = runner.invoke(app, [*arguments, "--png", str(tmp_path / "figures"), "--json"])
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "figures" / "reference.png") in json.loads(result.stdout)["pictures"]
    assert "logme: τ<sub>w</sub> = 1.00" in page.read_text(encoding="utf-8")


def test_tuning_runs_of_other_folders(run_folder: Path, tmp_path: Path) -> None:
    from hubscout.ranking import Ranking

    Ranking.load(run_folder).save(tmp_path / "alone")
    arguments = ["report", str(tmp_path / "alone"), "--tuning", str(run_folder / "b-tuning-0")]
    assert runner.invoke(app, arguments).exit_code == 0
    assert "Validation accuracy" in (tmp_path / "alone" / "report.html").read_text(encoding="utf-8")
    result = runner.invoke(app, [*arguments, "--tuning", str(tmp_path / "alone")])
    assert result.exit_code == 1
    assert "holds no tuning run" in result.stderr


def test_a_folder_without_a_run_is_one_line(tmp_path: Path) -> None:
    result = runner.invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "neither a ranking" in result.stderr
