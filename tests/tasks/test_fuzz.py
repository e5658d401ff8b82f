"""Whatever stands in a file, only errors of our own come out, and what is read is whole."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hubscout.errors import HubscoutError
from hubscout.tasks import Task
from hubscout.tasks.conll import is_iob1, to_iob2

cells = st.one_of(
    st.text(max_size=8), st.sampled_from(["train", "test", "1", "0", "2.5", "nan", "inf", "", '"', ",", "a;b"])
)
headers = st.sampled_from(["text", "label", "split", "image", "sentence1", "sentence2", "tokens", "y", "id"])
values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.text(max_size=3), max_size=3)
)


def check(task: Task) -> None:
    assert set(task.splits) == {"train", "validation", "test"}
    for part in task.splits.values():
        assert len(part.inputs) == len(part.targets)
        if task.kind == "classification" and len(part):
            assert part.targets.max() < len(task.target_names)
        if task.kind == "regression":
            assert np.isfinite(part.targets).all()
    if task.source is not None:
        assert Task.reopen(json.loads(json.dumps(task.source))) == task


def open_bytes(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        with contextlib.suppress(HubscoutError):
            check(Task.from_conll(path) if name.endswith(".txt") else Task.from_table(path))


@settings(max_examples=150, deadline=None)
@given(st.lists(headers, min_size=1, max_size=4), st.lists(st.lists(cells, max_size=4), max_size=8))
def test_delimited_text(names: list[str], rows: list[list[str]]) -> None:
    text = "\n".join(",".join(row) for row in [names, *rows])
    open_bytes("a.csv", text.encode("utf-8", "replace"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(headers, values, max_size=4), max_size=8))
def test_json_lines(rows: list[dict[str, object]]) -> None:
    open_bytes("a.jsonl", "\n".join(map(json.dumps, rows)).encode("utf-8"))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(["a.csv", "a.jsonl", "a.parquet", "a.csv.gz", "a.txt", "a.json"]))
def test_any_bytes(data: bytes, name: str) -> None:
    open_bytes(name, data)


anything = st.one_of(
    values, st.binary(max_size=2), st.lists(values, max_size=2), st.tuples(st.text(max_size=2), st.text(max_size=2))
)
kinds = st.sampled_from([None, "classification", "regression", "multilabel", "tagging"])
modalities = st.sampled_from([None, "text", "image", "tokens", "array", "audio", "text-pair"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(anything, anything), max_size=8), kinds, modalities)
def test_lists_in_memory(rows: list[tuple[object, object]], kind: str | None, modality: str | None) -> None:
    inputs, targets = [row[0] for row in rows], [row[1] for row in rows]
    with contextlib.suppress(HubscoutError):
        check(Task.from_arrays(inputs, targets, kind=kind, modality=modality))


tags = st.sampled_from(["O", "B-PER", "I-PER", "I-LOC", "B-", "-", "X", "\x85", " "])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.text(max_size=3), tags), max_size=4), max_size=6))
def test_token_files(sentences: list[list[tuple[str, str]]]) -> None:
    text = "\n\n".join("\n".join(f"{word} {tag}" for word, tag in sentence) for sentence in sentences)
    open_bytes("a.txt", text.encode("utf-8", "replace"))


@given(st.lists(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"]), max_size=6), max_size=4))
def test_after_the_turn_every_entity_starts_with_b(rows: list[list[str]]) -> None:
    turned = [to_iob2(row) for row in rows]
    assert not is_iob1(turned)
    assert [[tag[1:] for tag in row] for row in turned] == [[tag[1:] for tag in row] for row in rows]
    for row in turned:
        for before, tag in zip(["O", *row], row, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:]
