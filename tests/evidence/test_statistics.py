import subprocess
import sys
import textwrap

import numpy as np
import pytest

from hubscout.errors import InputError
from hubscout.evidence import Statistics, logme, maximize_evidence
from hubscout.evidence.array_backend import mirrored
from hubscout.evidence.jackknife import assign_blocks, error_from_refits, mean_leverages
from hubscout.evidence.maximize import HIGH_LEVERAGE
from hubscout.evidence.statistics import RUNNING_FROM


@pytest.fixture
def sums(generator):
    statistics = Statistics("regression", ["left", "right"])
    for block in range(3):
        statistics.update(generator.normal(size=(20, 6)), generator.normal(size=(20, 2)), block=block)
    return statistics


def test_sums_are_what_they_say(generator):
    features, ids = generator.normal(size=(50, 7)).astype(np.float32), generator.integers(0, 4, 50)
    onehot = (ids[:, None] == np.arange(4)).astype(float)
    wide = features.astype(float)
    for kind, targets in (("classification", ids), ("multilabel", onehot.astype(bool)), ("regression", onehot)):
        total = Statistics(kind, list("abcd")).update(features, targets).total().about_zero()
        np.testing.assert_allclose(total.gram, wide.T @ wide, rtol=1e-14)
        np.testing.assert_array_equal(total.gram, total.gram.T)
        np.testing.assert_allclose(total.cross, onehot.T @ wide, rtol=1e-12)
        np.testing.assert_allclose(total.target_squares, onehot.sum(0), rtol=1e-14)
        np.testing.assert_allclose(total.target_sum, onehot.sum(0), rtol=1e-14)
        np.testing.assert_allclose(total.feature_sum, wide.sum(0), rtol=1e-12)


def test_save_and_load(sums, tmp_path):
    sums.save(tmp_path / "sums.safetensors")
    loaded = Statistics.load(tmp_path / "sums.safetensors")
    assert (loaded.kind, loaded.target_names, loaded.n, loaded.feature_dim) == ("regression", ("left", "right"), 60, 6)
    assert sorted(loaded.blocks) == [0, 1, 2]
    before, after = maximize_evidence(sums), maximize_evidence(loaded)
    assert after.score == before.score
    assert after.standard_error == pytest.approx(before.standard_error, rel=1e-12)
    loaded.update(np.ones((1, 6)), np.ones((1, 2)), block=1)
    assert loaded.n == 61


def test_files_that_are_not_ours(sums, tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="no hubscout statistics"):
        Statistics.load(tmp_path / "other.safetensors")
    sums.save(tmp_path / "cut.safetensors")
    whole = (tmp_path / "cut.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not a whole safetensors file"):
        Statistics.load(tmp_path / "cut.safetensors")


def test_merging_changes_only_the_left(sums, generator):
    other = Statistics("regression", ["left", "right"]).update(generator.normal(size=(5, 6)), np.ones((5, 2)), block=9)
    kept = other.total().gram
    merged = Statistics("regression", ["left", "right"]).merge(other).merge(sums)
    merged.update(np.ones((2, 6)), np.ones((2, 2)), block=9)
    np.testing.assert_array_equal(other.total().gram, kept)
    assert (other.n, sums.n, merged.n, sorted(merged.blocks)) == (5, 60, 67, [0, 1, 2, 9])


def test_a_batch_that_is_refused_leaves_the_sums_alone(sums):
    before = sums.total().gram
    with pytest.raises(InputError, match=r"1 of 12 values are not, the first is nan at \(1, 2\)"):
        sums.update([[1.0] * 6, [1.0, 1.0, float("nan"), 1.0, 1.0, 1.0]], np.ones((2, 2)))
    with pytest.raises(InputError, match="6 columns, as before"):
        sums.update(np.ones((2, 5)), np.ones((2, 2)))
    with pytest.raises(InputError, match="features have 3 rows but targets have 2"):
        sums.update(np.ones((3, 6)), np.ones((2, 2)))
    with pytest.raises(InputError, match=r"shape \(n, 2\); got \(2, 3\)"):
        sums.update(np.ones((2, 6)), np.ones((2, 3)))
    np.testing.assert_array_equal(sums.total().gram, before)


def test_class_ids_must_be_known():
    statistics = Statistics("classification", ["a", "b"])
    for ids, message in (([0, 2], "from 0 to 2"), ([-1, 0], "from -1 to 0"), ([0.0, 1.0], "float64")):
        with pytest.raises(InputError, match=message):
            statistics.update(np.ones((2, 3)), ids)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Statistics("regression", ["a"]), Statistics("multilabel", ["a"])),
        (Statistics("regression", ["a"]), Statistics("regression", ["b"])),
        (Statistics("regression", ["a"], feature_dim=3), Statistics("regression", ["a"], feature_dim=4)),
    ],
)
def test_what_does_not_belong_together_is_not_merged(first, second):
    with pytest.raises(InputError, match="one kind, one list of targets and one feature dimension"):
        first.merge(second)


def test_empty_and_wrong_constructions():
    with pytest.raises(InputError, match="update them with at least one sample"):
        maximize_evidence(Statistics("regression", ["a"]))
    with pytest.raises(InputError, match="classification, multilabel, regression; got 'ranking'"):
        Statistics("ranking", ["a"])
    with pytest.raises(InputError, match="list of at least one name"):
        Statistics("regression", [])


def test_chunks_do_not_show(generator, monkeypatch):
    features, ids = generator.normal(size=(900, 5)).astype(np.float32), np.arange(900) % 3
    whole = logme(features, ids)
    monkeypatch.setattr("hubscout.evidence.array_backend.CHUNK_BYTES", 1)
    pieces = logme(features, ids)
    assert pieces.score == pytest.approx(whole.score, abs=1e-12)
    assert mirrored(np.array([[1.0, 2.0], [7.0, 3.0]])).tolist() == [[1.0, 2.0], [2.0, 3.0]]


def test_a_long_stream_needs_no_memory_for_its_length():
    """Forty thousand samples in a process of its own: the peak is that of the sums, not of the samples."""
    script = textwrap.dedent(
        """
        import resource
        import numpy as np
        from hubscout.evidence import Statistics, maximize_evidence

        generator = np.random.default_rng(0)
        batch = generator.normal(size=(1000, 512)).astype(np.float32)
        start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        statistics = Statistics("classification", [str(index) for index in range(100)])
        for step in range(40):
            statistics.update(batch, np.arange(1000) % 100, block=step % 10)
        maximize_evidence(statistics, keep_spectrum=False)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 1024)
        """
    )
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert float(output) < 120, "ten blocks of 512 × 512 are 20 MiB, the samples 80 MiB as float32"


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


def test_the_error_bar_of_labels_with_little_noise(generator):
    """Squares of labels, and what is taken away from them, are thousands of times what is left over."""
    ids = np.arange(3000) % 40
    noise = generator.normal(size=(3000, 300)) * np.arange(1, 301) ** -0.5
    features = np.maximum(noise + 0.5 * generator.normal(size=(40, 300))[ids], 0)
    blocks = generator.permutation(3000) % 10
    statistics = Statistics("classification", [str(name) for name in range(40)])
    for block in range(10):
        statistics.update(features[blocks == block], ids[blocks == block], block=block)
    found, wanted = logme(features, ids, blocks=blocks), maximize_evidence(statistics)
    assert wanted.beta.min() > 1000
    assert found.standard_error == pytest.approx(wanted.standard_error, rel=0.005)
    np.testing.assert_allclose(found.block_scores, wanted.block_scores, atol=0.045 * wanted.standard_error)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_error_bar_of_many_dimensions_is_that_of_fits_without_each_block(generator, kind):
    features, ids = labelled(generator, 10 * DIM)
    targets = ids if kind == "classification" else features[:, :2] + generator.normal(size=(10 * DIM, 2))
    found = logme(features, targets)
    blocks = assign_blocks(10 * DIM, 10)
    scores = [logme(features[blocks != b], targets[blocks != b], jackknife="none").score for b in range(10)]
    wanted = error_from_refits(found.score, np.array(scores), np.bincount(blocks))
    assert found.standard_error == pytest.approx(wanted.standard_error, rel=0.05)
    assert np.corrcoef(found.block_scores, wanted.block_scores)[0, 1] > 0.99


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
