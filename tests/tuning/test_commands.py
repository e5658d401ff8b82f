from __future__ import annotations

import csv
import json
import re
import shutil
import sys

import numpy as np
import pytest
from PIL import Image
from tuning_networks import write_images
from typer.testing import CliRunner

from hubscout.cli.app import app
from hubscout.cli.values import read_settings
from hubscout.errors import InputError

MODEL = "python:tuning_networks:images?seed=1"
TEACHERS = "python:tuning_networks:images?seed=2,python:tuning_networks:images?seed=3&width=12"
TAUGHT = ["--model", MODEL, "--teachers", TEACHERS, "--trade-off", "0.1"]
QUICK = ["--epochs", "1", "--batch-size", "8", "--set", "bootstrap_resamples=20", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("colours"))


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_tune_ends_with_a_sentence_against_the_probes(folder, tmp_path):
    last = " ".join(run("tune", folder, *TAUGHT, "--out", tmp_path, *QUICK).stdout.split())
    _, found, sentence = last.rpartition("Test accuracy ")
    assert found
    own = r"(above|below|the same as) the linear probe of the frozen|The model is the linear probe of its frozen"
    assert re.search(own, sentence)
    assert re.search(r"(above|below|the same as) that of the best teacher, python:tuning_networks:images\?se", sentence)
    assert re.search(r"\. Guessing gives \d+\.\d%\.", sentence)


def test_messages_of_a_run_speak_of_options(folder, tmp_path):
    loud = [word for word in QUICK if word != "--quiet"]
    told = run("tune", folder, "--model", MODEL, *loud, "--out", tmp_path).stderr
    assert "the default is taken, --learning-rate 0.001." in told
    assert "learning_rate=" not in told


@pytest.mark.parametrize(("option", "value"), [([], None), (["--in-memory"], True), (["--no-in-memory"], False)])
def test_whether_data_is_kept_is_left_to_us_unless_said(folder, tmp_path, option, value):
    run("tune", folder, "--model", MODEL, "--out", tmp_path, *option, *QUICK)
    assert json.loads((tmp_path / "tuning.json").read_text())["arguments"]["data_in_memory"] is value


def test_a_budget_of_nearly_nothing_ends_with_what_it_has_time_for(folder, tmp_path):
    """Which of the two depends on how busy the machine is: `test_probe_time.py` has the choice itself."""
    words = ["--batch-size", "8", "--set", "bootstrap_resamples=20"]
    told = run("tune", folder, "--model", MODEL, "--budget", "10ms", "--out", tmp_path, *words).stderr
    trained = "The linear probe is not measured" in told and "The budget is too short" in told
    assert trained != ("the result is the linear probe of the frozen features" in told)


def test_what_was_not_measured_is_said(folder, tmp_path):
    for name in ("red", "green"):
        (tmp_path / "few" / name).mkdir(parents=True)
        image = next((folder / "train" / name).iterdir())
        (tmp_path / "few" / name / image.name).write_bytes(image.read_bytes())
    told = run("tune", tmp_path / "few", "--model", MODEL, "--out", tmp_path / "model", *QUICK)
    assert "not measured: there are neither validation nor test samples." in " ".join(told.stdout.split())


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
    found = json.loads(run("predict", out, *images, "--top", "2", "--json", "--allow-code").stdout)
    assert [record["input"] for record in found] == [str(image) for image in images]
    assert all(record["prediction"] in ("blue", "green", "red") for record in found)
    assert all(len(record["probabilities"]) == 2 for record in found)
    assert "prediction" in run("predict", out, folder / "test", "--allow-code").stdout
    other = run("tune", folder, *TAUGHT, "--out", out, *QUICK, "--seed", "3", status=2).output
    assert "--seed was 0 and is 3" in other
    assert "overwrite it (--overwrite)" in other
    again = run("tune", folder, *TAUGHT, "--out", out, "--resume", "--json", *QUICK)
    assert json.loads(again.stdout)["metrics"] == told["metrics"]


def test_teachers_out_of_a_ranking(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("rank", folder, "-m", TEACHERS, "--out", tmp_path / "run", "--no-cache", "--quiet")
    taught = ["--model", MODEL, "--teachers", tmp_path / "run", "--top", "1", "--trade-off", "0.1"]
    told = json.loads(run("tune", folder, *taught, "--json", "--allow-code", *QUICK).stdout)
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


def test_errors_are_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Did you mean 'b-tuning'" in run("tune", folder, "--model", MODEL, "--method", "btuning", status=2).output
    assert "give at least one" in run("tune", folder, "--model", MODEL, "--method", "kd", "--quiet", status=2).output
    for options, words in (
        (["--learning-rate", "-1"], "Error: --learning-rate -1.0: must be above 0."),
        (["--set", "optimizer=adam"], "Error: --set optimizer=adam: allowed are 'auto'"),
        (["--limit", "1"], "Error: --limit must be a whole number of at least 2"),
    ):
        assert words in run("tune", folder, "-m", MODEL, "--method", "fine-tune", "-q", *options, status=2).output
    bad = run("tune", folder, "--model", MODEL, "--method", "fine-tune", "--set", "warmups=1", "--quiet", status=2)
    assert "Did you mean 'warmup'" in bad.output
    (tmp_path / "broken.png").write_bytes(b"no image")
    run("tune", folder, "--model", MODEL, "--method", "fine-tune", "--out", tmp_path / "model", *QUICK)
    broken = run("predict", tmp_path / "model", tmp_path / "broken.png", "--allow-code", status=2)
    assert "broken.png cannot be decoded" in broken.output
    assert "no tuning.json" in run("predict", tmp_path, tmp_path / "broken.png", status=1).output
    with pytest.raises(InputError, match="name=value"):
        read_settings(["warmup"])
    assert not (tmp_path / "runs").exists()  # a run that does not start leaves no folder


def test_what_is_usual_needs_no_set(folder, tmp_path):
    usual = ["--steps", "4", "--patience", "2", "--lora", "2", "--limit", "0.02k", "--set", "augment=none"]
    plain = ["tune", folder, "-m", MODEL, "--method", "fine-tune", "--out", tmp_path, *QUICK[2:]]
    told = json.loads(run(*plain, *usual, "--json").stdout)
    assert told["model"] == MODEL
    assert told["sizes"]["train"] == 20
    wanted = {"steps": 4, "patience": 2, "lora_rank": 2, "augment": "none"}
    assert {name: told["arguments"][name] for name in wanted} == wanted
    anew = json.loads(run(*plain, *usual, "--steps", "5", "--overwrite", "--json").stdout)
    assert anew["arguments"]["steps"] == 5


def test_without_out_the_model_is_kept_in_a_folder_of_its_own(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = ["tune", folder, "--model", MODEL, "--method", "fine-tune", *QUICK]
    told = [json.loads(run(*plain, "--json").stdout) for _ in range(2)]
    assert [record["out"] for record in told] == [f"runs/{folder.name}-images-{n}" for n in (1, 2)]
    image = next((folder / "test" / "red").iterdir())
    for record in told:
        assert "prediction" in run("predict", record["out"], image, "--allow-code").stdout
    loud = run(*plain[:-1])  # without --quiet
    assert f"runs/{folder.name}-images-3" in loud.stderr
    assert "give --out" in run(*plain, "--resume", status=2).output


def test_a_comparison_keeps_its_models(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = json.loads(run("tune", folder, *TAUGHT, "--method", "all", "--seeds", "1", "--json", *QUICK).stdout)
    kept = tmp_path / told["out"]
    image = next((folder / "test" / "red").iterdir())
    for method in told["summary"]:
        assert "prediction" in run("predict", kept / f"{method}-0", image, "--allow-code").stdout
        assert {"README.md", "tuning.json", "metrics.jsonl"} <= {path.name for path in (kept / f"{method}-0").iterdir()}


def test_bad_samples_are_skipped_where_that_is_asked_for(folder, tmp_path):
    data = shutil.copytree(folder, tmp_path / "data")
    bad = next((data / "test" / "red").iterdir())
    bad.write_bytes(b"no image")
    plain = ["tune", data, "--model", MODEL, "--method", "fine-tune", "--out", tmp_path / "model", *QUICK]
    refused = run(*plain, status=2).output
    assert str(bad) in refused
    assert "--skip-bad" in refused
    told = json.loads(run(*plain, "--skip-bad", "--json").stdout)
    assert told["sizes"]["test"] == 11
    search = ["reference", data, "-m", MODEL, "--learning-rates", "0.01", "--weight-decays", "1e-4", *QUICK]
    assert str(bad) in run(*search, "--out", tmp_path / "ref", status=2).output
    run(*search, "--out", tmp_path / "ref", "--skip-bad")


def tune_to_harm(tmp_path, *more):
    """The classes of train are exchanged in the other splits."""
    generator = np.random.default_rng(0)
    for part, turned in (("train", 0), ("validation", 1), ("test", 1)):
        for label in range(2):
            place = tmp_path / "data" / part / ("dark", "light")[label]
            place.mkdir(parents=True)
            for number in range(8):
                low = 150 * ((label + turned) % 2)
                pixels = generator.integers(low, low + 100, size=(16, 16, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return run(
        "tune",
        tmp_path / "data",
        "--model",
        MODEL,
        "--method",
        "fine-tune",
        "--out",
        tmp_path / "model",
        "--epochs",
        8,
        "--set",
        "keep_best=false",
        "--set",
        "augment=none",
        *QUICK[2:],
        *more,
        status=4,
    )


def test_a_model_worse_than_guessing_ends_with_a_warning_and_a_status(tmp_path):
    found = tune_to_harm(tmp_path)
    assert "Warning: This model is worse than guessing: validation accuracy" in found.stderr
    assert "worse than guessing" not in found.stdout  # said once
    assert "worse than guessing" in (tmp_path / "model" / "README.md").read_text()
    assert "prediction" in run("predict", tmp_path / "model", tmp_path / "data" / "test", "--allow-code").stdout


def test_all_arguments_are_listed_with_what_they_mean():
    told = run("tune", "--list-arguments").stdout
    assert "temperature=0.1: Of the softmax over the teachers' LogME." in told
    for line in told.strip().splitlines():
        assert len(line.partition(": ")[2]) > 5, line


ATTACK = """
from pathlib import Path
from tuning_networks import images

def build(touch):
    Path(touch).touch()
    return images(seed=1)
"""


@pytest.fixture
def attack(tmp_path):
    """An identifier whose function leaves a file behind, and that file."""
    (tmp_path / "attack.py").write_text(ATTACK)
    executed = tmp_path / "executed"
    return f"python:{tmp_path}/attack.py:build?touch={executed}", executed


def spoil(path, place, name):
    """Put another identifier into a file, as whoever sends it could."""
    record = json.loads(path.read_text())
    inner = record
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = name
    path.write_text(json.dumps(record))


def test_a_model_folder_runs_nothing_unless_it_is_allowed(folder, tmp_path, attack):
    name, executed = attack
    out, image = tmp_path / "model", next((folder / "test" / "red").iterdir())
    run("tune", folder, "--model", MODEL, "--method", "fine-tune", "--out", out, *QUICK)
    spoil(out / "tuning.json", ["model"], name)
    refused = run("predict", out, image, status=1)
    assert not executed.exists()
    for words in (str(out / "tuning.json"), "attack.py:build", "--allow-code"):
        assert words in refused.output
    assert "predict" not in refused.stdout
    run("predict", out, image, "--allow-code")
    assert executed.exists(), "the attack must work where it is allowed, or this test proves nothing"
    executed.unlink()
    for other in (f"file:{out}/model.safetensors?arch=%70ython:{name.removeprefix('python:')}", "python:os:system"):
        spoil(out / "tuning.json", ["model"], other)
        run("predict", out, image, status=1)
        assert not executed.exists()


def test_the_name_of_a_model_folder_is_no_option(folder, tmp_path, attack, monkeypatch):
    _, executed = attack
    out = tmp_path / "model?arch=python:attack.py:build&touch=executed"
    run("tune", folder, "--model", MODEL, "--method", "fine-tune", "--out", out, *QUICK)
    monkeypatch.chdir(tmp_path)
    run("predict", out, next((folder / "test" / "red").iterdir()), status=1)
    assert not executed.exists()


@pytest.mark.parametrize("command", ["tune", "select", "list"])
def test_a_ranking_or_a_list_runs_nothing_unless_it_is_allowed(folder, tmp_path, attack, command):
    name, executed = attack
    cache = ["--cache", tmp_path / "cache"]
    run("rank", folder, "-m", TEACHERS, "--out", tmp_path / "run", "--quiet", *cache)
    spoil(tmp_path / "run" / "ranking.json", ["rows", 0, "identifier"], name)
    (tmp_path / "models.txt").write_text(f"# sent by a colleague\n{name}\n")
    arguments = {
        "tune": ["tune", folder, "--model", MODEL, "--teachers", tmp_path / "run", "--trade-off", "0.1", *QUICK],
        "select": ["select", tmp_path / "run", "-k", "2", "--method", "joint", "--quiet"],
        "list": ["rank", folder, "-m", f"@{tmp_path / 'models.txt'}", "--no-cache"],
    }[command]
    refused = run(*arguments, status=1)
    assert not executed.exists()
    assert "--allow-code" in " ".join(refused.output.split())
    assert ("models.txt" if command == "list" else "ranking.json") in refused.output.replace("\n", "")
    run(*arguments, "--allow-code")
    assert executed.exists(), "the attack must work where it is allowed, or this test proves nothing"


def test_teachers_in_python_out_of_a_saved_ranking(folder, tmp_path, attack):
    from hubscout import Ranking, rank
    from hubscout.errors import CodeNotAllowedError
    from hubscout.tasks import open_task
    from hubscout.tuning import tune

    name, executed = attack
    task = open_task(folder)
    made = rank(task, [MODEL], out=tmp_path / "run", cache=False)
    options = {"epochs": 1, "batch_size": 8, "bootstrap_resamples": 2, "trade_off": 0.1}
    assert tune(task, MODEL, made.top(1), **options).teachers == (MODEL,), "names of one's own stay one's own"
    spoil(tmp_path / "run" / "ranking.json", ["rows", 0, "identifier"], name)
    for teachers in (Ranking.load(tmp_path / "run").top(1), list(Ranking.load(tmp_path / "run"))):
        with pytest.raises(CodeNotAllowedError, match=r"ranking\.json"):
            tune(task, MODEL, teachers, **options)
    assert not executed.exists()
    tune(task, MODEL, Ranking.load(tmp_path / "run", allow_code=True).top(1), **options)
    assert executed.exists()


def test_a_ranking_goes_on_with_the_models_that_the_user_names_again(folder, tmp_path):
    from hubscout import rank
    from hubscout.tasks import open_task

    task = open_task(folder)
    rank(task, [MODEL], out=tmp_path, cache=False)
    spoil(tmp_path / "ranking.json", ["complete"], False)
    again = rank(task, [MODEL], out=tmp_path, cache=False)
    assert 'taken_over": ["python' in (tmp_path / "events.jsonl").read_text()
    assert type(again.best.identifier) is str, "what the user named is not the file's word"


def test_a_budget_and_a_soup_of_two_runs(folder, tmp_path, monkeypatch):
    alone = ["--model", MODEL, *QUICK[2:]]
    runs = [tmp_path / f"run-{seed}" for seed in (0, 1)]
    for seed, out in enumerate(runs):
        told = json.loads(run("tune", folder, *alone, "--budget", "2s", "--seed", seed, "--out", out, "--json").stdout)
        assert told["arguments"]["budget"] == 2
        assert any(note.startswith("Budget of 2 s") for note in told["notes"])
    monkeypatch.chdir(tmp_path)  # without --out, it goes to runs/ like any run
    made = json.loads(run("soup", folder, *runs, "--allow-code", "--json", "--quiet").stdout)
    assert made["out"] == f"runs/{folder.name}-soup-1"
    assert made["method"] == "soup"
    assert "of 2 runs" in made["notes"][0]
    images = sorted((folder / "test" / "red").iterdir())
    found = json.loads(run("predict", made["out"], *images, "--json", "--allow-code").stdout)
    assert len(found) == len(images)
    told = run("soup", *runs, status=2).stderr  # the data were forgotten
    assert told.startswith(f"Error: {runs[0]} is a tuned model. The data that the models were tuned on come first: ")
    assert f"hubscout soup DATA {runs[0]} {runs[1]}" in told
    told = run("tune", folder, *alone, "--budget", "2s", "--steps", "3", "--out", tmp_path / "both", status=2).output
    assert "--steps 3 and --budget 2" in " ".join(told.split()) or "steps=3 and budget=2" in " ".join(told.split())


def test_a_run_has_one_length(folder, tmp_path):
    length = ("--budget", "60s", "--epochs", "4")
    told = run("tune", folder, "--model", MODEL, *length, "--out", tmp_path, status=2).stderr
    assert told.splitlines() == ["Error: --epochs 4 and --budget 60 both say how long the run is: give one of them."]


def test_the_folder_of_a_tuned_model_teaches_with_its_own_head(folder, tmp_path):
    network = "timm/test_resnet?pretrained=false&input_size=32"
    run("tune", folder, "--model", network, "--out", tmp_path / "teacher", *QUICK)
    taught = ("--teachers", f"{tmp_path / 'teacher'}/", "--method", "logit-kd")
    run("tune", folder, "--model", MODEL, *taught, "--out", tmp_path / "model", *QUICK)
    record = json.loads((tmp_path / "model" / "tuning.json").read_text())
    assert any("Answering with the head that they were tuned with" in note for note in record["notes"])


UNEXPORTABLE = """
import torch
from torch import nn


class Gamma(nn.Module):
    def __init__(self):
        super().__init__()
        self.pretrained_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}
        self.num_features = 12
        self.convolution = nn.Conv2d(3, 12, 3)

    def forward(self, image):
        return torch.lgamma(1 + self.convolution(image).abs()).mean((2, 3))
"""


def test_an_operator_without_an_onnx_form_is_one_line_and_the_model_is_kept(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    (tmp_path / "gamma.py").write_text(UNEXPORTABLE)
    out = tmp_path / "model"
    model = f"python:{tmp_path / 'gamma.py'}:Gamma"
    told = run("tune", folder, "--model", model, "--out", out, "--onnx", *QUICK, status=1)
    (line,) = told.stderr.strip().splitlines()
    assert line.startswith(f"Error: {model} cannot be written as ONNX: ")
    assert "lgamma" in line
    assert "Test accuracy" in told.stdout
    assert not (out / "model.onnx").exists()
    assert "prediction" in run("predict", out, folder / "test", "--allow-code").stdout


def test_an_export_that_fails_does_not_hide_that_a_model_is_worse_than_guessing(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model" / "model.onnx"
    path.mkdir(parents=True)
    error, warning = tune_to_harm(tmp_path, "--onnx").stderr.strip().splitlines()
    assert error.startswith(f"Error: {path} cannot be written")
    assert warning.startswith("Warning: This model is worse than guessing: validation accuracy")


def test_onnx_is_missed_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told = run("tune", tmp_path / "nowhere", "--model", "timm/x", "--onnx", status=2).stderr
    assert "hubscout[onnx]" in told


def test_ctrl_c_before_the_first_step_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hubscout.tuning.tune", interrupted)
    table = tmp_path / "reviews.csv"
    table.write_text("text,label\n" + "".join(f"review {i},{'good' if i % 2 else 'bad'}\n" for i in range(40)))
    told = CliRunner().invoke(app, ["tune", str(table), "-m", "hf/no/model", "--out", str(tmp_path / "out")])
    assert told.exit_code == 130
    assert "Interrupted: run the same command again to go on." in told.stderr
