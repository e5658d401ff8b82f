"""The page of a real race: the answer in a sentence, curves with the moment each arm went, places, what was spent."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hubscout.racing import Race, race
from hubscout.racing.floor import FitProbe
from hubscout.report import open_run, render
from hubscout.runs.race_record import BesideProbe
from hubscout.runs.texts import human_probability
from hubscout.tasks import Task

ARMS = ("name=digits", "name=wide&width=128", "name=narrow&width=8", "name=untrained&steps=0")


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory, zoo: str, task: Task) -> tuple[Path, Race]:
    folder = tmp_path_factory.mktemp("races") / "digits"
    models = [zoo + arm for arm in ARMS]
    options = {"steps": 40, "batch_size": 32, "learning_rate": 0.02, "device": "cpu"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FitProbe, "__call__", lambda self: None)  # the page of a winner that was trained
        return folder, race(task, models, out=folder, deploy=models[3], **options)


def section(page: str, anchor: str) -> str:
    return re.search(rf'<section id="{anchor}".*?</section>', page, re.DOTALL).group()  # type: ignore[union-attr]


def test_the_answer_comes_first_and_is_that_of_the_race(raced: tuple[Path, Race]) -> None:
    folder, found = raced
    page = render(open_run(folder))
    answer = section(page, "answer")
    assert found.answer in answer.replace("&#x27;", "'").replace("&quot;", '"')
    assert f"hubscout predict {folder}/deployed/ INPUTS" in answer
    assert "Start from" not in answer  # that is the answer of a ranking
    for stage in ("Evidence of all models", "Rungs", "The winner, to its end", "The model to deploy"):
        assert stage in answer
    assert page.index('id="answer"') < page.index('id="race"') < page.index('id="ranking"')


def test_the_card_has_what_the_winner_is_worth_and_no_note_twice(raced: tuple[Path, Race]) -> None:
    folder, found = raced
    run = open_run(folder)
    assert run.race is not None
    assert run.ranking is not None
    assert found.tuned is not None
    twice = "no test split in the data"
    noted = replace(run.ranking, task=replace(run.ranking.task, notes=(twice,)))
    page = render(replace(run, ranking=noted, race=replace(run.race, notes=(twice, "only said here"))))
    card = section(page, "answer")
    test = found.tuned.metric("test").value
    assert re.search(rf"<dt>Test accuracy</dt>\s*<dd>\s*{test:.1%}", card), card
    assert card.index("Test accuracy") < card.index("Held-out accuracy")
    assert "only said here" in card
    assert page.count(twice) == 1


def test_curves_end_where_an_arm_went_out(raced: tuple[Path, Race]) -> None:
    folder, found = raced
    part = section(render(open_run(folder)), "race")
    wide = part[: part.index('class="narrow"')]
    arms = {look.arm for look in found.looks}
    assert wide.count('class="curve') == len(arms)
    out = [arm for arm in arms if found.told.out_after(arm) == 0]
    assert out
    assert wide.count(f"out after {found.told.rungs[0]} steps") >= len(out)
    assert f"after {found.tuned.steps} steps" in wide  # type: ignore[union-attr]
    assert "Places by evidence and in the race" in part
    first = found.order[0]
    assert f"{first.evidence_rank} by evidence, 1 in the race" in part


def test_the_steps_are_those_of_the_run_and_a_linear_probe_has_none(raced: tuple[Path, Race]) -> None:
    run = open_run(raced[0])
    assert run.race is not None
    first = run.race.order[0]

    def page_with(**changed: int) -> str:
        tuning = [replace(one, **changed) if one.name == "winner" else one for one in run.tuning]
        return render(replace(run, tuning=tuple(tuning)))

    longer = page_with(steps=77, best_step=77)
    assert f"after {first.steps} of 77 steps" in section(longer, "answer")
    assert "after 77 steps" in section(longer, "race")
    assert f"after {first.steps} steps" in section(page_with(steps=1, best_step=1), "answer")
    assert "after 77 steps" not in section(page_with(steps=77, best_step=0), "race")


def test_sentence_card_and_table_agree_on_how_sure_it_is(raced: tuple[Path, Race]) -> None:
    folder, found = raced
    sure = human_probability(found.order[0].p_best)
    assert f"a probability of {sure.replace('>', 'over ')}" in found.answer
    assert escape(sure) in section(render(open_run(folder)), "answer")
    console = Console(width=200, file=io.StringIO())
    console.print(found.table())
    assert sure in console.file.getvalue()  # type: ignore[attr-defined]


def test_points_of_one_rung_are_no_curve_and_a_probe_is_not_told_by_its_training(raced: tuple[Path, Race]) -> None:
    run = open_run(raced[0])
    assert run.race is not None
    beside = BesideProbe(model=run.race.order[0].model, probe=0.25, winner=0.75, samples=40)
    trained, probe = (tuple(replace(one, best_step=step) for one in run.tuning) for step in (5, 0))
    page = render(replace(run, race=replace(run.race, beside=beside), tuning=trained))
    assert "Learning curves" in page
    assert "75.0% by the winner, on 40 held-out samples" in section(page, "answer")
    once = replace(run.race, beside=beside, looks=tuple(look for look in run.race.looks if look.rung == 0))
    page = render(replace(run, race=once, tuning=probe))
    assert "Learning curves" not in page
    assert "Arms of the race" in page
    assert "by the winner, on" not in section(page, "answer")
    assert f"Held-out {run.race.metric}" not in section(page, "answer")


def test_a_rung_without_a_look_is_no_column(raced: tuple[Path, Race]) -> None:
    run = open_run(raced[0])
    assert run.race is not None
    titles = [f">{steps} steps</th>" for steps in run.race.rungs]
    assert titles[0] in section(render(run), "race")
    later = replace(run.race, looks=tuple(look for look in run.race.looks if look.rung > 0))
    part = section(render(replace(run, race=later)), "race")
    assert titles[0] not in part
    assert titles[1] in part


def test_a_race_in_memory_has_the_same_page(raced: tuple[Path, Race], tmp_path: Path) -> None:
    folder, found = raced
    page = found.report(tmp_path / "race.html").read_text()
    saved = render(open_run(folder))
    assert section(page, "race") == section(saved, "race")
    assert found.answer.split(".")[0] in section(page, "answer")


def test_a_race_that_goes_on_has_a_page_too(raced: tuple[Path, Race], tmp_path: Path) -> None:
    folder, _ = raced
    half = tmp_path / "half"
    shutil.copytree(folder, half)
    (half / "race.json").unlink()
    lines = (half / "race.jsonl").read_text().splitlines()
    (half / "race.jsonl").write_text("\n".join(lines[:4]) + '\n{"event": "lo')
    page = render(open_run(half))
    assert "Rung 1 of 3" in section(page, "answer")
    assert 'id="race"' in page


def test_what_a_race_names_is_no_markup(raced: tuple[Path, Race], tmp_path: Path) -> None:
    folder, _ = raced
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    for name in ("race.json", "race.jsonl"):
        text = (bad / name).read_text()
        (bad / name).write_text(text.replace("At step ", "<i>At</i> ").replace("name=narrow", "name=<b>x</b>"))
    page = render(open_run(bad))
    assert "<b>x</b>" not in page
    assert "<i>At</i>" not in page


@pytest.mark.browser
def test_the_page_in_a_browser(raced: tuple[Path, Race], browser: Any, tmp_path: Path) -> None:
    _, found = raced
    path = found.report(tmp_path / "race.html")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#race svg.narrow").first.is_visible()
    assert not problems
    page.close()


def test_the_page_says_what_the_winner_makes_of_the_test_samples(raced: tuple[Path, Race]) -> None:
    page = render(open_run(raced[0]))
    assert "of the winner" in section(page, "by-target") or "of the model to deploy" in section(page, "by-target")
    assert "Confusion matrix" in section(page, "confusion")
