from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from tuning_networks import convolutional, make_task, perceptron, weights_of

from hubscout.errors import InputError
from hubscout.hubs import prepare_torchvision
from hubscout.tasks import Split, Task
from hubscout.tuning import tune
from hubscout.tuning.batches import BatchPlan, mixed_seed
from hubscout.tuning.companions import check_mixable, freeze, smallest_squared_singular_values


def test_smallest_singular_values_against_svd():
    torch.manual_seed(0)
    for shape in ((6, 9), (9, 6)):
        matrix = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        expected = torch.linalg.svdvals(matrix).square().flip(0)[:2]
        torch.testing.assert_close(smallest_squared_singular_values(matrix, 2), expected)
        assert torch.autograd.gradcheck(lambda m: smallest_squared_singular_values(m, 1), (matrix,))


def test_l2_sp_keeps_the_backbone_near_its_start(task):
    def distance(strength):
        tuned = tune(task, perceptron(0), method="fine-tune", epochs=3, batch_size=16, l2_sp=strength, keep_best=False)
        start = weights_of(perceptron(0))
        return sum(float((value - start[name]).square().sum()) for name, value in weights_of(tuned.backbone).items())

    free, held, tight = distance(None), distance(0.1), distance(5.0)
    assert tight < held < free


def test_l2_sp_is_reported_as_half_alpha_times_the_squared_distance(task):
    tuned = tune(
        task, perceptron(0), method="fine-tune", steps=2, batch_size=16, l2_sp=0.5, keep_best=False, momentum=0
    )
    first, second = (line["parts"]["l2-sp"] for line in tuned.curves if line["event"] == "step")
    assert first == 0.0
    assert second > 0.0


def test_bss_adds_its_term(task):
    tuned = tune(task, perceptron(0), method="fine-tune", steps=1, batch_size=16, bss=0.1)
    assert tuned.curves[0]["parts"]["bss"] > 0


def test_linear_probing_leaves_the_backbone_alone_statistics_included():
    tuned = tune(make_task(shape=(3, 8, 8)), convolutional(0), method="fine-tune", epochs=2, freeze="all")
    start = weights_of(convolutional(0))
    for name, value in weights_of(tuned.backbone).items():
        assert torch.equal(value, start[name]), name


def test_freezing_up_to_a_layer(task):
    tuned = tune(task, perceptron(0), method="fine-tune", epochs=1, batch_size=16, freeze="body.0", keep_best=False)
    start, end = weights_of(perceptron(0)), weights_of(tuned.backbone)
    assert torch.equal(start["body.0.weight"], end["body.0.weight"])
    assert not torch.equal(start["body.3.weight"], end["body.3.weight"])
    with pytest.raises(InputError, match=r"Did you mean 'body.0'"):
        freeze(perceptron(0).module, "body.00")


def test_lora_trains_adapters_alone_and_merges_them(task):
    prepare_torchvision()
    pytest.importorskip("peft")
    tuned = tune(task, perceptron(0), method="fine-tune", epochs=2, batch_size=16, lora_rank=2, keep_best=False)
    start, end = weights_of(perceptron(0)), weights_of(tuned.backbone)
    assert set(start) == set(end)
    change = (end["body.3.weight"] - start["body.3.weight"]).double()
    assert 0 < torch.linalg.matrix_rank(change, rtol=1e-4) <= 2
    assert torch.equal(start["body.3.bias"], end["body.3.bias"])


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_a_head_from_the_posterior_starts_where_the_probe_ends(kind):
    task = make_task(kind, n=200)
    cold, warm = (
        tune(task, perceptron(0), method="fine-tune", steps=1, learning_rate=1e-9, head_init=start).curves[0]["loss"]
        for start in ("random", "posterior")
    )
    assert warm < 0.9 * cold


def test_companions_combine(task):
    tuned = tune(
        task,
        perceptron(0),
        [perceptron(1)],
        method="b-tuning",
        trade_off=1.0,
        epochs=1,
        l2_sp=0.1,
        bss=0.01,
        head_init="posterior",
        freeze="body.0",
    )
    assert set(tuned.curves[0]["parts"]) == {"task", "teachers", "l2-sp", "bss"}
    assert np.isfinite(tuned.metric().value)


def test_unused_source_heads_are_not_trained(task):
    tuned = tune(task, perceptron(0), method="fine-tune", epochs=1, weight_decay=0.5, keep_best=False)
    assert torch.equal(weights_of(tuned.backbone)["head.weight"], weights_of(perceptron(0))["head.weight"])
    assert isinstance(tuned.head, nn.Linear)


def test_norm_statistics_can_stay_while_their_weights_learn():
    tuned = tune(
        make_task(shape=(3, 8, 8)),
        convolutional(0),
        method="fine-tune",
        epochs=1,
        frozen_norm_statistics=True,
        keep_best=False,
    )
    start, end = weights_of(convolutional(0)), weights_of(tuned.backbone)
    assert torch.equal(start["body.1.running_mean"], end["body.1.running_mean"])
    assert not torch.equal(start["body.1.weight"], end["body.1.weight"])


def test_the_average_of_the_weights_is_that_of_a_loop_by_hand(task):
    """Weights after k steps come from a run of k steps, which is another one for each k."""
    options = {"method": "fine-tune", "batch_size": 16, "schedule": "constant", "keep_best": False}
    options |= {"learning_rate": 1e-2, "bootstrap_resamples": 5}
    average = weights_of(perceptron(0, norm=True))
    for step in range(6):
        after = weights_of(tune(task, perceptron(0, norm=True), steps=step + 1, **options).backbone)
        decay = min(0.6, (1 + step) / (10 + step))
        average = {
            name: decay * value + (1 - decay) * after[name] if value.is_floating_point() else after[name]
            for name, value in average.items()
        }
    found = weights_of(tune(task, perceptron(0, norm=True), steps=6, ema=0.6, **options).backbone)
    for name, value in average.items():
        torch.testing.assert_close(found[name], value, msg=name)
    assert not torch.equal(after["body.0.weight"], found["body.0.weight"])


def test_what_is_validated_and_kept_is_the_average(task):
    options = {"method": "fine-tune", "batch_size": 16, "epochs": 3, "learning_rate": 1e-2, "ema": 0.9}
    kept = tune(task, perceptron(0), **options)
    best = max(line["metrics"]["accuracy"] for line in kept.curves if line["event"] == "validation")
    assert kept.metric("validation").value == pytest.approx(best)


def test_a_run_with_an_average_resumes_to_the_same_result(task, tmp_path):
    class Killed(BaseException):
        pass

    def killer(event):
        if getattr(event, "step", 0) >= 12:
            raise Killed

    options = {"method": "fine-tune", "batch_size": 16, "epochs": 4, "ema": 0.9, "learning_rate": 1e-2}
    whole = tune(task, perceptron(0), **options)
    with pytest.raises(Killed):
        tune(task, perceptron(0), out=tmp_path, observer=killer, **options)
    resumed = tune(task, perceptron(0), out=tmp_path, resume=True, **options)
    for name, value in weights_of(whole.backbone).items():
        assert torch.equal(value, weights_of(resumed.backbone)[name]), name


ONE_STEP = {"method": "fine-tune", "steps": 1, "batch_size": 96, "keep_best": False, "bootstrap_resamples": 5}


def mixed_by_hand(task, alpha):
    """Inputs and soft targets of the first step, and the network before it."""
    samples = BatchPlan(96, 96, 0).batch(0)
    generator = np.random.default_rng(mixed_seed(0, 11, 0))
    weight, order = generator.beta(alpha, alpha), generator.permutation(96)
    inputs = np.asarray(task.train.inputs)[samples]
    targets = np.asarray(task.train.targets)[samples]
    targets = np.eye(3)[targets] if task.kind == "classification" else targets
    return tuple(torch.as_tensor(weight * a + (1 - weight) * a[order]) for a in (inputs, targets))


def start(task):
    tuned = tune(task, perceptron(0), learning_rate=1e-15, **ONE_STEP)
    return lambda inputs: tuned.head(tuned.backbone.module.body(inputs.float())).double()


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_mixup_is_the_loss_of_mixed_inputs_and_soft_targets(kind):
    task = make_task(kind)
    tuned = tune(task, perceptron(0), mixup=0.4, learning_rate=1e-3, **ONE_STEP)
    inputs, targets = mixed_by_hand(task, 0.4)
    outputs = start(task)(inputs)
    expected = (
        nn.functional.cross_entropy(outputs, targets)
        if kind == "classification"
        else nn.functional.binary_cross_entropy_with_logits(outputs, targets)
    )
    assert tuned.curves[0]["parts"]["task"] == pytest.approx(float(expected), rel=1e-5)


def test_mixup_of_numbers_has_the_gradient_of_mixed_numbers():
    task = make_task("regression")
    options = {"optimizer": "sgd", "learning_rate": 1e-2, "momentum": 0.0, "weight_decay": 0.0, **ONE_STEP}
    tuned = tune(task, perceptron(0), mixup=0.4, **options)
    inputs, targets = mixed_by_hand(task, 0.4)
    head = nn.Linear(16, 3).double()
    nn.init.zeros_(head.weight), nn.init.zeros_(head.bias)
    features = perceptron(0).module.body(inputs.float()).detach().double()
    wanted = (targets - torch.as_tensor(tuned.loss.offset)) / torch.as_tensor(tuned.loss.scale)
    nn.functional.mse_loss(head(features), wanted).backward()
    np.testing.assert_allclose(tuned.head.weight.detach().numpy(), -0.1 * head.weight.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("method", "answers"),
    [*product(["b-tuning", "logit-kd", "distill-weighted", "kd"], ["cached", "live"]), ("zoo", "cached")],
)
def test_mixup_goes_with_every_method(task, method, answers):
    options = {"mixup": 0.2, "epochs": 1, "batch_size": 16, "teacher_targets": answers, "micro_batch_size": 5}
    tuned = tune(task, perceptron(0), [perceptron(1)], method, **options)
    assert all(np.isfinite(line["loss"]) for line in tuned.curves if line["event"] == "step")


def test_eight_bit_images_stay_eight_bit():
    from hubscout.tuning.batches import Share
    from hubscout.tuning.companions import mix

    pixels = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8)
    mixed = mix(Share(torch.arange(6), {"model": {"pixels": pixels}}), 0.4, 0)
    found, partners = mixed.views["model"]["pixels"], pixels[mixed.partners]
    expected = mixed.weight * pixels.double() + (1 - mixed.weight) * partners.double()
    assert found.dtype == torch.uint8
    assert float((found.double() - expected).abs().max()) <= 0.51


def test_texts_cannot_be_mixed_and_numbers_not_smoothed():
    split = Split(["a", "b"] * 4, np.array([0, 1] * 4))
    texts = Task(
        "texts", "classification", "text", ("x", "y"), dict.fromkeys(("train", "validation", "test"), split), "t"
    )
    with pytest.raises(InputError, match=r"mixup=0.2 adds two inputs.*'text'.*image and array"):
        check_mixable(texts, 0.2)
    with pytest.raises(InputError, match=r"label_smoothing=0.1.*numbers"):
        tune(make_task("regression"), perceptron(0), label_smoothing=0.1, epochs=1)
    with pytest.raises(InputError, match=r"ema=1.5"):
        tune(make_task(), perceptron(0), ema=1.5)


def test_smoothed_labels_are_the_formula_by_hand():
    task = make_task("multilabel")
    tuned = tune(task, perceptron(0), label_smoothing=0.2, learning_rate=1e-3, **ONE_STEP)
    outputs = start(task)(torch.as_tensor(np.asarray(task.train.inputs)))
    targets = torch.as_tensor(np.asarray(task.train.targets)).double() * 0.8 + 0.1
    expected = nn.functional.binary_cross_entropy_with_logits(outputs, targets)
    assert tuned.curves[0]["parts"]["task"] == pytest.approx(float(expected), rel=1e-5)
