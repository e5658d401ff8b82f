from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import distributed_run
import numpy as np
import pytest
import torch

from small_models import save_bert

SCRIPT = Path(__file__).parent / "distributed_run.py"


def run_two(out, *, until=99, resume=False, learning_rate=None, budget=None, slow_teacher=None):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [str(SCRIPT), str(out), str(until), "resume" if resume else "new", "b-tuning"]
    command += [str(given) for given in (learning_rate, budget, slow_teacher) if given is not None]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def run_alone(out, *, resume=False):
    distributed_run.main(out, 99, resume, "b-tuning")


def losses(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"]


@pytest.mark.slow
def test_two_processes_do_what_one_does_and_one_resumes_what_two_began(tmp_path):
    alone, both = tmp_path / "alone", tmp_path / "both"
    run_alone(alone)
    # The main process dies after step 8; the last checkpoint is that of step 6.
    assert run_two(both, until=7).returncode != 0
    (checkpoint,) = (both / "checkpoints").iterdir()
    assert checkpoint.name.startswith("step-00000006-")
    np.testing.assert_allclose(losses(both)[:6], losses(alone)[:6], rtol=1e-5)
    run_alone(both, resume=True)
    np.testing.assert_allclose(losses(both), losses(alone), rtol=1e-5)
    results = [json.loads((folder / "result-0.json").read_text()) for folder in (alone, both)]
    for first, second in zip(results[0]["head"], results[1]["head"], strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)

    # Two processes resume what one finished: what is left is to evaluate, each sample once.
    shutil.copytree(both, tmp_path / "again")
    finished = run_two(tmp_path / "again", resume=True)
    assert finished.returncode == 0, finished.stderr[-2000:]
    gathered = [json.loads((tmp_path / "again" / f"result-{rank}.json").read_text()) for rank in (0, 1)]
    assert gathered[0]["metrics"] == gathered[1]["metrics"] == results[1]["metrics"]


@pytest.mark.slow
def test_two_processes_that_diverge_start_anew_together(tmp_path):
    run = run_two(tmp_path / "run", learning_rate=30.0)
    assert run.returncode == 0, run.stderr[-2000:]
    results = [json.loads((tmp_path / "run" / f"result-{rank}.json").read_text()) for rank in (0, 1)]
    assert any("restarts with" in note for note in results[0]["notes"])
    assert results[0]["metrics"] == results[1]["metrics"]
    assert results[0]["head"] == results[1]["head"]


@pytest.mark.slow
def test_two_processes_end_with_their_budget_at_the_same_step(tmp_path):
    run = run_two(tmp_path / "run", until=10**9, learning_rate=1e-3, budget=8)
    assert run.returncode == 0, run.stderr[-2000:]
    results = [json.loads((tmp_path / "run" / f"result-{rank}.json").read_text()) for rank in (0, 1)]
    assert any("Budget of 8 s" in note for note in results[0]["notes"])
    assert results[0]["steps"] == results[1]["steps"] > 12
    assert results[0]["head"] == results[1]["head"]


@pytest.mark.slow
def test_two_processes_leave_out_the_same_teacher(tmp_path):
    """Its pass would take three times four seconds, and two are for teachers."""
    run = run_two(tmp_path / "run", until=10**9, learning_rate=1e-3, budget=10, slow_teacher=4)
    assert run.returncode == 0, run.stderr[-2000:]
    results = [json.loads((tmp_path / "run" / f"result-{rank}.json").read_text()) for rank in (0, 1)]
    assert results[0]["teachers"] == results[1]["teachers"] == ["small/perceptron-1-16"]
    assert [note for note in results[0]["notes"] if "Too slow to teach in this budget: small/perceptron-2-24" in note]
    assert results[0]["steps"] == results[1]["steps"]
    assert results[0]["head"] == results[1]["head"]


LAUNCH = """
import sys
from hubscout.hubs import prepare_torchvision
prepare_torchvision()  # accelerate's own command imports transformers
from accelerate.commands.accelerate_cli import main
sys.argv[0] = "accelerate"
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("options", "processes"), [(["--multi_gpu"], 2), (["--cpu"], 1), ([], 1)])
@pytest.mark.skipif(torch.cuda.is_available(), reason="how many processes there are without a GPU")
def test_accelerate_launch_starts_as_many_processes_as_the_page_on_tuning_says(tmp_path, options, processes):
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-c", LAUNCH, "launch", *options, "--num_processes", "2"]
    command += [str(SCRIPT), str(tmp_path / "run"), "99", "new", "fine-tune"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(list((tmp_path / "run").glob("result-*.json"))) == processes
    assert ("this one runs alone" in run.stderr) == (processes == 1)


TEXTS = """
import json, os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[3], str(Path(sys.argv[3]).parent)]
import torch
from test_texts import with_long_texts
from hubscout.tuning import tune
torch.set_num_threads(1)
out = Path(sys.argv[1])
settings = {"epochs": 3, "batch_size": 16, "learning_rate": 1e-2, "keep_best": False, "workers": 0}
tuned = tune(with_long_texts("text"), sys.argv[2], method="fine-tune", bootstrap_resamples=5, out=out, **settings)
weights = [value.tolist() for value in tuned.head.parameters()]
(out / f"result-{os.environ['RANK']}.json").write_text(json.dumps(weights))
"""


@pytest.mark.slow
def test_processes_that_cut_their_shares_by_length_into_other_numbers_of_groups_do_what_one_does(tmp_path):
    bert, results = save_bert(tmp_path / "bert", longest=512, dropout=0.0), []
    (tmp_path / "texts.py").write_text(TEXTS)
    for processes in (1, 2):
        out = tmp_path / f"by-{processes}"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command += [str(tmp_path / "texts.py"), str(out), bert, str(SCRIPT.parent)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr[-2000:]
        results += [json.loads((out / f"result-{rank}.json").read_text()) for rank in range(processes)]
    for weights in results[1:]:
        for found, expected in zip(weights, results[0], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
