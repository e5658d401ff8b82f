from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hubscout.evidence import maximize_evidence
from hubscout.features import FeatureCache, extract, graph_export
from hubscout.features import accelerated as accelerated_module
from hubscout.features.accelerated import _CHECKED_SAMPLES
from hubscout.features.options import installed_runtimes
from hubscout.hubs import Batch, Output, load, prepare_torchvision
from hubscout.tasks import Split, Task

pytest.importorskip("onnxruntime")
RUNTIMES = ["onnxruntime", "openvino"]

WORDS = ["a", "b", "cat", "sat", "on", "the", "mat", "dog", "ran", "far"]


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    if request.param not in installed_runtimes():
        pytest.skip(f"{request.param} is not installed")
    return request.param


def accelerated(backbone: Any, task: Task, runtime: str = "onnxruntime", **options: Any) -> Any:
    return extract(backbone, task, device="cpu", accelerate=runtime, **options)


def assert_same(one: Any, other: Any) -> None:
    assert one.layers == other.layers
    for layer in one.layers:
        np.testing.assert_allclose(one.features(layer), other.features(layer), rtol=1e-3, atol=1e-5)
    scores = [maximize_evidence(result.statistics[""]).score for result in (one, other)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_features_logits_and_layers_are_those_of_torch(
    make_backbone: Any, make_image_task: Any, kind: str, runtime: str
) -> None:
    task = make_image_task(kind=kind)
    exact = extract(make_backbone(), task, device="cpu", accelerate="off", layers="all")
    backbone = make_backbone()
    found = accelerated(backbone, task, runtime, layers="all")
    assert (exact.backend, found.backend) == ("torch", runtime)
    assert found.messages == ()
    assert_same(found, exact)
    np.testing.assert_allclose(found.logits, exact.logits, rtol=1e-3, atol=1e-5)
    assert sum(backbone.batches) < 2 * _CHECKED_SAMPLES, "torch runs for the export and the check alone"


def test_layers_may_be_called_as_outputs_are(make_backbone: Any, task: Task, runtime: str) -> None:
    class Named(make_backbone):  # type: ignore[misc]
        layer_names = ("features", "logits")

        def forward(self, batch: Batch, layers: Any = ()) -> Output:
            found = super().forward(batch, ("stem", "body"))
            tapped = {"features": found.layers["stem"], "logits": found.features * 2}
            return Output(found.features, found.logits, {name: tapped[name] for name in layers})

    found = accelerated(Named(), task, runtime, layers="all")
    assert found.backend == runtime, found.messages
    assert_same(found, extract(Named(), task, device="cpu", accelerate="off", layers="all"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    prepare_torchvision()
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=24, **sizes)).save_pretrained(folder)
    return f"file:{folder}"


def text_task(modality: str, lengths: Any = (3, 20), n: int = 60) -> Task:
    rng = np.random.default_rng(0)
    rows = [[WORDS[i] for i in rng.integers(0, len(WORDS), rng.integers(*lengths))] for _ in range(n)]
    inputs: list[Any] = {
        "text": [" ".join(row) for row in rows],
        "text-pair": [(" ".join(row), " ".join(row[:3])) for row in rows],
        "tokens": rows,
    }[modality]
    kind, targets = "classification", np.array([len(row[0]) % 3 for row in rows])
    if modality == "tokens":
        kind, targets = "tagging", [np.array([len(word) % 3 for word in row]) for row in rows]  # type: ignore[assignment]
    return Task("texts", kind, modality, ("0", "1", "2"), {"train": Split(inputs, targets)}, f"{modality}{lengths}")


@pytest.mark.parametrize("options", ["", "?pairs=siamese", "?pooling=last", "?pooling=max", "?words=mean"])
@pytest.mark.parametrize("modality", ["text", "text-pair", "tokens"])
def test_texts_of_all_lengths_give_the_features_of_torch(bert: str, modality: str, options: str, runtime: str) -> None:
    task = text_task(modality)
    exact, found = (
        extract(load(bert + options), task, device="cpu", batch_size=7, layers=("all", "mean"), accelerate=accelerate)
        for accelerate in ("off", runtime)
    )
    assert found.backend == runtime, found.messages
    assert_same(found, exact)


def test_texts_that_are_all_as_long_in_the_check_may_be_shorter_later(bert: str, runtime: str) -> None:
    task = text_task("text", lengths=(20, 21), n=200)
    inputs = list(task.train.inputs)
    inputs[1] = "cat sat"
    mixed = Task(
        "texts", "classification", "text", task.target_names, {"train": Split(inputs, task.train.targets)}, "m"
    )
    exact = extract(load(bert), mixed, device="cpu", batch_size=1, accelerate="off")
    found = accelerated(load(bert), mixed, runtime, batch_size=1)
    assert found.backend == runtime, found.messages
    assert_same(found, exact)


class TestFallingBack:
    def assert_falls_back(
        self, backbone: Any, task: Task, why: str, runtime: str = "onnxruntime", **options: Any
    ) -> None:
        found = accelerated(backbone, task, runtime, **options)
        assert found.backend == "torch"
        (said,) = found.messages
        assert said.startswith(f"going on with torch, since {runtime} does not do for this model: ")
        assert why in said
        np.testing.assert_array_equal(
            found.features(), extract(backbone, task, device="cpu", accelerate="off", **options).features()
        )

    def test_a_graph_that_computes_something_else(self, make_backbone: Any, task: Task, runtime: str) -> None:
        class ByItsBatch(make_backbone):  # type: ignore[misc]
            def forward(self, batch: Batch, layers: Any = ()) -> Output:
                largest = float(batch["pixels"].max())  # a constant of the graph
                return Output(super().forward(batch, layers).features * largest)

        backbone = ByItsBatch()
        self.assert_falls_back(backbone, task, "it changes the features by", runtime)
        assert accelerated(backbone, task, runtime).messages == (), "said once"

    def test_a_graph_for_one_batch_size(self, make_backbone: Any, task: Task) -> None:
        class OfOneSize(make_backbone):  # type: ignore[misc]
            def forward(self, batch: Batch, layers: Any = ()) -> Output:
                rows = len(batch["pixels"].tolist())
                return Output(super().forward(batch, layers).features.expand(rows, 12))

        self.assert_falls_back(OfOneSize(), task, "it fails")

    def test_a_network_that_cannot_be_exported(
        self, make_backbone: Any, task: Task, capfd: pytest.CaptureFixture[str]
    ) -> None:
        class Unknown(make_backbone):  # type: ignore[misc]
            def forward(self, batch: Batch, layers: Any = ()) -> Output:
                return Output(torch.special.bessel_j0(super().forward(batch, layers).features))

        self.assert_falls_back(Unknown(), task, "cannot be exported")
        assert capfd.readouterr() == ("", ""), "the exporter prints the whole graph"

    def test_a_graph_that_the_runtime_does_not_take(
        self, make_backbone: Any, task: Task, runtime: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise RuntimeError("no such operator")

        monkeypatch.setitem(accelerated_module.SESSIONS, runtime, refuse)
        self.assert_falls_back(make_backbone(), task, "the exported network cannot be opened (no such", runtime)

    def test_a_sample_of_another_shape_in_the_middle(
        self, make_backbone: Any, make_image_task: Any, runtime: str
    ) -> None:
        images = list(make_image_task(100).train.inputs)
        images[1] = np.ones((3, 10, 10), dtype=np.float32)  # the check takes samples far from it
        why = {"onnxruntime": "Got invalid dimensions", "openvino": "RuntimeError"}[runtime]
        self.assert_falls_back(make_backbone(), make_image_task(100, inputs=images), why, runtime, batch_size=1)

    def test_a_model_that_torch_cannot_run_either_fails_as_it_does_there(self, make_backbone: Any, task: Task) -> None:
        class Broken(make_backbone):  # type: ignore[misc]
            def forward(self, batch: Batch, layers: Any = ()) -> Output:
                raise RuntimeError("no such kernel")

        with pytest.raises(Exception, match="The forward pass fails: no such kernel"):
            accelerated(Broken(), task)


class TestCache:
    @pytest.fixture
    def cache(self, tmp_path: Path) -> FeatureCache:
        return FeatureCache(tmp_path)

    def test_features_of_the_two_do_not_mix(self, make_backbone: Any, task: Task, cache: FeatureCache) -> None:
        accelerated(make_backbone(), task, cache=cache, shards=[0])
        backbone = make_backbone()
        exact = extract(backbone, task, device="cpu", accelerate="off", cache=cache)
        assert sum(backbone.batches) >= 700
        found = accelerated(make_backbone(), task, cache=cache)
        assert not np.array_equal(found.features(), exact.features())
        for accelerate, made in (("off", exact), ("onnxruntime", found)):
            again = extract(make_backbone(), task, device="cpu", accelerate=accelerate, cache=cache)
            assert again.from_cache
            assert again.backend == made.backend
            np.testing.assert_array_equal(again.features(), made.features())

    def test_a_cache_folder_says_what_ran_the_network(
        self, make_backbone: Any, task: Task, cache: FeatureCache, tmp_path: Path
    ) -> None:
        accelerated(make_backbone(), task, cache=cache)
        described = [path.read_text() for path in tmp_path.glob("*/about.json")]
        assert sum('"backend": "onnxruntime"' in text for text in described) == 1
        assert sorted(entry.layer for entry in cache.entries()) == ["", "graph"]

    def test_the_graph_is_exported_once(
        self, make_backbone: Any, task: Task, cache: FeatureCache, monkeypatch: Any
    ) -> None:
        exported = []

        def export(*arguments: Any, **options: Any) -> None:
            exported.append(arguments)
            graph_export.export(*arguments, **options)

        monkeypatch.setattr(accelerated_module, "export", export)
        for options in ({}, {"indices": range(300)}):
            backbone = make_backbone()
            accelerated(backbone, task, cache=cache, **options)
            assert backbone.batches == [2, 4, 3, 3, 3, 3]  # the probe, and the check by few samples at a time
        assert len(exported) == 1

    @pytest.mark.parametrize("content", [b"", b"no graph"])
    def test_a_broken_graph_is_made_again(
        self, make_backbone: Any, task: Task, cache: FeatureCache, tmp_path: Path, content: bytes
    ) -> None:
        accelerated(make_backbone(), task, cache=cache)
        (graph,) = tmp_path.glob("*/graph.onnx")
        whole = graph.read_bytes()
        graph.write_bytes(content)
        found = accelerated(make_backbone(), task, cache=cache, indices=range(300))
        assert found.backend == "onnxruntime"
        assert graph.read_bytes() == whole

    def test_the_graph_of_other_weights_is_not_taken(
        self, make_backbone: Any, task: Task, cache: FeatureCache, tmp_path: Path
    ) -> None:
        accelerated(make_backbone(seed=0), task, cache=cache)
        found = accelerated(make_backbone(seed=1), task, cache=cache)
        assert found.backend == "onnxruntime"
        assert_same(found, extract(make_backbone(seed=1), task, device="cpu", accelerate="off"))
        assert len(list(tmp_path.glob("*/graph.onnx"))) == 2

    def test_weights_that_change_in_memory_change_the_graph(self, backbone: Any, task: Task) -> None:
        before = accelerated(backbone, task)
        with torch.no_grad():
            backbone.module["body"].weight.mul_(2)
        after = accelerated(backbone, task)
        assert after.backend == "onnxruntime"
        assert not np.allclose(before.features(), after.features())


def test_images_go_through_a_few_at_a_time(make_backbone: Any, make_image_task: Any, monkeypatch: Any) -> None:
    """However large the batch is: memory is that of the pieces, and so are the features."""
    task, sizes = make_image_task(n=40), []
    whole = extract(make_backbone(), task, device="cpu", batch_size=40, accelerate="off")
    monkeypatch.setattr(accelerated_module, "_IMAGES_AT_ONCE", 6)

    class Watched(accelerated_module.Graph):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            run = self._session.run
            self._session.run = lambda inputs: (sizes.append(len(inputs["pixels"])), run(inputs))[1]  # type: ignore[method-assign]

    monkeypatch.setattr(accelerated_module, "Graph", Watched)
    found = accelerated(make_backbone(), task, batch_size=40)
    assert found.backend == "onnxruntime", found.messages
    assert max(sizes) == 6
    assert sizes[-7:] == [6, 6, 6, 6, 6, 6, 4]
    np.testing.assert_allclose(found.features(), whole.features(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.logits, whole.logits, rtol=1e-4, atol=1e-5)
