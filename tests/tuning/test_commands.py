from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image
from tuning_networks import image_task
from typer.testing import CliRunner

from hubscout.cli.app import app
from hubscout.cli.tune import read_settings
from hubscout.errors import InputError

TARGET = "python:tuning_networks:images?seed=1"
TEACHERS = "python:tuning_networks:images?seed=2,python:tuning_networks:images?seed=3&width=12"
TAUGHT = ["--target", TARGET, "--teachers", TEACHERS, "--trade-off", "0.1"]
QUICK = ["--epochs", "1", "--batch-size", "8", "--set", "bootstrap_resamples=20", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("colours")
    task = image_task()
    for part, split in task.splits.items():
        for number in range(len(split)):
            place = root / part / task.target_names[split.targets[number]]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(split.inputs[number])).save(place / f"{number}.png")
    return root


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_tune_then_predict(folder, tmp_path):
    out = tmp_path / "model"
    told = json.loads(run("tune", folder, *TAUGHT, "--out", out, "--json", *QUICK).stdout)
    assert told["method"] == "b-tuning"
    assert len(told["teachers"]) == 2
    assert 0 <= told["metrics"]["test"]["accuracy"]["value"] <= 1
    assert {"README.md", "tuning.json", "metrics.jsonl", "hubscout.json", "checkpoints"} <= {
        path.name for path in out.iterdir()
    }
    images = sorted((folder / "test" / "red").iterdir())
    found = json.loads(run("predict", out, *images, "--top", "2", "--json").stdout)
    assert [record["input"] for record in found] == [str(image) for image in images]
    assert all(record["prediction"] in ("blue", "green", "red") for record in found)
    assert all(len(record["probabilities"]) == 2 for record in found)
    assert "prediction" in run("predict", out, folder / "test").stdout
    assert "holds a run already" in run("tune", folder, *TAUGHT, "--out", out, *QUICK, status=2).output
    again = run("tune", folder, *TAUGHT, "--out", out, "--resume", "--json", *QUICK)
    assert json.loads(again.stdout)["metrics"] == told["metrics"]


def test_teachers_out_of_a_ranking(folder, tmp_path):
    run("rank", folder, "-m", TEACHERS, "--out", tmp_path / "run", "--no-cache", "--quiet")
    taught = ["--target", TARGET, "--teachers", tmp_path / "run", "--top", "1", "--trade-off", "0.1"]
    told = json.loads(run("tune", folder, *taught, "--json", *QUICK).stdout)
    ranked = json.loads((tmp_path / "run" / "ranking.json").read_text())
    assert len(told["teachers"]) == 1
    assert told["teachers"][0] in json.dumps(ranked)


def test_all_methods_compared(folder, tmp_path):
    result = run("tune", folder, *TAUGHT, "--method", "all", "--seeds", "2", "--out", tmp_path, "--json", *QUICK)
    told = json.loads(result.stdout)
    assert set(told["summary"]) == {"fine-tune", "kd", "b-tuning"}
    assert "one architecture" in told["failures"]["zoo"]
    assert all(row["seeds"] == 2 for row in told["summary"].values())


def test_reference_then_evaluate_takes_its_table(folder, tmp_path):
    models = ["python:tuning_networks:images?seed=1", "python:tuning_networks:images?seed=2"]
    grid = ["--learning-rates", "0.1,0.01", "--weight-decays", "1e-4"]
    result = run("reference", folder, "-m", ",".join(models), "--out", tmp_path / "ref", *grid, "--json", *QUICK)
    told = json.loads(result.stdout)
    assert told["trials"] == 4
    assert set(told["best"]) == set(models)
    rows = list(csv.DictReader((tmp_path / "ref" / "reference.csv").open()))
    assert {row["model"] for row in rows} == set(models)
    run("rank", folder, "-m", ",".join(models), "--out", tmp_path / "run", "--no-cache", "--quiet")
    evaluated = json.loads(run("evaluate", tmp_path / "run", tmp_path / "ref" / "reference.csv", "--json").stdout)
    assert set(evaluated["models"]) == set(models)


def test_errors_are_one_line(folder, tmp_path):
    assert "Did you mean 'b-tuning'" in run("tune", folder, "--target", TARGET, "--method", "btuning", status=2).output
    assert "give at least one" in run("tune", folder, "--target", TARGET, "--quiet", status=2).output
    bad = run("tune", folder, "--target", TARGET, "--method", "fine-tune", "--set", "warmups=1", "--quiet", status=2)
    assert "Did you mean 'warmup'" in bad.output
    (tmp_path / "broken.png").write_bytes(b"no image")
    run("tune", folder, "--target", TARGET, "--method", "fine-tune", "--out", tmp_path / "model", *QUICK)
    assert (
        "broken.png cannot be decoded" in run("predict", tmp_path / "model", tmp_path / "broken.png", status=2).output
    )
    assert "no tuning.json" in run("predict", tmp_path, tmp_path / "broken.png", status=1).output
    with pytest.raises(InputError, match="name=value"):
        read_settings(["warmup"])


def test_all_arguments_are_listed_with_what_they_mean():
    told = run("tune", "--list-arguments").stdout
    assert "temperature=0.1: Of the softmax over the teachers' LogME." in told
    for line in told.strip().splitlines():
        assert len(line.partition(": ")[2]) > 5, line
