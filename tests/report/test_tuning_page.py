"""The page of a tuning run: the answer first, then by class, confusions, samples and settings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubscout.report import Run, open_run, render
from hubscout.report.page import sections
from hubscout.runs.data_check import Sample
from hubscout.runs.evaluation_record import Confusion, EvaluationRecord, NumberPair, TargetOutcome, write_evaluation
from hubscout.runs.tuning_record import Probe, TuningRecord, TuningRun, write_tuning

NAMES = ("cat", "dog", "bird")
COUNTS = {(0, 0): 8, (0, 1): 2, (1, 1): 10, (2, 2): 3, (2, 0): 7}
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


def evaluation(**changes: Any) -> EvaluationRecord:
    targets = tuple(
        TargetOutcome(
            name=name,
            seen=sum(count for (true, _), count in COUNTS.items() if true == place),
            said=sum(count for (_, said), count in COUNTS.items() if said == place),
            right=COUNTS[place, place],
        )
        for place, name in enumerate(NAMES)
    )
    record = EvaluationRecord(
        split="test",
        kind="classification",
        modality="image",
        target_names=NAMES,
        samples=30,
        targets=targets,
        confusions=tuple(Confusion(true=t, predicted=p, count=count) for (t, p), count in COUNTS.items()),
        worst=(Sample(split="test", row=4, name="bird/4.jpg", label="bird", note="predicted cat", thumbnail=PIXEL),),
        suspects=(Sample(split="test", row=9, name="cat/9.jpg", label="cat", note="predicted dog", thumbnail=PIXEL),),
        suspected=1,
    )
    return replace(record, **changes)


def tuning(**changes: Any) -> TuningRun:
    values: dict[str, Any] = {
        "name": "run",
        "task": "animals",
        "kind": "classification",
        "model": "timm/small",
        "teachers": ("timm/large",),
        "method": "b-tuning",
        "metrics": {"test": {"accuracy": (0.7, 0.6, 0.8)}},
        "guess": {"test": 0.4},
        "probes": {
            "model": Probe(model="timm/small", metrics={"test": {"accuracy": 0.65}}),
            "teacher": Probe(model="timm/large", metrics={"test": {"accuracy": 0.75}}),
        },
        "steps": 40,
        "sizes": {"train": 100, "test": 30},
        "arguments": {"learning_rate": 0.001, "seed": 3},
        "environment": {"command": ["hubscout", "tune", "my animals/", "--model", "timm/small"], "processor": "A CPU"},
        "evaluation": evaluation(),
    }
    return TuningRun(**{**values, **changes})


def words(page: str) -> str:
    """The text of a page."""
    body = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).replace("&#x27;", "'").split())


def part(run: Run, anchor: str) -> str:
    return next(str(section) for section in sections(run) if section.anchor == anchor)


def test_the_answer_is_the_sentence_of_the_command(tmp_path: Path) -> None:
    answer = words(part(Run(folder=tmp_path, tuning=(tuning(),)), "answer"))
    assert (
        "small , tuned by b-tuning, taught by large. Test accuracy 70.0% [60.0, 80.0], 5.0 points above the "
        "linear probe of the frozen features (65.0%), 5.0 points below that of the best teacher, large (75.0%). "
        "Guessing gives 40.0%."
    ) in answer
    assert f"hubscout predict {tmp_path}/ INPUTS" in answer


def test_a_model_that_is_worse_than_guessing_is_not_recommended() -> None:
    run = Run(folder=Path("run"), tuning=(tuning(warning="This model is worse than guessing."),))
    answer = words(part(run, "answer"))
    assert "This model is worse than guessing." in answer
    assert "hubscout rank 'my animals/'" in answer
    assert "hubscout predict" not in answer


def test_a_run_that_never_beat_the_probe_says_so() -> None:
    answer = words(part(Run(tuning=(tuning(best_step=0),)), "answer"))
    assert "The model is the linear probe of its frozen features: no step of training was better" in answer
    assert "small , as a linear probe. Test accuracy" in answer
    assert "65.0% the model itself" in answer
    assert "-5.0 points by the model" in answer.replace("−", "-")
    assert "tuned" not in answer
    assert "by tuning" not in answer


def test_sections_come_in_the_order_of_questions() -> None:
    found = [section.anchor for section in sections(Run(tuning=(tuning(),)))]
    assert found == ["answer", "by-target", "confusion", "samples", "tuning", "run"]


def test_classes_stand_worst_first() -> None:
    table = part(Run(tuning=(tuning(),)), "by-target")
    assert re.findall(r'<th scope="row">(\w+)</th>', table) == ["bird", "cat", "dog"]
    assert "30.0%" in table
    assert "<details" not in table


def test_many_classes_are_folded() -> None:
    names = tuple(f"class {place}" for place in range(60))
    targets = tuple(TargetOutcome(name=name, seen=100, said=100, right=place) for place, name in enumerate(names))
    run = Run(tuning=(tuning(evaluation=evaluation(target_names=names, targets=targets)),))
    table = part(run, "by-target")
    before, _, folded = table.partition("<details")
    assert before.count("<tr>") == 1 + 12
    assert folded.count("<tr>") == 1 + 60
    assert "All 60 classes" in folded


def test_the_matrix_counts_rows_by_true_class() -> None:
    matrix = part(Run(tuning=(tuning(),)), "confusion")
    assert 'title="bird predicted to be cat: 7 (70%)"' in matrix
    assert 'title="dog predicted to be dog: 10 (100%)"' in matrix
    assert matrix.count("<td></td>") == 9 - len(COUNTS)


@pytest.mark.parametrize(("classes", "matrix", "pairs"), [(2, True, False), (100, True, True), (101, False, True)])
def test_more_than_a_hundred_classes_have_a_list_of_mistakes(classes: int, matrix: bool, pairs: bool) -> None:
    names = tuple(f"class {place}" for place in range(classes))
    targets = tuple(TargetOutcome(name=name, seen=10, said=10, right=8) for name in names)
    confusions = tuple(Confusion(true=p, predicted=(p + 1) % classes, count=2) for p in range(classes))
    found = evaluation(target_names=names, targets=targets, confusions=confusions)
    section = part(Run(tuning=(tuning(evaluation=found),)), "confusion")
    assert ("heat confusion" in section) is matrix
    assert ("The most frequent mistakes" in section) is pairs


def test_samples_are_shown_with_label_and_prediction() -> None:
    section = part(Run(tuning=(tuning(),)), "samples")
    assert section.count(f'src="{PIXEL}"') == 2
    assert words(section).index("predicted dog") < words(section).index("predicted cat")


@pytest.mark.parametrize(("right", "title"), [(9, "Possibly mislabelled"), (7, "Surest mistakes")])
def test_labels_are_doubted_only_where_the_model_is_good(right: int, title: str) -> None:
    targets = tuple(TargetOutcome(name=name, seen=10, said=10, right=right) for name in NAMES)
    section = words(part(Run(tuning=(tuning(evaluation=evaluation(targets=targets)),)), "samples"))
    assert f"{title} 1 of 30 samples is predicted to be something else" in section
    assert ("At an accuracy of 70% most of them are hard samples" in section) is (right == 7)


def test_no_address_out_of_a_run_becomes_a_picture() -> None:
    away = Sample(split="test", row=0, name="x", label="<b>", note="", thumbnail="https://example.org/x.png")
    page = render(Run(tuning=(tuning(evaluation=evaluation(worst=(away,), suspects=())),)))
    assert "https://example.org" not in page
    assert "&lt;b&gt;" in page


def test_a_regression_has_a_chart_per_target() -> None:
    found = evaluation(
        kind="regression",
        target_names=("x", "y"),
        targets=(TargetOutcome(name="x", seen=2, r2=0.5, rmse=1.0), TargetOutcome(name="y", seen=2, r2=0.1, rmse=2.0)),
        confusions=(),
        pairs=tuple(NumberPair(target=t, true=v, predicted=v + 1) for t in (0, 1) for v in (1.0, 2.0, 3.0)),
    )
    run = Run(tuning=(tuning(kind="regression", evaluation=found),))
    anchors = [section.anchor for section in sections(run)]
    assert "confusion" not in anchors
    assert part(run, "numbers").count("<svg") == 4  # for a desk and for a phone
    assert part(run, "numbers").count("<table") == 2
    assert re.findall(r'<th scope="row">(\w+)</th>', part(run, "by-target")) == ["y", "x"]
    assert "Largest errors" in part(run, "samples")


def test_labels_and_entities_have_f1() -> None:
    labels = evaluation(kind="multilabel", confusions=())
    assert "F1 by label" in part(Run(tuning=(tuning(evaluation=labels),)), "by-target")
    tags = evaluation(kind="tagging", target_names=("B-PER", "I-PER", "O"), confusions=())
    assert "F1 by type of entity" in part(Run(tuning=(tuning(evaluation=tags),)), "by-target")


def test_the_page_says_what_was_run() -> None:
    section = words(part(Run(tuning=(tuning(),)), "run"))
    assert "hubscout tune 'my animals/' --model timm/small" in section
    assert "A CPU" in section
    assert "learning_rate 0.001" in section


def test_of_several_methods_the_best_is_the_answer() -> None:
    runs = [
        tuning(name=f"{method}/{seed}", method=method, seed=seed, metrics={"test": {"accuracy": (value, 0.0, 1.0)}})
        for method, value in (("fine-tune", 0.6), ("b-tuning", 0.7))
        for seed in (0, 1)
    ]
    run = Run(tuning=tuple(runs))
    assert "b-tuning has the best test accuracy of 2 methods: 70.0% ± 0.0 over 2 seeds." in words(part(run, "answer"))
    assert "of b-tuning/0" in words(part(run, "confusion"))


def test_methods_with_the_same_figures_are_level() -> None:
    def answer(values: dict[str, float], **changes: Any) -> str:
        runs = [
            tuning(name=f"{method}/{seed}", method=method, metrics={"test": {"accuracy": (value, 0.0, 1.0)}}, **changes)
            for method, value in values.items()
            for seed in (0, 1)
        ]
        return words(part(Run(tuning=tuple(runs)), "answer"))

    some = answer({"kd": 0.7, "fine-tune": 0.6, "b-tuning": 0.70001})
    told = "b-tuning and kd are level and the best of 3 methods: test accuracy 70.0% ± 0.0 over 2 seeds. Then fine-tune"
    assert told in some
    assert "linear probe" not in some
    every = answer({"kd": 0.7, "b-tuning": 0.7}, best_step=0)
    assert "kd and b-tuning are level: test accuracy 70.0% ± 0.0 over 2 seeds. The model of each is the linear" in every
    assert "Then" not in every


def test_a_folder_is_read_without_torch_and_an_old_one_still_has_a_page(tmp_path: Path) -> None:
    record = TuningRecord(task="animals", kind="classification", metrics={"test": {"accuracy": (0.7, 0.6, 0.8)}})
    write_tuning(tmp_path, record, [])
    assert "Test accuracy 70.0%" in render(open_run(tmp_path))
    old = json.loads((tmp_path / "tuning.json").read_text())
    for name in ("guess", "seconds", "environment"):
        del old[name]
    (tmp_path / "tuning.json").write_text(json.dumps(old))
    assert "Test accuracy 70.0%" in render(open_run(tmp_path))
    write_evaluation(tmp_path, evaluation())
    assert open_run(tmp_path).tuning[0].evaluation == evaluation()
    assert "Confusion matrix" in render(open_run(tmp_path))
