"""The plan of `experiments/teaching`: what it names exists, and can be run where it is to be run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = """
import explore, run
own = {run.CHOSEN, run.CHOSEN_BEFORE, run.CHOSEN_VIEWS, run.CHOSEN + ", no knobs"}
for cases, methods in run.WORTH:
    assert not set(cases) - set(run.CASES), cases
    assert not set(methods) - set(run.METHODS) - own, methods
for about in (explore.FIRST, explore.SECOND, explore.THIRD, explore.FOURTH, explore.FIFTH):
    assert not set(about.cases) - set(run.CASES)
    assert not set(about.candidates) - set(run.METHODS)
    assert about.fallback in about.candidates and "fine-tune" in about.candidates
    assert not set(about.seeds) & {run.SEARCH_SEED, *run.SEEDS, *run.MORE_SEEDS}
judged = {case for cases, _ in run.WORTH for case in cases}
assert not judged & set(explore.FIFTH.cases)
print(len(run.explored()))
"""
WHOLE = """
import explore
def made(method, value, case="a", seed=41):
    return {"case": case, "seed": seed, "method": method, "validation": value, "test": value}
names = list(explore.FOURTH.candidates)
records = [made(name, 0.5) for name in names]
records += [made(name, 0.9 if name == "crossed, 6C" else 0.5, case="b") for name in names[:-1]]
records += [made("b-tuning, C", 1.0), {"case": "b", "seed": 41, "method": names[-1], "failed": "killed"}]
left = explore.whole(records, explore.FOURTH)
assert {r["case"] for r in left} == {"a"} and len(left) == len(names)
records[names.index("crossed, 6C, fading features 0.3")]["validation"] = 0.51
assert explore.choose(left, explore.FOURTH)["default"] == "crossed, 6C, fading features 0.3"
assert explore.choose([], explore.FOURTH)["default"] == "crossed, 3C"
"""

FADING = """
import candidates
from tuning_networks import make_task, perceptron
from hubscout.tuning import tune
options = {"steps": 200, "batch_size": 16, "micro_batch_size": 8, "feature_trade_off": 1.0, "linear_probe": False}
with candidates.raw_features(annealed=True, absolute=False):
    run = tune(make_task("classification"), perceptron(0), [perceptron(1)], progress=False, **options)
assert any("Short runs" in note for note in run.notes)
parts = [line["parts"]["features"] for line in run.curves if line["event"] == "step"]
assert len(parts) == 200 and min(parts[:100]) > 0 and not any(parts[100:]), parts
with candidates.raw_features(annealed=False, absolute=False):
    fixed = tune(make_task("classification"), perceptron(0), [perceptron(1)], progress=False, **options)
assert parts[0] == next(line["parts"]["features"] for line in fixed.curves if line["event"] == "step")
"""


def run(code: str) -> str:
    paths = [str(ROOT / part) for part in ("experiments/teaching", "experiments", "src", "tests/tuning")]
    given = [sys.executable, "-W", "ignore", "-c", f"import sys; sys.path[:0] = {paths}\n{code}"]
    ran = subprocess.run(given, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_name_of_the_plan_exists_and_nothing_is_explored_where_it_is_judged() -> None:
    assert int(run(NAMES)) == 273  # seven cases, thirteen candidates, three seeds


def test_a_case_that_some_candidates_lack_chooses_nothing() -> None:
    run(WHOLE)


def test_features_fade_by_the_step_whatever_micro_batches_and_searches_have_seen() -> None:
    run(FADING)
