import json
from pathlib import Path

import pytest

from hubscout.errors import RunError
from hubscout.report import Run
from hubscout.report.sections import tuning_sections
from hubscout.report.sections.tuning_sections import by_method, evaluated, loss_curves, validation_curve
from hubscout.runs.evaluation_record import EvaluationRecord
from hubscout.runs.tuning_record import TuningRun, find_tuning_runs


def write(folder: Path, method: str, seed: int, values: list[float], *, finished: bool = True) -> None:
    folder.mkdir(parents=True)
    lines = [{"event": "step", "step": s, "loss": 2.0, "parts": {"task": 1.5, "teachers": 0.5}} for s in range(1, 9)]
    lines += [
        {"event": "validation", "step": 4 * (i + 1), "epoch": i + 1.0, "metrics": {"accuracy": v}, "best": True}
        for i, v in enumerate(values)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        record = {
            "format": "hubscout-tuning",
            "version": 2,
            "task": "pets",
            "kind": "classification",
            "model": "timm/small",
            "teachers": ["timm/large"],
            "method": method,
            "metrics": {"test": {"accuracy": {"value": values[-1], "low": 0.1, "high": 0.9}}},
            "merged_metrics": None,
            "best_step": 8,
            "steps": 8,
            "notes": [],
            "arguments": {"seed": seed},
        }
        (folder / "tuning.json").write_text(json.dumps(record))


def test_seeds_are_averaged_and_bounded(tmp_path: Path) -> None:
    write(tmp_path / "b-tuning-0", "b-tuning", 0, [0.5, 0.7])
    write(tmp_path / "b-tuning-1", "b-tuning", 1, [0.6, 0.9])
    groups = by_method(find_tuning_runs(tmp_path))
    curve = validation_curve("b-tuning", groups["b-tuning"], "accuracy")
    assert curve is not None
    assert curve.x == [1.0, 2.0]
    assert curve.y == pytest.approx((0.55, 0.8))
    assert (curve.low, curve.high) == ([0.5, 0.7], [0.6, 0.9])


def test_the_samples_of_a_run_without_a_finite_score_are_not_those_of_the_best() -> None:
    record = EvaluationRecord(
        split="test", kind="regression", modality="array", target_names=("y",), samples=1, targets=()
    )
    bad, good = (
        TuningRun(name=name, metrics={"test": {"r2": (value,) * 3}}, evaluation=record)
        for name, value in (("bad", float("nan")), ("good", -0.5))
    )
    assert evaluated([bad, good]) is good
    assert evaluated([good, bad]) is good


def test_parts_of_the_loss_are_means_of_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_sections, "STRETCHES", 4)
    write(tmp_path / "run", "kd", 0, [0.5])
    curves = {curve.name: curve for curve in loss_curves(find_tuning_runs(tmp_path))}
    assert set(curves) == {"task", "teachers"}
    assert curves["task"].y == pytest.approx((1.5,) * 4)
    assert len(curves["task"].x) == 4


def test_a_run_that_is_going_on_is_shown_without_its_half_written_line(tmp_path: Path) -> None:
    write(tmp_path / "b-tuning", "b-tuning", 0, [0.5, 0.6], finished=False)
    with (tmp_path / "b-tuning" / "metrics.jsonl").open("a") as file:
        file.write('{"event": "validation", "step": 12, "epo')
    (found,) = find_tuning_runs(tmp_path)
    assert found.method == "b-tuning"
    assert len(found.validation) == 2
    assert found.metrics == {}


def test_a_loss_that_was_not_finite_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "run", "kd", 0, [0.5], finished=False)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": "step", "step": 9, "loss": None, "parts": {"task": None}}) + "\n")
    (found,) = find_tuning_runs(tmp_path)
    assert len(found.losses) == 8


def test_trials_without_curves_still_have_results(tmp_path: Path) -> None:
    write(tmp_path / "fine-tune-0", "fine-tune", 0, [0.5])
    lines = [
        {"run": {"model": "timm/small"}, "method": method, "seed": 0, "validation": 0.8, "test": 0.7, "seconds": 1.0}
        for method in ("fine-tune", "kd")
    ]
    lines.append({"run": {}, "model": "timm/a", "learning_rate": 0.1, "validation": 0.5, "test": 0.5})
    (tmp_path / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {run.method: run for run in find_tuning_runs(tmp_path)}
    assert set(found) == {"fine-tune", "kd"}
    assert found["fine-tune"].validation  # the folder with curves goes before the trial
    assert found["kd"].metrics["test"]["primary metric"][0] == 0.7


def test_a_link_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", "kd", 0, [0.5])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "elsewhere")
    assert find_tuning_runs(tmp_path / "run") == []


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    write(tmp_path / "run", "kd", 0, [0.5])
    (tmp_path / "run" / "tuning.json").write_text("{")
    with pytest.raises(RunError, match=r"tuning\.json"):
        find_tuning_runs(tmp_path)


def test_a_real_comparison_has_curves_of_every_method_and_seed(run: Run) -> None:
    groups = by_method(run.tuning)
    assert {name: len(runs) for name, runs in groups.items()} == {"b-tuning": 2, "fine-tune": 2}
    for name, runs in groups.items():
        assert validation_curve(name, runs, "accuracy").x == [1.0, 2.0, 3.0]
        assert all("test" in found.metrics for found in runs)
    assert {curve.name for curve in loss_curves(groups["b-tuning"])} > {"task"}


def test_models_of_one_method_have_their_short_names() -> None:
    runs = [TuningRun(name=name, method="kd", model=f"pypi/{name}?input_size=64") for name in ("lite0", "lite1")]
    assert list(by_method(runs)) == ["kd, lite0", "kd, lite1"]
