from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hubscout.errors import InputError
from hubscout.evidence import logme
from hubscout.runs.paired_comparison import TIED_ABOVE, compare, deviations


def test_two_models_agree_with_scipys_paired_t_test() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(0.1, 1, 12), generator.normal(0, 1, 12)
    result = compare(np.array([first.mean(), second.mean()]), np.stack([first, second]))
    oracle = stats.ttest_rel(first, second, alternative="less").pvalue
    assert result.pairwise[0, 1] == pytest.approx(oracle, abs=1e-12)
    assert result.p_best[0] == pytest.approx(result.pairwise[0, 1], abs=0.015)


def test_what_is_hard_for_all_cancels() -> None:
    """Blocks that differ a lot, models that differ by the same little on each: the order is certain."""
    hardness = np.random.default_rng(1).normal(0, 10, 10)
    jitter = np.random.default_rng(2).normal(0, 0.01, (2, 10))
    blocks = np.stack([hardness + 0.1, hardness]) + jitter
    result = compare(blocks.mean(axis=1), blocks)
    assert result.p_best[0] > 0.999
    unpaired = np.stack([hardness + 0.1, hardness[::-1]])
    assert compare(unpaired.mean(axis=1), unpaired).p_best[0] < 0.6


def test_copies_share_the_first_place_and_are_tied() -> None:
    blocks = np.random.default_rng(3).normal(0, 1, (3, 10))
    blocks[1] = blocks[0] * (1 + 1e-15)
    blocks[2] -= 20
    result = compare(blocks.mean(axis=1), blocks)
    np.testing.assert_allclose(result.p_best, [0.5, 0.5, 0.0], atol=1e-4)
    assert result.pairwise[0, 1] == 0.5
    assert result.tied.tolist() == [True, True, False]


def test_false_alarms_are_as_rare_as_promised() -> None:
    """Two equally good models: the truth is called out of the race in 5% of samples, no more."""
    generator = np.random.default_rng(4)
    called_out = 0
    trials = 600
    for _ in range(trials):
        blocks = generator.normal(0, 1, (2, 10))
        called_out += compare(blocks.mean(axis=1), blocks).pairwise[0, 1] < TIED_ABOVE
    assert called_out / trials == pytest.approx(0.05, abs=0.02)


def test_unequal_blocks_weigh_by_size() -> None:
    """Of a mean the pseudo-values are the blocks' means: the variance must be near that of the mean."""
    generator = np.random.default_rng(5)
    sizes = np.array([50, 100, 150, 200, 100, 80, 120, 100, 60, 140])
    estimates = []
    means = []
    for _ in range(300):
        parts = [generator.normal(0, 1, size) for size in sizes]
        blocks = np.array([[part.mean() for part in parts]])
        estimates.append((deviations(blocks, sizes) ** 2).sum())
        means.append(np.concatenate(parts).mean())
    assert np.mean(estimates) == pytest.approx(1 / sizes.sum(), rel=0.1)
    assert np.mean(estimates) == pytest.approx(np.var(means), rel=0.25)


@settings(max_examples=40, deadline=None)
@given(
    models=st.integers(1, 8),
    blocks=st.integers(2, 12),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_laws(models: int, blocks: int, seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(0, scale, (models, blocks))
    scores = values.mean(axis=1)
    result = compare(scores, values, seed=seed)
    assert result.p_best.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(result.pairwise + result.pairwise.T, 1.0, atol=1e-9)
    assert result.tied[scores.argmax()]
    assert np.isfinite(result.pairwise).all()
    assert (result.pairwise[scores.argmax()] >= 0.5).all()
    again = compare(scores, values, seed=seed)
    np.testing.assert_array_equal(result.p_best, again.p_best)


def test_order_of_models_does_not_matter() -> None:
    values = np.random.default_rng(6).normal(0, 1, (5, 10))
    order = np.array([3, 0, 4, 1, 2])
    straight = compare(values.mean(axis=1), values)
    turned = compare(values.mean(axis=1)[order], values[order])
    np.testing.assert_allclose(straight.pairwise[np.ix_(order, order)], turned.pairwise, atol=1e-12)
    np.testing.assert_allclose(straight.p_best[order], turned.p_best, atol=0.02)


@pytest.mark.parametrize(
    ("scores", "blocks", "sizes", "words"),
    [
        (np.zeros(2), np.zeros((2, 1)), None, "at least 2 blocks"),
        (np.zeros(3), np.zeros((2, 4)), None, "do not fit"),
        (np.zeros(2), np.zeros((2, 4)), np.zeros(4), "positive"),
        (np.zeros(2), np.zeros((2, 4)), np.ones(3), "4 positive"),
    ],
)
def test_bad_shapes_are_named(scores: np.ndarray, blocks: np.ndarray, sizes: np.ndarray | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        compare(scores, blocks, block_sizes=sizes)


def test_equal_models_are_called_unequal_as_rarely_as_promised() -> None:
    """LogME of two feature sets of equal worth, over fresh samples: each tail of 5% holds about 5%."""
    generator = np.random.default_rng(7)
    mixing = generator.standard_normal((3, 20))
    chances = []
    for _ in range(150):
        signal = generator.standard_normal((200, 3))
        labels = (signal + 0.5 * generator.standard_normal((200, 3))).argmax(axis=1)
        both = [logme(signal @ mixing + 1.5 * generator.standard_normal((200, 20)), labels) for _ in range(2)]
        scores, blocks = np.array([e.score for e in both]), np.stack([e.block_scores for e in both])
        chances.append(compare(scores, blocks, block_sizes=both[0].block_sizes).pairwise[0, 1])
    tails = np.mean(np.array(chances) < 0.05), np.mean(np.array(chances) > 0.95)
    assert 0.01 <= sum(tails) / 2 <= 0.08
