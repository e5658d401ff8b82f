"""Laws that hold for all inputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import helmert
from scipy.stats import ortho_group

from hubscout.evidence import Statistics, logme, maximize_evidence

seeds = st.integers(0, 2**32 - 1)
shapes = st.tuples(st.integers(6, 40), st.integers(1, 40))


def problem(seed, shape, classes=3):
    generator = np.random.default_rng(seed)
    n, dim = shape
    ids = np.concatenate([np.arange(classes), generator.integers(0, classes, n - classes)])
    features = generator.normal(size=(n, dim)) + generator.normal(size=(classes, dim))[ids]
    return features, ids, generator


def statistics_of(features, ids, blocks=None):
    result = Statistics("classification", ["a", "b", "c"])
    for block in range(1 if blocks is None else blocks.max() + 1):
        chosen = slice(None) if blocks is None else blocks == block
        if len(ids[chosen]):
            result.update(features[chosen], ids[chosen], block=block)
    return result


def scores(evidence):
    return np.array([evidence.score, evidence.null_score])


@given(seeds, shapes, st.integers(1, 50), st.booleans())
def test_batch_size_does_not_matter(seed, shape, batch, center):
    features, ids, _ = problem(seed, shape)
    whole = statistics_of(features, ids)
    parts = Statistics("classification", ["a", "b", "c"])
    for start in range(0, len(ids), batch):
        parts.update(features[start : start + batch], ids[start : start + batch])
    np.testing.assert_allclose(
        scores(maximize_evidence(parts, center=center)), scores(maximize_evidence(whole, center=center)), atol=1e-8
    )


@given(seeds, shapes, st.permutations(range(4)))
def test_the_order_of_merges_does_not_matter(seed, shape, order):
    features, ids, generator = problem(seed, shape)
    blocks = generator.integers(0, 4, len(ids))
    parts = [statistics_of(features[blocks == b], ids[blocks == b]) for b in range(4) if (blocks == b).any()]
    order = [index for index in order if index < len(parts)]
    forwards, shuffled = parts[0], parts[order[0]]
    for part in parts[1:]:
        forwards = forwards + part
    for index in order[1:]:
        shuffled = shuffled + parts[index]
    assert shuffled.n == len(ids)
    np.testing.assert_allclose(scores(maximize_evidence(shuffled)), scores(maximize_evidence(forwards)), atol=1e-8)


@given(seeds, shapes, st.integers(1, 9))
def test_the_number_of_blocks_does_not_move_the_score(seed, shape, count):
    features, ids, _ = problem(seed, shape)
    several, one = logme(features, ids, blocks=count), logme(features, ids, blocks=1)
    np.testing.assert_allclose(scores(several), scores(one), atol=1e-9)
    assert len(several.block_scores) == min(count, len(ids))
    assert several.block_sizes.sum() == len(ids)


@given(seeds, shapes, st.booleans())
def test_the_order_of_rows_and_classes_does_not_matter(seed, shape, center):
    features, ids, generator = problem(seed, shape)
    order, names = generator.permutation(len(ids)), generator.permutation(3)
    before = logme(features, ids, center=center)
    after = logme(features[order], names[ids][order], center=center)
    np.testing.assert_allclose(scores(after), scores(before), atol=1e-9)
    np.testing.assert_allclose(after.per_target[names], before.per_target, atol=1e-9)


@given(seeds, st.tuples(st.integers(6, 30), st.integers(2, 12)))
def test_rotation_does_not_matter(seed, shape):
    features, ids, generator = problem(seed, shape)
    rotation = ortho_group.rvs(shape[1], random_state=generator)
    np.testing.assert_allclose(scores(logme(features @ rotation, ids)), scores(logme(features, ids)), atol=1e-9)


@given(seeds, shapes, st.floats(-6, 6))
def test_the_scale_of_features_does_not_matter(seed, shape, power):
    features, ids, _ = problem(seed, shape)
    np.testing.assert_allclose(
        scores(logme(10.0**power * features, ids)), scores(logme(features, ids)), rtol=1e-10, atol=1e-10
    )


@given(seeds, shapes, st.floats(-4, 4))
def test_the_scale_of_labels_only_shifts_the_score(seed, shape, power):
    features, ids, _ = problem(seed, shape)
    y = features[:, 0] + ids
    before, after = logme(features, y), logme(features, 10.0**power * y)
    assert after.gain == pytest.approx(before.gain, abs=1e-9)
    assert after.score == pytest.approx(before.score - power * np.log(10), abs=1e-9)


@given(seeds, shapes, st.integers(1, 60), st.integers(2, 4))
def test_padding_and_duplicating_features_changes_nothing(seed, shape, zeros, copies):
    features, ids, _ = problem(seed, shape)
    before = scores(logme(features, ids))
    np.testing.assert_allclose(scores(logme(np.pad(features, ((0, 0), (0, zeros))), ids)), before, atol=1e-9)
    np.testing.assert_allclose(scores(logme(np.tile(features, copies), ids)), before, atol=1e-9)


@given(seeds, shapes)
def test_the_primal_and_the_dual_are_the_same(seed, shape):
    features, ids, _ = problem(seed, shape)
    from_sums = maximize_evidence(statistics_of(features, ids))
    from_arrays = logme(features, ids)
    np.testing.assert_allclose(scores(from_sums), scores(from_arrays), atol=1e-8)
    assert from_sums.rank == from_arrays.rank == min(shape)


@given(seeds, shapes)
def test_centring_is_centring(seed, shape):
    features, ids, _ = problem(seed, shape)
    onehot = (ids[:, None] == np.arange(3)).astype(float)
    contrasts = helmert(len(ids))  # an orthonormal basis of all differences between samples, (n - 1, n)
    by_hand = logme(contrasts @ features, contrasts @ onehot, center=False)
    for centred in (logme(features, ids, center=True), maximize_evidence(statistics_of(features, ids), center=True)):
        np.testing.assert_allclose(scores(centred), scores(by_hand), atol=1e-7)
        np.testing.assert_allclose(
            centred.predict(features), by_hand.predict(features - features.mean(0)) + onehot.mean(0), atol=1e-5
        )


@given(seeds, shapes)
def test_the_score_is_the_maximum(seed, shape):
    """No other t on a fine grid is better, by the paper's own formula of the evidence."""
    features, ids, _ = problem(seed, shape)
    result = logme(features, ids)
    n, dim = features.shape
    y = (ids == 0).astype(float)
    largest = np.linalg.norm(features, 2) ** 2
    assert result.gain >= 0
    for t in largest * np.logspace(-6, 6, 60):
        A = features.T @ features + t * np.eye(dim)
        m = np.linalg.solve(A, features.T @ y)
        beta = n / (((y - features @ m) ** 2).sum() + t * m @ m)
        value = (
            n * np.log(beta)
            + dim * np.log(t * beta)
            - n * np.log(2 * np.pi)
            - n
            - dim * np.log(beta)
            - np.linalg.slogdet(A)[1]
        ) / (2 * n)
        assert value <= result.per_target[0] + 1e-7
