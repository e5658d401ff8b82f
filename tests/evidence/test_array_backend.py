"""The same numbers from NumPy arrays and from tensors, from float64 and from less."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from torch.utils._python_dispatch import TorchDispatchMode

from hubscout.evidence import Statistics, condensed, logme, maximize_evidence
from hubscout.evidence.array_backend import add_product, long_inner

FIELDS = (
    "score",
    "null_score",
    "per_target",
    "alpha",
    "beta",
    "weights",
    "standard_error",
    "block_scores",
    "intercept",
)


def agree(first, second, rtol=1e-7):
    for name in FIELDS:
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=rtol, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("n", [1797, 40])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.usefixtures("tensors_stay_tensors")
def test_tensors_go_the_same_way(n, center):
    features, ids = (array[:n] for array in load_digits(return_X_y=True))
    ours = logme(features, ids, center=center)
    theirs = logme(torch.tensor(features), torch.tensor(ids), center=center)
    agree(theirs, ours)
    assert all(isinstance(getattr(theirs, name), float | np.ndarray) for name in FIELDS)
    np.testing.assert_allclose(theirs.predict(torch.tensor(features)), ours.predict(features), atol=1e-8)
    np.testing.assert_allclose(theirs.predict_variance(features), ours.predict_variance(features), rtol=1e-6)
    np.testing.assert_allclose(
        theirs.predict_variance(torch.tensor(features)), ours.predict_variance(features), rtol=1e-6
    )


@pytest.mark.usefixtures("tensors_stay_tensors")
@pytest.mark.parametrize("solver", ["newton", "mackay", "naive", "fixed-point"])
def test_regression_and_multi_label_tensors(solver):
    features, y = load_diabetes(return_X_y=True)
    agree(logme(torch.tensor(features), torch.tensor(y), solver=solver), logme(features, y, solver=solver))
    labels = np.column_stack([y > 100, y > 200])
    agree(logme(torch.tensor(features), torch.tensor(labels), solver=solver), logme(features, labels, solver=solver))


@pytest.mark.usefixtures("tensors_stay_tensors")
def test_ill_conditioned_tensors(generator):
    features = generator.normal(size=(300, 12)) * np.logspace(0, -5, 12)
    y = features[:, -1] * 1e5 + 0.1 * generator.normal(size=300)
    assert logme(torch.tensor(features), torch.tensor(y)).score == pytest.approx(logme(features, y).score, abs=1e-9)


@pytest.mark.usefixtures("tensors_stay_tensors")
def test_sums_of_tensors_and_of_arrays_mix(tmp_path):
    features, ids = load_digits(return_X_y=True)
    names = [str(digit) for digit in range(10)]
    arrays = Statistics("classification", names).update(features, ids)
    mixed = Statistics("classification", names).update(torch.tensor(features[:900]), torch.tensor(ids[:900]))
    mixed.update(features[900:1200], ids[900:1200])
    mixed.merge(Statistics("classification", names).update(features[1200:], ids[1200:]))
    agree_to = maximize_evidence(arrays)
    np.testing.assert_allclose(maximize_evidence(mixed).per_target, agree_to.per_target, rtol=1e-9)
    mixed.save(tmp_path / "sums")
    np.testing.assert_allclose(
        maximize_evidence(Statistics.load(tmp_path / "sums")).per_target, agree_to.per_target, rtol=1e-9
    )


@pytest.mark.parametrize("n", [1797, 40])
def test_tensors_on_the_host_are_arrays(n):
    features, ids = (array[:n] for array in load_digits(return_X_y=True))
    assert logme(torch.tensor(features), torch.tensor(ids)).score == logme(features, ids).score
    tracked = torch.tensor(features, requires_grad=True)
    assert logme(tracked, torch.tensor(ids)).score == logme(features, ids).score


@pytest.mark.parametrize("shape", [(400, 30), (40, 300)])
def test_less_precise_features(generator, shape):
    ids = np.arange(shape[0]) % 3
    features = generator.normal(size=shape) + generator.normal(size=(3, shape[1]))[ids]
    exact = logme(features, ids)
    assert logme(features.astype(np.float32), ids).score == pytest.approx(exact.score, abs=1e-5)
    assert logme(torch.tensor(features).float(), ids).score == pytest.approx(exact.score, abs=1e-5)
    assert logme(features.astype(np.float16), ids).score == pytest.approx(exact.score, abs=1e-2)
    assert logme(torch.tensor(features).bfloat16(), ids).score == pytest.approx(exact.score, abs=5e-2)
    whole = np.round(10 * features).astype(np.int16)
    assert logme(whole, ids).score == pytest.approx(logme(whole.astype(float), ids).score, abs=1e-12)


def test_strided_and_transposed_features(generator):
    features, ids = generator.normal(size=(80, 12)), np.arange(80) % 4
    before = logme(features[:, ::2], ids).score
    for same in (np.asfortranarray(features[:, ::2]), features[:, ::2].copy(), np.repeat(features[:, ::2], 2, 0)[::2]):
        assert logme(same, ids).score == pytest.approx(before, abs=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("n", [1797, 40])
def test_float32_on_a_gpu_is_float64_on_the_cpu(n):
    features, ids = (array[:n] for array in load_digits(return_X_y=True))
    on_gpu = logme(torch.tensor(features, dtype=torch.float32, device="cuda"), torch.tensor(ids, device="cuda"))
    assert on_gpu.score == pytest.approx(logme(features, ids).score, abs=1e-5)


class Counted(TorchDispatchMode):
    """How many operations there are that compute or copy something, and how many look at a number."""

    VIEWS = (
        "view",
        "slice",
        "select",
        "squeeze",
        "unsqueeze",
        "t",
        "transpose",
        "expand",
        "detach",
        "alias",
        "diagonal",
    )

    def __init__(self):
        super().__init__()
        self.operations = self.looks = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function).split(".")[1]
        self.looks += name == "_local_scalar_dense"
        self.operations += name not in self.VIEWS
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("smallest", "jackknife", "operations", "looks"),
    [(1024, "none", 450, 18), (1024, "linear", 490, 20), (1, "none", 165, 9), (1, "linear", 200, 11)],
    ids=["eigenvectors", "eigenvectors, error bar", "condensed", "condensed, error bar"],
)
@pytest.mark.usefixtures("tensors_stay_tensors")
def test_an_accelerator_is_given_few_kernels_and_seldom_waited_for(
    generator, monkeypatch, smallest, jackknife, operations, looks
):
    """Each of them takes the processor longer to start than the accelerator to run."""
    monkeypatch.setattr(condensed, "SMALLEST_DIM", smallest)
    monkeypatch.setattr(condensed, "FEW", 1)
    ids = np.arange(900) % 60
    features = generator.normal(size=(900, 90)) + generator.normal(size=(60, 90))[ids]
    with Counted() as counted:
        logme(torch.from_numpy(features), torch.from_numpy(ids), jackknife=jackknife)
    assert 100 < counted.operations < operations
    assert counted.looks < looks


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_product_is_added_in_place_in_its_precision(generator, dtype, order):
    rows = np.asarray(generator.normal(size=(30, 20)), dtype=dtype, order=order)
    upper = np.asfortranarray(np.ones((20, 20), dtype))
    found = add_product(upper, rows)
    assert found is upper or np.shares_memory(found, upper)
    assert found.dtype == dtype
    wanted = np.triu(1 + rows.T.astype(np.float64) @ rows)
    np.testing.assert_allclose(np.triu(found), wanted, rtol=50 * np.finfo(dtype).eps, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_long_sum_keeps_the_digits_of_float32(generator, dtype):
    first, second = generator.uniform(1, 2, size=(2, (1 << 22) + 5)).astype(np.float32)
    wanted = first.astype(np.float64) @ second
    assert long_inner(first.astype(dtype), second) == pytest.approx(wanted, rel=3e-8 if dtype == np.float32 else 1e-13)
