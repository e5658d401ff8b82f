from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from hubscout.errors import CorruptCacheError, InputError, TaskError
from hubscout.features import FeatureCache, extract
from hubscout.features.feature_keys import key
from hubscout.features.storage import ABOUT, About, ShardRecord
from hubscout.tasks import Split, Task

CONFTEST = Path(__file__).with_name("conftest.py")
PROBED = 2
"""Samples that go through a model first, to see whether what is in the cache is its own."""


@pytest.fixture
def cache(tmp_path: Path) -> FeatureCache:
    return FeatureCache(tmp_path / "cache")


def shard_files(cache: FeatureCache) -> list[Path]:
    return sorted(cache.root.glob("*/*.safetensors"))


def run_script(body: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A second process, with the backbones and tasks of conftest.py at hand."""
    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("parts", {str(CONFTEST)!r})
parts = importlib.util.module_from_spec(spec); spec.loader.exec_module(parts)
from hubscout.features import FeatureCache, extract
{textwrap.dedent(body)}
"""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def test_a_second_run_reads_what_the_first_wrote(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    first = extract(make_backbone(), task, device="cpu", cache=cache, layers=("stem",))
    backbone = make_backbone()
    second = extract(backbone, task, device="cpu", cache=cache, layers=("stem",))
    assert not first.from_cache
    assert second.from_cache
    assert sum(backbone.batches) == PROBED
    for layer in ("", "stem"):
        np.testing.assert_array_equal(second.features(layer), first.features(layer))
        np.testing.assert_allclose(
            second.statistics[layer].total().gram, first.statistics[layer].total().gram, rtol=1e-12
        )
    np.testing.assert_array_equal(second.logits, first.logits)
    assert second.samples_per_second == first.samples_per_second > 0


def test_a_cached_run_gives_what_an_uncached_one_gives(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    plain = extract(make_backbone(), task, device="cpu")
    cached = extract(make_backbone(), task, device="cpu", cache=cache)
    np.testing.assert_array_equal(plain.features(), cached.features())
    np.testing.assert_allclose(plain.statistics[""].total().gram, cached.statistics[""].total().gram, rtol=1e-12)


def test_another_layer_adds_a_folder_and_keeps_the_first(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    extract(make_backbone(), task, device="cpu", cache=cache)
    before = {path: path.read_bytes() for path in shard_files(cache)}
    backbone = make_backbone()
    more = extract(backbone, task, device="cpu", cache=cache, layers=("stem",))
    assert sum(backbone.batches) == 700 + PROBED
    assert more.features("stem").shape == (700, 8)
    assert len(shard_files(cache)) == 2 * len(before)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    "change",
    ["weights", "one number", "preprocessing", "task", "precision", "identifier", "indices"],
)
def test_whatever_features_depend_on_makes_a_new_entry(
    make_backbone: Any, make_image_task: Callable[..., Task], cache: FeatureCache, change: str
) -> None:
    task = make_image_task(60)
    extract(make_backbone(), task, device="cpu", cache=cache)
    backbone, options = make_backbone(), {}
    if change == "weights":
        backbone = make_backbone(seed=1)
    elif change == "one number":
        with torch.no_grad():
            backbone.module["body"].bias[0] += 1e-6
    elif change == "preprocessing":
        backbone.preprocessing.key = "other"
    elif change == "task":
        task = make_image_task(60, seed=1)
    elif change == "precision":
        options = {"precision": "bfloat16"}
    elif change == "identifier":
        backbone.card = replace(backbone.card, identifier="test/conv?pooling=max")
    elif change == "indices":
        options = {"indices": [3, 1]}
    assert not extract(backbone, task, device="cpu", cache=cache, **options).from_cache
    assert len(cache.entries()) == 2


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "said"),
    [(damage_cut, "has 0.0 MB of 0.0 MB"), (damage_flip, "was altered"), (Path.unlink, "cannot be read")],
)
def test_a_broken_file_is_found_and_made_again(
    make_backbone: Any, task: Task, cache: FeatureCache, damage: Callable[[Path], None], said: str
) -> None:
    whole = extract(make_backbone(), task, device="cpu", cache=cache)
    features = whole.features()
    damage(shard_files(cache)[1])
    backbone = make_backbone()
    again = extract(backbone, task, device="cpu", cache=cache)
    assert sum(backbone.batches) == 256 + PROBED
    np.testing.assert_array_equal(again.features(), features)
    assert again.statistics[""].n == 700
    assert len(again.messages) == 1
    assert "/00001-" in again.messages[0]
    assert said in again.messages[0]
    assert extract(make_backbone(), task, device="cpu", cache=cache).from_cache


def test_a_broken_description_costs_no_features(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    extract(make_backbone(), task, device="cpu", cache=cache)
    damage_cut(next(cache.root.glob(f"*/{ABOUT}")))
    assert cache.entries()[0].model == ""
    assert extract(make_backbone(), task, device="cpu", cache=cache).from_cache
    assert [(entry.model, entry.rows) for entry in cache.entries()] == [("test/conv", 700)]


def test_a_broken_record_costs_its_shard_alone(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    features = extract(make_backbone(), task, device="cpu", cache=cache).features()
    damage_cut(next(cache.root.glob("*/00001.json")))
    backbone = make_backbone()
    again = extract(backbone, task, device="cpu", cache=cache)
    assert sum(backbone.batches) == 256 + PROBED
    np.testing.assert_array_equal(again.features(), features)
    assert extract(make_backbone(), task, device="cpu", cache=cache).from_cache


def test_a_record_may_not_lead_out_of_its_folder(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    extract(make_backbone(), task, device="cpu", cache=cache)
    record = next(cache.root.glob("*/00000.json"))
    content = {**json.loads(record.read_text()), "file": "../../secret"}
    record.write_text(json.dumps(content))
    with pytest.raises(CorruptCacheError, match="leads out"):
        ShardRecord.decode(record.read_bytes())
    assert not extract(make_backbone(), task, device="cpu", cache=cache).from_cache


def test_what_is_replaced_leaves_no_file_behind(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    extract(make_backbone(), task, device="cpu", cache=cache)
    before = shard_files(cache)
    other = before[1].with_name("00001-0123456789ab.safetensors")  # as of a run that was killed before its record
    other.write_bytes(b"half a shard")
    before[1].with_name("00001.json").unlink()
    extract(make_backbone(), task, device="cpu", cache=cache)
    assert shard_files(cache) == before


def test_a_file_that_vanishes_after_the_run_is_a_clear_error(
    make_backbone: Any, task: Task, cache: FeatureCache
) -> None:
    result = extract(make_backbone(), task, device="cpu", cache=cache)
    shard_files(cache)[0].unlink()
    with pytest.raises(CorruptCacheError, match="removed or altered"):
        result.features()


def test_an_interrupted_run_goes_on_after_its_last_shard(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    class Interrupted(make_backbone):  # type: ignore[misc]
        def forward(self, batch: Any, layers: Any = ()) -> Any:
            if sum(self.batches) >= 600:
                raise KeyboardInterrupt
            return super().forward(batch, layers)

    with pytest.raises(KeyboardInterrupt):
        extract(Interrupted(), task, device="cpu", cache=cache, batch_size=50)
    backbone = make_backbone()
    result = extract(backbone, task, device="cpu", cache=cache)
    assert sum(backbone.batches) == 700 - 512 + PROBED
    np.testing.assert_allclose(result.features(), extract(make_backbone(), task, device="cpu").features(), atol=1e-6)


def test_a_killed_process_loses_no_finished_shard(
    make_backbone: Any, make_image_task: Any, cache: FeatureCache
) -> None:
    process = run_script(
        """
        import time
        class Slow(parts.ConvBackbone):
            def forward(self, batch, layers=()):
                time.sleep(0.05)
                return super().forward(batch, layers)
        extract(Slow(), parts.image_task(2000), device="cpu", cache=FeatureCache(sys.argv[1]), batch_size=64)
        """,
        cache.root,
    )
    deadline = time.monotonic() + 200
    while sum(entry.rows for entry in cache.entries()) < 512 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = sum(entry.rows for entry in cache.entries()) // 256
    assert 2 <= finished < 8
    task, backbone = make_image_task(2000), make_backbone()
    result = extract(backbone, task, device="cpu", cache=cache)
    assert sum(backbone.batches) == 2000 - 256 * finished + PROBED
    np.testing.assert_allclose(result.features(), extract(make_backbone(), task, device="cpu").features(), atol=1e-6)


def test_two_processes_on_one_cache_do_the_work_once(
    make_backbone: Any, make_image_task: Any, cache: FeatureCache
) -> None:
    body = """
        import time
        class Slow(parts.ConvBackbone):
            def forward(self, batch, layers=()):
                time.sleep(0.1)
                return super().forward(batch, layers)
        backbone = Slow()
        result = extract(backbone, parts.image_task(1000), device="cpu", cache=FeatureCache(sys.argv[1]), batch_size=64)
        print(sum(backbone.batches), result.n, float(result.features().sum()), *result.messages, sep="|")
        """
    both = [run_script(body, cache.root) for _ in range(2)]
    outputs = [finish(process).strip().split("|") for process in both]
    assert sorted(int(output[0]) for output in outputs) == [PROBED, 1000 + PROBED]
    assert {output[1] for output in outputs} == {"1000"}
    assert outputs[0][2] == outputs[1][2]
    expected = extract(make_backbone(), make_image_task(1000), device="cpu").features()
    assert float(outputs[0][2]) == pytest.approx(float(expected.sum()), rel=1e-4)


def test_a_full_disk_is_said_and_the_run_goes_on(make_backbone: Any, make_image_task: Any, cache: FeatureCache) -> None:
    """A limit on the size of files stands for the disk: shards do not fit, small manifests do."""
    process = run_script(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))
        result = extract(parts.ConvBackbone(), parts.image_task(1000), device="cpu", cache=FeatureCache(sys.argv[1]))
        print(result.n, result.statistics[""].n, float(result.features().sum()), *result.messages, sep="|")
        """,
        cache.root,
    )
    n, counted, total, *messages = finish(process).strip().split("|")
    expected = extract(make_backbone(), make_image_task(1000), device="cpu").features()
    assert (n, counted) == ("1000", "1000")
    assert float(total) == pytest.approx(float(expected.sum()), rel=1e-5)
    assert len(messages) == 1
    assert messages[0].startswith("going on without the cache: no room for")
    assert "free" in messages[0]
    assert "HUBSCOUT_CACHE" in messages[0]
    # Nothing half-written is left.
    assert not list(cache.root.rglob("*.tmp"))
    assert shard_files(cache) == []


def test_a_cache_that_cannot_be_made_does_not_end_the_run(make_backbone: Any, task: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = extract(make_backbone(), task, device="cpu", cache=FeatureCache(tmp_path / "file" / "cache"))
    assert result.features().shape == (700, 12)
    assert "going on without the cache: cannot make the cache folder" in result.messages[0]


def test_samples_left_out_stay_left_out(make_backbone: Any, make_image_task: Any, cache: FeatureCache) -> None:
    class Broken(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            if index == 7:
                raise OSError("truncated")
            return super().__getitem__(index)

    task = make_image_task(300)
    bad = replace(task, splits={"train": Split(Broken(task.train.inputs), task.train.targets)})
    first = extract(make_backbone(), bad, device="cpu", cache=cache, skip_bad=True)
    second = extract(make_backbone(), bad, device="cpu", cache=cache, skip_bad=True)
    assert second.from_cache
    assert first.skipped == second.skipped == (7,)
    np.testing.assert_array_equal(first.rows, second.rows)
    with pytest.raises(TaskError, match=r"Sample 7 .*skip_bad=True"):
        extract(make_backbone(), bad, device="cpu", cache=cache)


def test_workers_with_different_shards_fill_one_entry(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    for shards in ([2], [0, 1]):
        extract(make_backbone(), task, device="cpu", cache=cache, shards=shards)
    assert [entry.complete for entry in cache.entries()] == [True]
    assert extract(make_backbone(), task, device="cpu", cache=cache).from_cache


def test_tagging_is_cached_by_word(make_tagger: Any, make_tagging_task: Any, cache: FeatureCache) -> None:
    first = extract(make_tagger(), make_tagging_task(), device="cpu", cache=cache)
    second = extract(make_tagger(), make_tagging_task(), device="cpu", cache=cache)
    assert second.from_cache
    assert first.logits is second.logits is None
    np.testing.assert_array_equal(first.features(), second.features())
    assert len(second.features()) == second.n == len(second.targets)


def test_listing_and_removing(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    assert cache.entries() == []
    extract(make_backbone(), task, device="cpu", cache=cache, layers=("stem",))
    listed = cache.entries()
    assert [(entry.model, entry.task, entry.split, entry.rows, entry.complete) for entry in listed] == [
        ("test/conv", "noise", "train", 700, True)
    ] * 2
    assert {entry.layer for entry in listed} == {"", "stem"}
    assert cache.size_bytes() == sum(entry.bytes for entry in listed) > 700 * 20 * 4
    with pytest.raises(InputError, match="no entry"):
        cache.remove(["../elsewhere"])
    assert cache.remove([listed[0].name]) == []
    assert len(cache.entries()) == 1


def test_a_model_in_a_hidden_folder_is_listed(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    backbone = make_backbone()
    # The name of the entry is the end of the identifier, which here would start at the dot.
    identifier = "hf//home/somebody/.cache/sentence-encoders/paraphrase-MiniLM-L3-v2"
    assert identifier[-48:].startswith(".")
    backbone.card = dataclasses.replace(backbone.card, identifier=identifier)
    extract(backbone, task, device="cpu", cache=cache)
    assert [entry.model for entry in cache.entries()] == [identifier]
    assert cache.remove([cache.entries()[0].name]) == []


def test_what_a_run_is_using_is_not_removed(make_backbone: Any, task: Task, cache: FeatureCache) -> None:
    extract(make_backbone(), task, device="cpu", cache=cache)
    name = cache.entries()[0].name
    base = key(About.decode((cache.root / name / ABOUT).read_bytes()).description)
    with FileLock(cache.root / ".locks" / f"{base}.lock"):
        assert cache.remove([name]) == [name]
    assert len(cache.entries()) == 1


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUBSCOUT_CACHE", str(tmp_path))
    assert FeatureCache().root == tmp_path / "features"
    monkeypatch.setenv("HUBSCOUT_CACHE", "memory://bucket/")
    assert FeatureCache().place == "memory://bucket/features"
    monkeypatch.delenv("HUBSCOUT_CACHE")
    assert FeatureCache().root.parts[-2:] == ("hubscout", "features")


@contextlib.contextmanager
def not_writable(root: Path) -> Iterator[None]:
    """A folder that this process can read and not write, also where the tests run as root."""
    places = [root, *root.rglob("*")]
    modes = [place.stat().st_mode for place in places]
    for place in places:
        place.chmod(0o555 if place.is_dir() else 0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            (root / "probe").touch()
        yield
    finally:
        os.seteuid(user)
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder below which every user may read; those of pytest are for their owner."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("locks", [True, False])
def test_a_read_only_cache_is_read(make_image_task: Any, make_backbone: Any, open_folder: Path, locks: bool) -> None:
    cache = FeatureCache(open_folder / "cache")
    task, backbone = make_image_task(40), make_backbone()
    expected = extract(backbone, task, cache=cache, layers="all", device="cpu", shard_rows=16)
    if not locks:  # as a copy of a cache may have none
        shutil.rmtree(cache.root / ".locks")
        (cache.root / "CACHEDIR.TAG").unlink()
    with not_writable(cache.root):
        found = extract(backbone, task, cache=cache, layers="all", device="cpu", shard_rows=16)
        assert cache.entries()
    assert found.from_cache
    assert not found.messages
    np.testing.assert_array_equal(found.features(), expected.features())


def test_what_a_read_only_cache_lacks_is_computed(make_image_task: Any, make_backbone: Any, open_folder: Path) -> None:
    cache = FeatureCache(open_folder / "cache")
    task, backbone = make_image_task(40), make_backbone()
    expected = np.array(extract(backbone, task, cache=cache, device="cpu", shard_rows=16).features())
    shard_files(cache)[1].write_bytes(b"broken")
    with not_writable(cache.root):
        found = extract(backbone, task, cache=cache, device="cpu", shard_rows=16)
    assert not found.from_cache
    assert any("going on without the cache" in message for message in found.messages)
    np.testing.assert_allclose(found.features(), expected, rtol=1e-5)
