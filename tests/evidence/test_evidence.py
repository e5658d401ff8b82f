"""Evidence as a person reads it, and the sums that it came from."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from hubscout.errors import InputError
from hubscout.evidence import Statistics, logme, maximize_evidence
from hubscout.evidence.evidence import SHOWN, caveats, statistics_of
from hubscout.evidence.spectrum import kept


def test_names_are_text_in_the_terminal_and_in_a_notebook(generator):
    features, ids = generator.normal(size=(40, 3)), np.arange(40) % 2
    result = logme(features, ids, classes=[0, 1, 2], target_names=["<b>cat", "[red]dog", "none"])
    console = Console(width=160)
    with console.capture() as shown:
        console.print(result)
    assert "[red]dog" in shown.get()
    page = result._repr_html_()
    assert "&lt;b&gt;cat" in page
    assert "<b>cat" not in page
    for text in (shown.get(), page):
        assert f"LogME {result.score:.4f} ± {result.standard_error:.4f}, gain {result.gain:+.4f}" in text
        assert "Not scored, no label: none." in text


def test_of_many_targets_the_best_and_the_worst_are_shown(generator):
    ids = np.arange(400) % (SHOWN + 8)
    page = logme(generator.normal(size=(400, 5)), ids)._repr_html_()
    assert page.count("<tr>") == 1 + SHOWN + 1
    assert "… 8 more" in page


@pytest.mark.parametrize("center", [False, True])
def test_the_sums_of_a_fit_give_the_fit_again(generator, center):
    features, ids = generator.normal(size=(60, 4)), np.arange(60) % 3
    names = ["a", "b", "c"]
    sums = Statistics("classification", names).update(features, ids)
    found = maximize_evidence(sums, center=center, jackknife="none")
    again = maximize_evidence(statistics_of(found), center=center, jackknife="none")
    np.testing.assert_allclose(again.per_target, found.per_target, rtol=1e-10)
    with pytest.raises(InputError, match="no spectrum: fit with keep_spectrum=True"):
        kept(found.without_spectrum().spectrum)


def test_a_score_that_is_rounding_is_told_without_an_absurd_number(generator):
    found = logme(generator.normal(size=(40, 3)), generator.integers(0, 2, 40))
    (told,) = caveats(replace(found, rounding=2e17))
    assert "its part of the score is rounding" in told
    assert "e+" not in told
    (told,) = caveats(replace(found, rounding=0.01))
    assert "About 0.01 nats per sample of the score are rounding" in told


def test_a_notebook_shows_one_short_line() -> None:
    labels = np.repeat([0, 1], 20)
    found = logme(np.eye(2)[labels] + np.random.default_rng(0).normal(size=(40, 2)), labels)
    assert re.fullmatch(
        r"Evidence\(-?\d+\.\d{4}( ± \d\.\d{4})?, gain \+\d+\.\d{4}; n=40, D=2, 2 targets\)", repr(found)
    )
