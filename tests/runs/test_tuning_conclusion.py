from hubscout.runs.tuning_conclusion import conclusion
from hubscout.runs.tuning_record import Probe, TuningRun


def test_the_words_go_as_far_as_what_was_measured() -> None:
    assert conclusion(TuningRun(name="run")) == ""
    run = TuningRun(
        name="run",
        metrics={"validation": {"accuracy": (0.7, 0.6, 0.8)}},
        guess={"validation": 0.5, "test": 0.1},
        probes={"teacher": Probe(model="timm/large", metrics={"validation": {"accuracy": 0.75}})},
    )
    assert conclusion(run, lambda model: model.removeprefix("timm/")) == (
        "Validation accuracy 0.7000 [0.6000, 0.8000], -0.0500 against that of the best teacher, large (0.7500). "
        "Guessing gives 0.5000."
    )
