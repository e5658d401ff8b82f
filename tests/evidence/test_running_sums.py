"""Features in memory: their error bar needs no float64 Gram matrix per block."""

import numpy as np
import pytest

from hubscout.evidence import Statistics, logme, maximize_evidence
from hubscout.evidence.leverage import mean_leverages
from hubscout.evidence.maximize import HIGH_LEVERAGE
from hubscout.evidence.running_sums import RUNNING_FROM

DIM = RUNNING_FROM + 20


def labelled(generator, n, dim=DIM, classes=7):
    ids = np.arange(n) % classes
    rows = generator.normal(size=(n, dim)) + 0.5 * generator.normal(size=(classes, dim))[ids]
    return np.maximum(rows * np.arange(1, dim + 1) ** -0.5, 0), ids


def from_sums_of_blocks(features, targets, kind, blocks, center):
    names = [str(name) for name in range(7)] if kind == "classification" else ["y"]
    statistics = Statistics(kind, names)
    for block in range(10):
        statistics.update(features[blocks == block], targets[blocks == block], block=block)
    return maximize_evidence(statistics, center=center)


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_the_error_bar_is_that_of_sums_of_every_block(generator, kind, center, offset):
    features, ids = labelled(generator, 4 * DIM)
    targets = ids if kind == "classification" else features[:, :1] + generator.normal(size=(4 * DIM, 1))
    features, blocks = features + offset, generator.permutation(4 * DIM) % 10
    found = logme(features, targets, kind=kind, blocks=blocks, center=center)
    wanted = from_sums_of_blocks(features, targets, kind, blocks, center)
    assert found.score == pytest.approx(wanted.score, abs=1e-9)
    assert found.standard_error == pytest.approx(wanted.standard_error, rel=0.01)
    np.testing.assert_allclose(found.block_scores, wanted.block_scores, atol=0.03 * wanted.standard_error)
    np.testing.assert_array_equal(found.block_sizes, wanted.block_sizes)


def test_no_gram_matrix_per_block(generator, monkeypatch):
    """What was dear about the error bar is their memory."""
    features, ids = labelled(generator, 4 * DIM)
    made = []
    add_checked = Statistics.add_checked

    def counted(self, *arguments, **options):
        add_checked(self, *arguments, **options)
        made.append(len(self.blocks))

    monkeypatch.setattr(Statistics, "add_checked", counted)
    assert logme(features, ids).standard_error > 0
    assert max(made) == 1


def test_high_leverage_leaves_blocks_out(generator):
    """The expansion of leverages is no good there: the sums of every block are made after all."""
    features = generator.normal(size=(DIM + 60, DIM))
    y = features @ generator.normal(size=DIM)
    y = y + 0.1 * y.std() * generator.normal(size=len(y))
    found = logme(features, y, center=False)
    assert mean_leverages(found.spectrum, found.ratio)[0] > HIGH_LEVERAGE
    exact = logme(features, y, center=False, jackknife="exact")
    assert found.standard_error == exact.standard_error


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales_that_float32_does_not_hold(generator, scale):
    features, ids = labelled(generator, 3 * DIM)
    plain, scaled = logme(features, ids), logme(features * scale, ids)
    assert scaled.score == pytest.approx(plain.score, abs=1e-9)
    assert scaled.standard_error == pytest.approx(plain.standard_error, rel=0.01)
