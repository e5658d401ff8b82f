"""Which linear probes are measured under a budget, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hubscout.tuning.probe_time import ProbeChoice, ProbeTime

ALONE = ProbeTime(1000, 100, 500, weights=(1.0,), known=(False,), left=100.0, alone=110.0, pace=1.0)
"""A model without teachers: 1,100 samples for a probe."""
BOTH = ("validation", "test")
TAUGHT = replace(ALONE, weights=(1.0, 4.0), known=(False, False))


@pytest.mark.parametrize(
    ("time", "per_sample", "choice"),
    [
        # All of it, and on test where that is a quarter of the time.
        (ALONE, 0.01, ProbeChoice(splits=BOTH)),
        (ALONE, 0.02, ProbeChoice()),
        (ALONE, 0.09, ProbeChoice()),
        # Half of the time is for a part of the train samples where training has its thirty steps beside it.
        (ALONE, 0.2, ProbeChoice(150)),
        (ALONE, 0.4, ProbeChoice(samples=0)),
        # No thirty steps: the probe is the result, and has what validations would take.
        (replace(ALONE, pace=5.0), 0.09, ProbeChoice()),
        (replace(ALONE, pace=5.0), 0.2, ProbeChoice(340, is_result=True)),
        (replace(ALONE, left=-20.0, alone=-10.0), 0.05, ProbeChoice(120, is_result=True)),
        (replace(ALONE, left=-20.0, alone=-10.0), 0.1, ProbeChoice(samples=0)),
        # Teachers have probes too, and theirs cost more: without the time for them, the model's own alone.
        (TAUGHT, 0.01, ProbeChoice()),
        (TAUGHT, 0.04, ProbeChoice(1000)),
        # Features that are there cost nothing.
        (replace(TAUGHT, known=(True, True)), 0.005, ProbeChoice(splits=BOTH)),
        (replace(TAUGHT, known=(True, True)), 0.1, ProbeChoice()),
        (replace(TAUGHT, known=(True, False)), 0.1, ProbeChoice(1000)),
        (replace(ALONE, known=(True,), left=-20.0, alone=-10.0), 9.0, ProbeChoice(1000, is_result=True)),
        # But validation may cost more than there is.
        (replace(ALONE, known=(True,)), 1.1, ProbeChoice(samples=0)),
        # A small train split is taken whole or not at all.
        (replace(ALONE, train=20, alone=200.0, pace=5.0), 0.9, ProbeChoice(20, is_result=True)),
    ],
)
def test_which_probes_there_is_time_for(time, per_sample, choice):
    assert time.choose(per_sample) == choice


@pytest.mark.parametrize(("left", "per_sample", "timed"), [(100, 0.5, True), (100, 0.7, False), (-5, 0.01, True)])
def test_validation_is_timed_where_there_is_time_for_it(left, per_sample, timed):
    assert replace(ALONE, left=left, alone=left + 10).can_be_timed(per_sample) is timed
