import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hubscout.cli.values import split_models
from hubscout.errors import InputError
from hubscout.serve.served_folder import DataFolder, Folder
from hubscout.serve.starting import METHODS, Request, Starter, check_model


@pytest.fixture
def starter(runs: Path, data: Path) -> Starter:
    folder = Folder.open(runs, "RUNS")
    return Starter(folder, DataFolder(Folder.open(data, "--data"), folder.path), ("python:zoo.py:a?x=1,2",))


def request_for(**fields: object) -> Request:
    return Request.read({"name": "new", "data": "colours", "models": ["timm/resnet18"], **fields})


def test_data_is_listed_by_what_can_be_ranked(starter: Starter) -> None:
    assert starter.data.names() == ["colours", "words.csv"]


def test_runs_and_links_are_no_data(starter: Starter, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("/etc/passwd")
    whole = DataFolder(Folder.open(tmp_path, "--data"), Folder.open(runs, "RUNS").path)
    assert whole.names() == []
    for name in ("runs", "runs/first", "link.csv"):
        with pytest.raises(InputError, match="Data"):
            whole.find(name)


def test_what_hubscout_wrote_itself_is_no_data(data: Path, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    home = tmp_path / "data"
    shutil.copytree(runs / "first", home / "first")
    for name in ("scores.parquet", "events.jsonl", "metrics.jsonl", "trials.jsonl", "reference.csv"):
        (home / name).write_text("text,label\n")
    (home / "my-model").mkdir()
    (home / "my-model" / "tuning.json").write_text("{}")
    (home / "my-model" / "train.csv").write_text("text,label\n")
    (home / "cache").mkdir()
    (home / "cache" / "CACHEDIR.TAG").write_text("")
    (home / "cache" / "shard.parquet").write_text("")
    whole = DataFolder(Folder.open(home, "--data"), Folder.open(runs, "RUNS").path)
    assert whole.names() == ["colours", "words.csv"]


def test_the_command_is_that_of_the_command_line(starter: Starter) -> None:
    command = starter.command(
        request_for(models="timm/resnet18\n\nhf/facebook/dinov2-small", limit="2k", label="--out", metrics="logme,knn")
    )
    assert command[2:5] == ["hubscout", "rank", str(starter.data.folder.path / "colours")]
    assert f"--out={starter.runs.path / 'new'}" in command
    assert command[-5:] == [
        "--models=timm/resnet18",
        "--models=hf/facebook/dinov2-small",
        "--metrics=logme,knn",
        "--limit=2k",
        "--label=--out",
    ]


@pytest.mark.parametrize(
    "model",
    [
        "@/etc/passwd",
        "@models.txt",
        "python:os:getcwd",
        "file:/etc/passwd",
        "onnx:/tmp/x.onnx",
        "hf//etc/passwd",
        "hf/../../etc",
        "hf/a/../b",
        "timm/local-dir:/tmp",
        "timm/hf_hub:evil/code",
        "resnet18",
        "",
        "timm/",
        "hf/a?trust_remote_code=true",
        "hf/a?x=1&trust_remote_code=1",
        "hf/a?subfolder=/etc",
        "hf/a,python:os:getcwd",
        "timm/x?arch=1,@/etc/passwd",
        "--out=/tmp",
        "-m",
        "timm/a\nfile:x",
        "hf/a b",
        "hf/a?x=1,file:w.pth",
    ],
)
def test_models_that_read_files_or_run_code_are_refused(starter: Starter, model: str) -> None:
    with pytest.raises(InputError, match="Models"):
        check_model(model)
    with pytest.raises(InputError, match="Models"):
        starter.command(request_for(models=[model, "file:x"]))


@pytest.mark.parametrize(
    "model",
    [
        "timm/resnet50.a1_in1k",
        "timm/mobilenetv3*",
        "pypi/lite0?input_size=64",
        "hf/facebook/dinov2-small?pooling=mean",
        "timm/x?mean=0.5,0.5",
    ],
)
def test_models_of_hubs_are_taken_and_stay_one_word(model: str) -> None:
    check_model(model)
    assert split_models([model]) == [model]


def test_a_folder_of_this_machine_is_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="offered"):
        check_model("hf/org/model")


def test_what_was_offered_is_taken_as_it_is(starter: Starter) -> None:
    assert "--models=python:zoo.py:a?x=1,2" in starter.command(request_for(models=["python:zoo.py:a?x=1,2"]))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "../x"}, "Name"),
        ({"name": "a/b"}, "Name"),
        ({"name": ""}, "Name"),
        ({"name": ".x"}, "Name"),
        ({"name": "-x"}, "Name"),
        ({"name": "a\0b"}, "Name"),
        ({"name": "a\\b"}, "Name"),
        ({"data": "../colours"}, "Data"),
        ({"data": "/etc"}, "Data"),
        ({"data": ""}, "Data"),
        ({"data": "none"}, "Data"),
        ({"models": []}, "at least one"),
        ({"models": [f"timm/m{i}" for i in range(501)]}, "at most 500"),
        ({"limit": "2k --out x"}, "Samples"),
        ({"metrics": "logme;rm"}, "Metrics"),
        ({"label": "a\nb"}, "Label"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_made(starter: Starter, fields: dict, words: str) -> None:
    before = sorted(starter.runs.path.iterdir())
    with pytest.raises(InputError, match=words):
        starter.start(request_for(**fields))
    assert sorted(starter.runs.path.iterdir()) == before


def test_a_name_is_taken_once(starter: Starter) -> None:
    with pytest.raises(InputError, match="already"):
        starter.start(request_for(name="first"))


def test_a_start_that_fails_leaves_nothing(starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nothing/here")
    with pytest.raises(FileNotFoundError):
        starter.start(request_for())
    assert not (starter.runs.path / "new").exists()


def test_a_race_and_a_tuning_are_commands_too(starter: Starter) -> None:
    race = starter.command(request_for(command="race", models="timm/resnet18\ntimm/resnet34", budget="30min"))
    assert race[2:4] == ["hubscout", "race"]
    assert race[-3:] == ["--models=timm/resnet18", "--models=timm/resnet34", "--budget=30min"]
    tune = starter.command(request_for(command="tune", epochs="3", limit="2k", metrics="knn"))
    assert tune[2:4] == ["hubscout", "tune"]
    assert tune[-3:] == ["--model=timm/resnet18", "--epochs=3", "--limit=2k"]
    assert starter.command(request_for(command="tune", budget="2h"))[-1] == "--budget=2h"


def test_a_race_has_a_model_to_deploy_and_a_tuning_its_method_and_learning_rate(starter: Starter) -> None:
    race = starter.command(request_for(command="race", deploy="timm/small", method="kd", learning_rate="1"))
    assert race[-2:] == ["--models=timm/resnet18", "--deploy=timm/small"]
    tune = starter.command(request_for(command="tune", method="fine-tune", learning_rate="3e-4", deploy="timm/small"))
    assert tune[-3:] == ["--model=timm/resnet18", "--method=fine-tune", "--learning-rate=3e-4"]
    from_json = starter.command(request_for(command="tune", learning_rate=0.001))
    assert from_json[-1] == "--learning-rate=0.001"
    offered = "python:zoo.py:a?x=1,2"
    assert starter.command(request_for(command="race", deploy=offered))[-1] == f"--deploy={offered}"


def test_the_methods_of_the_form_are_those_of_tuning() -> None:
    from hubscout.tuning.methods import METHODS as KNOWN

    assert set(METHODS) == {*KNOWN, "all"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": "serve"}, "Command"),
        ({"command": "cache"}, "Command"),
        ({"command": "tune", "models": ["timm/a", "timm/b"]}, "exactly one"),
        ({"command": "tune", "models": ["timm/a*"]}, "exactly one"),
        ({"command": "tune", "models": ["file:x"]}, "Models"),
        ({"command": "tune", "epochs": "3 --out=x"}, "Epochs"),
        ({"command": "tune", "epochs": "0"}, "Epochs"),
        ({"command": "tune", "epochs": "3", "budget": "2h"}, "not both"),
        ({"command": "race", "budget": "long"}, "Budget"),
        ({"command": "race", "models": ["python:os:getcwd"]}, "Models"),
        ({"command": "tune", "teachers": "../first"}, "Teachers"),
        ({"command": "tune", "teachers": "none"}, "Teachers"),
        ({"command": "tune", "teachers": "/etc"}, "Teachers"),
        ({"command": "tune", "method": "kd --out=x"}, "Method"),
        ({"command": "tune", "method": "magic"}, "Method"),
        ({"command": "tune", "method": "kd"}, "Method: kd needs teachers"),
        ({"command": "tune", "learning_rate": "fast"}, "Learning rate"),
        ({"command": "tune", "learning_rate": "0"}, "Learning rate"),
        ({"command": "race", "deploy": "file:x"}, "Model to deploy: 'file:x' is not allowed"),
        ({"command": "race", "deploy": "timm/a*"}, "Model to deploy: give one model"),
    ],
)
def test_a_race_or_a_tuning_that_is_not_allowed_is_refused(starter: Starter, fields: dict, words: str) -> None:
    before = sorted(starter.runs.path.iterdir())
    with pytest.raises(InputError, match=words):
        starter.start(request_for(**fields))
    assert sorted(starter.runs.path.iterdir()) == before


def test_teachers_of_a_ranking_are_named_one_by_one_and_only_if_allowed(starter: Starter, runs: Path) -> None:
    (runs / "link").symlink_to(runs / "first")
    assert starter.rankings() == ["first", "team/second"]
    with pytest.raises(InputError, match=r"Teachers: 'python:.*not allowed"):  # nobody offered them on this server
        starter.command(request_for(command="tune", teachers="first"))
    best = [row["identifier"] for row in json.loads((runs / "first" / "ranking.json").read_text())["rows"]]
    allowed = replace(starter, offered=tuple(best))
    command = allowed.command(request_for(command="tune", teachers="first", models=best[:1]))
    assert command[-1 - len(best[1:4]) :] == [f"--model={best[0]}", *(f"--teachers={one}" for one in best[1:4])]
