from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubscout.ranking import Ranking

Run = Callable[..., Any]


def test_a_table_on_stdout_and_the_rest_on_stderr(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    result = hubscout(
        "rank", images, "-m", f"{zoo}:red,{zoo}:colours", "--out", tmp_path / "run", "--metrics", "logme,knn"
    )
    assert result.exit_code == 0, result.stderr
    first, second = (line for line in result.stdout.splitlines() if line.startswith("│"))
    assert "colours" in first
    assert "red" in second
    assert "P(best)" in result.stdout
    assert "knn" in result.stdout
    assert "3 classes: blue, green, red" in result.stderr
    assert "Saved in" in result.stderr
    assert "Saved in" not in result.stdout
    ranking = Ranking.load(tmp_path / "run")
    assert ranking.best.identifier == f"{zoo}:colours"
    assert ranking.task.source is not None


def test_a_ranking_without_out_is_saved_and_says_what_comes_next(hubscout: Run, images: Path, zoo: str) -> None:
    models = ("-m", f"{zoo}:red,{zoo}:colours")
    first = hubscout("rank", images, *models)
    assert f"Without --out, the run goes to {Path('runs/colours-1')}" in first.stderr
    tuning, page = first.stderr.partition("Next:\n")[2].replace(" \\\n", "").strip().splitlines()
    assert tuning.split()[:3] == ["hubscout", "tune", str(images)]
    assert page.strip() == "hubscout report runs/colours-1"
    assert Ranking.load("runs/colours-1").best.identifier == f"{zoo}:colours"
    hubscout("rank", images, *models)
    hubscout("rank", images, *models, "--json")
    hubscout("rank", images, *models, "--quiet")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["colours-1", "colours-2"]


def test_the_next_commands_can_be_typed_as_they_are(hubscout: Run, images: Path, zoo: str) -> None:
    said = hubscout("rank", images, "-m", f"{zoo}:colours").stderr
    for line in said.partition("Next:\n")[2].replace(" \\\n", "").strip().splitlines():
        result = hubscout(*shlex.split(line)[1:])
        assert result.exit_code in (0, 4), result.stderr  # 4: of so small a network, worse than guessing
    assert Path("my-model/README.md").is_file()
    assert Path("runs/colours-1/report.html").is_file()


def test_a_ranking_of_which_nothing_came_leaves_no_folder(hubscout: Run, images: Path, zoo: str) -> None:
    assert hubscout("rank", images, "-m", f"{zoo}:colours", "--metrics", "logmee").exit_code == 2
    assert not Path("runs").exists()
    wrong = hubscout("rank", images, "-m", f"{zoo}:coolers")
    assert wrong.exit_code == 1
    assert "Saved in" not in wrong.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("rank", "--budget"),
        ("rank", "--limit"),
        ("rank", "--time-limit"),
        ("race", "--budget"),
        ("race", "--max-latency"),
        ("tune", "--budget"),
        ("tune", "--limit"),
    ],
)
def test_an_amount_that_is_none_is_said_before_the_data_are_read(hubscout: Run, command: str, option: str) -> None:
    model = ["--model", "pypi/alexnet-features"] if command == "tune" else []
    result = hubscout(command, "no/such/folder", *model, option, "soon", "--out", "run")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {option} must be ")


@pytest.mark.parametrize("command", [("rank",), ("tune", "--model", "pypi/alexnet-features")])
def test_a_label_column_of_a_folder_of_images_is_explained(
    hubscout: Run, images: Path, command: tuple[str, ...]
) -> None:
    result = hubscout(*command, images, "--label", "breed")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: --label breed: this names a column of a table")
    assert "the name of the sub-folder" in result.stderr
    assert "from_image_folder" not in result.stderr


def test_the_reason_of_a_failure_is_given_in_full_once(hubscout: Run, images: Path) -> None:
    result = hubscout("rank", images, "-m", "pypi/nope", "--no-cache")
    said = result.stdout + result.stderr
    assert said.count("Available: alexnet-features") == 1
    assert "pypi/nope: failed: Unknown packaged model 'nope'\n" in result.stderr
    assert "Next:" not in result.stderr


def test_json_is_all_there_is_on_stdout(hubscout: Run, images: Path, zoo: str) -> None:
    result = hubscout("rank", images, "-m", f"{zoo}:colours", "--limit", "40", "--no-cache", "--json", "-q")
    record = json.loads(result.stdout)
    assert result.stderr == ""
    assert record["format"] == "hubscout-ranking"
    assert record["rows"][0]["n"] == 40
    assert record["task"]["target_names"] == ["blue", "green", "red"]


def test_a_device_that_is_not_here_is_one_error(hubscout: Run, images: Path, zoo: str) -> None:
    import torch

    if torch.backends.mps.is_available():
        pytest.skip("has the device that should be missing")
    result = hubscout("rank", images, "-m", f"{zoo}:red", "-m", f"{zoo}:colours", "--device", "mps")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "Error: --device mps: no MPS device is available here. Use 'cpu' or 'auto'.\n"


def test_accelerated_or_not_the_scores_are_the_same(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    scores = []
    for accelerate in ("off", "onnxruntime"):
        result = hubscout(
            "rank", images, "-m", f"{zoo}:colours", "--accelerate", accelerate, "--cache", tmp_path, "--json", "-q"
        )
        record = json.loads(result.stdout)
        assert record["rows"][0]["notes"] == []
        scores.append(record["rows"][0]["score"])
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    listed = json.loads(hubscout("cache", "ls", "--cache", tmp_path, "--json").stdout)
    assert sorted(entry["layer"] for entry in listed) == ["", "", "graph"]


def test_an_acceleration_that_does_not_exist_is_one_error(hubscout: Run, images: Path, zoo: str) -> None:
    result = hubscout("rank", images, "-m", f"{zoo}:red", "-m", f"{zoo}:colours", "--accelerate", "tpu")
    assert result.exit_code == 2
    assert result.stderr == "Error: --accelerate must be one of auto, off, onnxruntime, openvino; got 'tpu'.\n"


def test_some_failed_is_status_3_and_all_failed_is_1(hubscout: Run, images: Path, zoo: str) -> None:
    some = hubscout("rank", images, "-m", f"{zoo}:broken", "-m", f"{zoo}:colours", "--no-cache")
    assert some.exit_code == 3
    assert "these weights are cursed" in " ".join(some.stdout.split())
    none = hubscout("rank", images, "-m", f"{zoo}:broken", "--no-cache")
    assert none.exit_code == 1
    assert "no model could be ranked" in none.stdout


def test_interrupted_is_130_and_the_same_command_goes_on(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = hubscout("rank", images, "-m", f"{zoo}:red,{zoo}:stop,{zoo}:colours", "--out", run, "--no-cache")
    assert first.exit_code == 130
    assert f"Interrupted: 1 of 3 models are finished and saved in {run}" in first.stderr
    assert "Traceback" not in first.stderr
    assert not Ranking.load(run).complete
    second = hubscout("rank", images, "-m", f"{zoo}:red,{zoo}:colours", "--out", run, "--no-cache")
    assert second.exit_code == 0
    assert f"{zoo}:red: " not in second.stderr, "the finished model ran again"
    assert len(Ranking.load(run)) == 2


def test_other_models_are_added_to_the_run_folder(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = hubscout("rank", images, "-m", f"{zoo}:red,{zoo}:broken", "--out", run, "--no-cache")
    assert first.exit_code == 3
    second = hubscout("rank", images, "-m", f"{zoo}:colours", "--out", run, "--no-cache")
    assert second.exit_code == 0, "the failure of a model that was not asked for is none of this command"
    assert "1 finished model is there already" in second.stderr
    assert {row.identifier for row in Ranking.load(run)} == {f"{zoo}:red", f"{zoo}:colours"}
    other = hubscout("rank", images, "-m", f"{zoo}:colours", "--metrics", "knn", "--out", run, "--no-cache")
    assert other.exit_code == 2
    assert "metrics is ['logme'] there and ['knn'] here" in other.stderr
    assert "--overwrite" in other.stderr
    assert len(Ranking.load(run)) == 2


def test_models_from_a_file(hubscout: Run, images: Path, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "models.txt").write_text(f"# mine\n{zoo}:red\n\n{zoo}:colours\n")
    listed = ["rank", images, "-m", f"@{tmp_path / 'models.txt'}", "--no-cache", "--json", "-q"]
    assert len(json.loads(hubscout(*listed, "--allow-code").stdout)["rows"]) == 2
    assert not json.loads(hubscout(*listed).stdout)["rows"], "functions that a file names run only if allowed"
    missing = hubscout("rank", images, "-m", "@nowhere.txt")
    assert missing.exit_code == 2
    assert "cannot read the list of models" in missing.stderr


def test_a_table_with_named_columns(hubscout: Run, zoo: str, tmp_path: Path, images: Path) -> None:
    rows = "\n".join(f"{path},{path.parent.name}" for path in sorted(images.glob("*/*.png")))
    (tmp_path / "table.csv").write_text("picture,colour\n" + rows)
    result = hubscout(
        "rank",
        tmp_path / "table.csv",
        "--image",
        "picture",
        "--label",
        "colour",
        "-m",
        f"{zoo}:colours",
        "--no-cache",
        "--json",
        "-q",
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["task"]["target_names"] == ["blue", "green", "red"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/nowhere/at/all", "-m", "x/y"], "There is no '/nowhere/at/all'"),
        (["IMAGES", "-m", "x/y", "--metrics", "logmee"], "Unknown metric 'logmee'. Did you mean 'logme'?"),
        (["IMAGES", "-m", "x/y", "--limit", "many"], "--limit must be a number such as 300, 10M or 1.5G, not 'many'"),
        (["IMAGES", "-m", "x/y", "--budget", "soon"], "--budget must be a time"),
        (["IMAGES", "-m", "x/y", "--resume"], "--resume needs the folder of the run: give --out"),
        (["IMAGES", "-m", "x/y", "--out", "/nowhere/run", "--resume"], "--resume: /nowhere/run holds no run to resume"),
        (["IMAGES", "-m", "pypi/nothing*"], "matches no model"),
        (["IMAGES", "-m", "x/y", "--cache", "c", "--no-cache"], "exclude each other"),
        (["IMAGES", "-m", ","], "--models is empty"),
    ],
)
def test_bad_input_is_one_line_and_status_2(hubscout: Run, images: Path, arguments: list[str], words: str) -> None:
    result = hubscout("rank", "-q", *[str(images) if argument == "IMAGES" else argument for argument in arguments])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_help_lists_the_metrics(hubscout: Run) -> None:
    from hubscout.metrics import available

    words = " ".join(hubscout("rank", "--help").stdout.replace("│", " ").split())
    listed = words.partition(", or of a plug-in")[0].rpartition(" Of ")[2]
    assert sorted(listed.split(", ")) == sorted(available())


def test_debug_shows_the_traceback_wherever_it_stands(hubscout: Run) -> None:
    from hubscout.errors import TaskError

    for arguments in (["--debug", "rank", "/nowhere", "-m", "x/y"], ["rank", "/nowhere", "-m", "x/y", "--debug"]):
        result = hubscout(*arguments)
        assert isinstance(result.exception, TaskError)


def test_ctrl_c_in_a_real_process_keeps_what_is_finished(images: Path, slow_zoo: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "hubscout",
        "rank",
        str(images),
        "-m",
        f"{slow_zoo}:colours,{slow_zoo}:slow",
        "--out",
        str(run),
        "--no-cache",
        "--batch-size",
        "2",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        _wait_until(lambda: _events(run).count("model-started") == 2, seconds=200)
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, messages
    assert "1 of 2 models are finished and saved in" in messages
    assert "Traceback" not in messages
    saved = Ranking.load(run)
    assert saved.identifiers == (f"{slow_zoo}:colours",)
    assert not saved.complete


def test_a_killed_process_loses_one_model_at_most(images: Path, slow_zoo: str, tmp_path: Path, hubscout: Run) -> None:
    run = tmp_path / "run"
    arguments = ["rank", str(images), "-m", f"{slow_zoo}:colours,{slow_zoo}:slow", "--out", str(run), "--no-cache"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hubscout", *arguments, "--batch-size", "2"], stderr=subprocess.DEVNULL
    )
    try:
        _wait_until(lambda: _events(run).count("model-started") == 2, seconds=200)
    finally:
        process.kill()
        process.wait()
    assert Ranking.load(run).identifiers == (f"{slow_zoo}:colours",)
    result = hubscout(*arguments[:3], f"{slow_zoo}:colours,{slow_zoo}:red", *arguments[4:])
    assert result.exit_code == 0
    assert f"{slow_zoo}:colours: " not in result.stderr, "the finished model ran again"


def _events(run: Path) -> list[str]:
    file = run / "events.jsonl"
    return [json.loads(line)["event"] for line in file.read_text().splitlines()] if file.exists() else []


def _wait_until(condition: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def test_a_full_disk_does_not_cost_the_result(
    hubscout: Run, images: Path, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from hubscout.runs import files

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    result = hubscout("rank", images, "-m", f"{zoo}:colours", "--out", tmp_path / "run", "--no-cache", "-q")
    assert result.exit_code == 1
    assert ":colours" in result.stdout, "the table is printed all the same"
    assert "No space left on device" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not list((tmp_path / "run").glob("*.tmp"))


def test_a_run_folder_that_cannot_be_made_is_said_before_any_work(
    hubscout: Run, images: Path, zoo: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = hubscout("rank", images, "-m", f"{zoo}:colours", "--out", tmp_path / "file" / "run", "--no-cache", "-q")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr
    assert result.stdout == ""


def test_passwords_in_urls_are_written_nowhere(
    hubscout: Run, images: Path, zoo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    monkeypatch.setenv("HUBSCOUT_DATA", str(tmp_path / "copies"))
    memory = fsspec.filesystem("memory")
    memory.put(str(images), "/me:s3cret@store/colours", recursive=True)
    data, cache = "memory://me:s3cret@store/colours", "memory://me:s3cret@store/features"
    bad = f"{zoo}:broken?weights=https://me:s3cret@host/w.pth"
    run, model = tmp_path / "run", tmp_path / "model"
    results = [
        hubscout("rank", data, "-m", f"{zoo}:red,{zoo}:colours", "-m", bad, "--cache", cache, "--out", run),
        hubscout("rank", data, "-m", f"{zoo}:red", "--cache", cache, "--json"),
        hubscout("report", run),
        hubscout("select", run, "-k", "2", "--method", "joint", "--allow-code"),
        hubscout(
            "tune",
            data,
            "-m",
            f"{zoo}:colours",
            "--method",
            "fine-tune",
            "--epochs",
            "1",
            "--out",
            model,
            "--cache",
            cache,
            "--set",
            "freeze=all",
            "--set",
            "head_init=posterior",
        ),
        hubscout("rank", "memory://me:s3cret@nowhere/colours", "-m", f"{zoo}:red"),
        hubscout("rank", data, "-m", f"{zoo}:red", "--cache", "nosuch://me:s3cret@store/x", "--out", tmp_path / "b"),
    ]
    for number, result in enumerate(results):
        assert "s3cret" not in result.stdout + result.stderr, number
    assert [result.exit_code for result in results[:3]] == [3, 0, 0]
    assert results[4].exit_code == 0, results[4].stderr
    assert results[5].exit_code == 2
    assert "saved without its password" in " ".join(results[3].stderr.split())
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) > 10
    assert not [path for path, content in written.items() if b"s3cret" in content]
    record = json.loads((run / "ranking.json").read_text())
    assert record["environment"]["cache"] == "memory://***@store/features"
    assert record["task"]["source"]["arguments"]["url"] == "memory://***@store/colours"


def test_without_models_those_on_this_machine_are_ranked_where_there_is_no_hub(
    hubscout: Run, images: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from hubscout.hubs import list_models

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    wanted = "pypi/alexnet-features"
    if not any(entry.identifier == wanted and entry.on_this_machine for entry in list_models("pypi/*")):
        pytest.skip("no model is installed")
    result = hubscout("rank", images, "--limit", "12", "--no-cache", "--budget", "1s", "--out", tmp_path / "run")
    assert "on this machine, not the list 'small': the hub is switched off (HF_HUB_OFFLINE)." in result.stderr
    assert "minilm" not in result.stdout
    assert wanted in result.stdout


def test_labels_that_no_model_explains_are_said_in_the_table_and_beside_json(
    hubscout: Run, images: Path, zoo: str, tmp_path: Path
) -> None:
    import random

    files = sorted(images.rglob("*.png"))
    labels = [file.parent.name for file in files]
    random.Random(0).shuffle(labels)
    for number, (file, label) in enumerate(zip(files, labels, strict=True)):
        place = tmp_path / "shuffled" / label / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    words = "None of these models explains your labels"
    shown = hubscout("rank", tmp_path / "shuffled", "-m", f"{zoo}:colours", "--no-cache")
    assert shown.exit_code == 0
    assert words in " ".join(shown.stdout.split())
    told = hubscout("rank", tmp_path / "shuffled", "-m", f"{zoo}:colours", "--no-cache", "--json")
    assert words in told.stderr
    assert json.loads(told.stdout)["rows"][0]["odds"] < 5
    right = hubscout("rank", images, "-m", f"{zoo}:colours", "--no-cache", "--json")
    assert words not in right.stderr


def test_a_run_that_ends_by_an_error_notes_the_reason(images: Path, zoo: str, hubscout: Run, tmp_path: Path) -> None:
    """For those who find its folder later."""
    for name in ("red", "blue"):
        shutil.copytree(images / name, tmp_path / "data" / name)
        (tmp_path / "data" / name / "cut.png").write_bytes(b"no image")
    result = hubscout("rank", tmp_path / "data", "-m", f"{zoo}:colours", "--out", tmp_path / "run")
    assert result.exit_code == 2, result.output
    last = json.loads((tmp_path / "run" / "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "failed"
    assert "cut.png cannot be decoded" in last["error"]
