import csv
import io
from dataclasses import replace

from hubscout.report import Run
from hubscout.runs.race_record import RaceRecord
from hubscout.runs.tuning_record import TuningRun
from hubscout.serve.run_facts import Result, as_csv, differing_settings, results, run_facts, sorted_results


def tuned(seed: int, score: float, **arguments: object) -> TuningRun:
    return TuningRun(
        name=f"fine-tune-{seed}",
        method="fine-tune",
        model="timm/small",
        task="pets",
        seed=seed,
        metrics={"test": {"accuracy": (score, score, score)}},
        arguments={"seed": seed, **arguments},
    )


def test_seeds_are_averaged_and_what_differs_between_them_is_named() -> None:
    (found,) = results("run", Run(tuning=(tuned(0, 0.5, rate=1), tuned(1, 0.7, rate=2))))
    assert (found.score, found.metric) == (0.6, "accuracy, test")
    assert round(found.error or 0, 4) == 0.1414
    assert found.settings == {"rate": "1, 2", "seed": "0, 1"}


def test_a_seed_without_a_finite_score_spoils_no_page() -> None:
    (found,) = results("run", Run(tuning=(tuned(0, 0.5), tuned(1, float("nan")))))
    assert found.cells[-2:] == ("nan", "nan")


def result(run: str, task: str, score: float | None, **settings: str) -> Result:
    return Result(run=run, kind="tuning", task=task, data="", model="m", metric="a", score=score, settings=settings)


def test_the_order_is_by_task_then_score_and_runs_without_one_come_last() -> None:
    found = sorted_results(
        [
            result("a", "x", None),
            result("n", "x", float("nan")),
            result("b", "y", 0.9),
            result("c", "x", 0.1),
            result("d", "x", 0.2),
        ]
    )
    assert [one.run for one in found] == ["d", "c", "a", "n", "b"]


def test_settings_that_only_some_runs_have_differ() -> None:
    same = {"batch": "8"}
    assert differing_settings([result("a", "x", 1, **same), result("b", "x", 1, **same, rate="2")]) == ["rate"]


def test_settings_that_another_kind_of_run_does_not_have_are_no_difference() -> None:
    ranking = replace(result("r", "x", 1, layer="final", seed="0"), kind="ranking")
    tunings = [result("a", "x", 1, batch="8", seed="0"), result("b", "x", 1, batch="8", seed="0", rate="2")]
    assert differing_settings([ranking, *tunings]) == ["rate"]
    assert differing_settings([replace(ranking, settings={"seed": "1"}), *tunings]) == ["seed", "rate"]


def test_no_cell_of_a_table_becomes_a_formula() -> None:
    text = as_csv([result("=cmd()", "@x", -0.5, note="-1")])
    line = next(csv.DictReader(io.StringIO(text)))
    assert (line["run"], line["task"], line["score"], line["note"]) == ("'=cmd()", "'@x", "-0.5", "-1")


def test_a_race_is_compared_by_its_winner() -> None:
    (found,) = results("run", Run(race=RaceRecord(), tuning=(tuned(0, 0.5),)))
    assert (found.kind, found.score, found.metric) == ("race", 0.5, "accuracy, test")


def test_facts_of_a_tuning_have_its_time_and_device() -> None:
    one = replace(tuned(0, 0.5), seconds=90.0, environment={"device": "cpu", "started": "2026-01-02T03:04:05+00:00"})
    facts = run_facts(Run(tuning=(one,)))
    assert (facts["Time"], facts["Device"], facts["Started, UTC"]) == ("1 min 30 s", "cpu", "2026-01-02 03:04")
    assert run_facts(Run(tuning=(tuned(0, 0.5),)))["Time"] == "–"
