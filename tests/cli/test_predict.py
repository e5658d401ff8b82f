from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import wavfile

from hubscout.errors import InputError, TaskError
from hubscout.features import FeatureCache, extract
from hubscout.hubs import Identifier, prepare_torchvision
from hubscout.tasks import Split, Task
from hubscout.tasks.kinds import kind_of
from hubscout.tasks.prediction_inputs import Reader
from hubscout.tuning import Tuned, tune
from hubscout.tuning.batches import MODEL, StreamedBatches
from hubscout.tuning.decoded_batches import HeldBatches
from small_models import save_bert

QUICK = {"epochs": 1, "batch_size": 8, "bootstrap_resamples": 10, "workers": 0}
Pictures = dict[str, tuple[bytes, np.ndarray]]


@pytest.fixture(scope="module")
def picture_folder(odd_pictures: Pictures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every odd picture, in every split, in two classes."""
    root = tmp_path_factory.mktemp("odd")
    for split in ("train", "val", "test"):
        for number, (name, (data, _)) in enumerate(odd_pictures.items()):
            home = root / split / ("left", "right")[number % 2]
            home.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(data)
    return root


@pytest.fixture(scope="module")
def tuned(picture_folder: Path) -> Tuned:
    """A real timm architecture with random weights, at 32 pixels."""
    prepare_torchvision()
    import timm

    from hubscout.hubs.timm_hub import wrap

    torch.manual_seed(0)
    network = timm.create_model("mobilenetv2_035", num_classes=7)
    name = Identifier.parse("timm/mobilenetv2_035")
    backbone = wrap(network, name, image_options={"input_size": 32, "crop_pct": 1.0}, facts={})
    task = Task.from_image_folder(picture_folder)
    found = tune(task, backbone, method="fine-tune", learning_rate=1e-6, freeze="all", **QUICK)
    # Random weights answer nearly the same to every picture: spread the answers over the probabilities.
    with torch.no_grad():
        logits = np.log(found.predict(task.test.inputs).values)
        found.head.weight *= float(1 / (logits[:, 0] - logits[:, 1]).std())
        logits = np.log(found.predict(task.test.inputs).values)
        found.head.bias[0] -= float((logits[:, 0] - logits[:, 1]).mean())
    return found


@pytest.fixture(scope="module")
def model(tuned: Tuned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned.save(tmp_path_factory.mktemp("tuned") / "model")


def test_every_way_to_a_prediction_sees_the_same_pixels(
    tuned: Tuned, model: Path, picture_folder: Path, hubscout: Callable[..., Any], tmp_path: Path
) -> None:
    split = Task.from_image_folder(picture_folder).test
    files = [Path(split.inputs.encoded[row]) for row in range(len(split))]
    preprocessing = tuned.backbone.preprocessing

    def pixels(samples: Any) -> np.ndarray:
        return preprocessing.collate([preprocessing(sample) for sample in samples])["pixel_values"].numpy()

    expected = pixels(split.inputs)
    streamed = StreamedBatches(split.inputs, {MODEL: preprocessing}, seed=0, augment=False, workers=0)
    held = HeldBatches(
        split.inputs, {MODEL: preprocessing}, seed=0, augment=False, workers=1, device=torch.device("cpu")
    )
    for batches in (streamed, held):
        shares = list(batches.evaluate(np.arange(len(split)), 16))
        found = torch.cat([share.views[MODEL]["pixel_values"] for share in shares])
        np.testing.assert_array_equal(found.numpy(), expected)

    # Rank: the features of the tuned network over the task, and its head.
    task = Task.from_image_folder(picture_folder)
    features = extract(tuned.backbone, task, split="test", cache=FeatureCache(tmp_path), device="cpu").features()
    with torch.no_grad():
        ranked = tuned.loss.decode(tuned.head(torch.as_tensor(np.asarray(features), dtype=torch.float32)))
    again = Tuned.load(model)
    told = json.loads(hubscout("predict", model, picture_folder / "test", "--top", "2", "--json", "--quiet").stdout)
    assert [Path(record["input"]) for record in told] == files
    ways = {
        "rank": ranked,
        "task": tuned.predict(split.inputs).values,
        "paths": tuned.predict(files).values,
        "strings": tuned.predict([str(file) for file in files]).values,
        "bytes": tuned.predict([file.read_bytes() for file in files]).values,
        "Pillow": tuned.predict([Image.open(file) for file in files]).values,
        "arrays": tuned.predict([np.asarray(image) for image in split.inputs]).values,
        "saved": again.predict(files).values,
        "command": np.array([[record["probabilities"][name] for name in tuned.target_names] for record in told]),
    }
    reference = ways.pop("task")
    for way, found in ways.items():
        np.testing.assert_allclose(found, reference, atol=2e-6, err_msg=way)
    # What the test is about: opened by Pillow alone, many of these files are other pictures.
    plain = tuned.predict([np.asarray(Image.open(file).convert("RGB")) for file in files]).values
    assert (np.abs(plain - reference).max(axis=1) > 1e-3).sum() >= 15


def test_a_single_image_is_no_sequence(tuned: Tuned) -> None:
    for single in (Path("a.png"), "a.png", Image.new("RGB", (4, 4))):
        with pytest.raises(InputError, match="put it into a list"):
            tuned.predict(single)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="uint8"):
        tuned.predict([np.full((4, 4, 3), -1.0)])


def test_arrays_in_the_layout_of_torch_are_the_same_images(tuned: Tuned) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 24, 3), dtype=np.uint8)
    expected = tuned.predict(list(pixels)).values
    np.testing.assert_allclose(tuned.predict(pixels.transpose(0, 3, 1, 2) / 255).values, expected, atol=1e-6)


def test_a_folder_of_classes_is_measured(model: Path, picture_folder: Path, hubscout: Callable[..., Any]) -> None:
    result = hubscout("predict", model, picture_folder / "test")
    assert result.exit_code == 0, result.output
    assert re.search(r"accuracy \d+\.\d%", result.stdout)
    assert re.search(r"^Predicting for \d+ inputs with ", result.stderr, re.MULTILINE)
    for folder in (picture_folder / "test" / "left", next((picture_folder / "test" / "left").iterdir())):
        assert "accuracy" not in hubscout("predict", model, folder).stdout


def test_class_folders_are_seen_through_others(picture_folder: Path, tmp_path: Path) -> None:
    """As an archive has them, and as the task that the model was tuned on does."""
    shutil.copytree(picture_folder / "test", tmp_path / "archive" / "flowers")
    reader = Reader(("image",), kind_of("classification"), ("left", "right"), {})
    assert {*reader.read([tmp_path / "archive"]).labels} == {"left", "right"}
    assert {*reader.read([tmp_path]).labels} == {"left", "right"}
    assert {*Reader(("image",), kind_of("classification"), ("left", "up"), {}).read([tmp_path]).labels} == {None}


def test_bad_files_are_named_before_anything_is_predicted(
    model: Path, picture_folder: Path, hubscout: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "new"
    home.mkdir()
    (home / "good.png").write_bytes((picture_folder / "test" / "left" / "exif-1.png").read_bytes())
    (home / "cut.png").write_bytes(b"no image")
    Image.new("L", (400, 400)).save(home / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20_000)
    result = hubscout("predict", model, home, "--json")
    assert result.exit_code == 3, result.output
    skipped = [line for line in result.stderr.splitlines() if line.startswith("skipped: ")]
    assert len(skipped) == 2
    assert "160000 pixels" in skipped[0]
    assert "cut.png" in skipped[1]
    assert "2 of 3 inputs" in result.stderr
    bomb, cut, good = json.loads(result.stdout)
    assert "MAX_IMAGE_PIXELS" in bomb["error"]
    assert "cannot be decoded" in cut["error"]
    assert good["prediction"] in ("left", "right")
    told = hubscout("predict", model, home)
    assert told.stdout.count("not read") == 2
    assert "cannot be decoded" not in told.stdout  # said once, above the table
    nothing = hubscout("predict", model, home / "cut.png")
    assert nothing.exit_code == 2
    assert "cut.png cannot be decoded (no format that Pillow knows; 8 bytes)" in nothing.stderr


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_of_images(
    form: str, model: Path, picture_folder: Path, hubscout: Callable[..., Any], tmp_path: Path
) -> None:
    names = ["left/exif-1.png", "left/exif-5.png", "right/exif-3.jpg"]
    columns = {"file": names, "label": [name.partition("/")[0] for name in names], "id": [1, 2, 3]}
    table = picture_folder / "test" / f"list.{form}"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if form == "parquet":
        import pyarrow
        import pyarrow.parquet

        data = [(picture_folder / "test" / name).read_bytes() for name in names]
        pyarrow.parquet.write_table(pyarrow.table({**columns, "file": pyarrow.array(data)}), table)
    elif form == "jsonl":
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        table.write_text("file,label,id\n" + "".join(f"{','.join(map(str, row.values()))}\n" for row in rows))
    try:
        result = hubscout("predict", model, table, "--top", "2", "--json", "--out", tmp_path / "found.csv")
    finally:
        table.unlink()
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [record["label"] for record in found] == columns["label"]
    assert "3 labelled inputs" in result.stderr
    expected = Tuned.load(model).predict([picture_folder / "test" / name for name in names]).values
    shown = [[record["probabilities"][name] for name in ("left", "right")] for record in found]
    np.testing.assert_allclose(shown, expected, atol=2e-6)
    written = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert [row["prediction"] for row in written] == [record["prediction"] for record in found]
    assert list(written[0]) == ["input", "prediction", "probability", "label"]


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = save_bert(tmp_path_factory.mktemp("bert"))
    labels = np.arange(24) % 2
    texts = [f"a {('good', 'bad')[label]} film" for label in labels]
    splits = {split: Split(texts, labels) for split in ("train", "validation", "test")}
    task = Task("opinions", "classification", "text", ("good", "bad"), splits, "opinions")
    tuned = tune(task, model, method="fine-tune", learning_rate=1e-2, **QUICK)
    return tuned.save(tmp_path_factory.mktemp("texts") / "model")


def test_tables_of_texts_are_read_as_tables(text_model: Path, hubscout: Callable[..., Any], tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text('id,review,label\n1,"a good, fine film",good\n2,the bad book,bad\n3,a poor film,-1\n')
    result = hubscout("predict", text_model, table, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [record["input"] for record in found] == ["a good, fine film", "the bad book", "a poor film"]
    assert ["label" in record for record in found] == [True, True, False]
    assert "2 labelled inputs" in result.stderr
    expected = Tuned.load(text_model).predict([record["input"] for record in found])
    assert [record["prediction"] for record in found] == expected.labels
    # A table without labels, and with columns that must be named.
    table.write_text("first,second\na good film,the bad book\n")
    (record,) = json.loads(hubscout("predict", text_model, table, "--text", "second", "--json").stdout)
    assert record["input"] == "the bad book"
    wrong = hubscout("predict", text_model, table, "--text", "secnd")
    assert wrong.exit_code == 2
    assert "Did you mean 'second'" in wrong.stderr
    for mood, measured in (("good", True), ("cheerful", False)):
        table.write_text(f"review,mood\na good old film,{mood}\n")
        assert ("accuracy" in hubscout("predict", text_model, table).stdout) is measured
    table.write_text("anything\ngood\nbad\n")
    assert len(json.loads(hubscout("predict", text_model, table, "--json").stdout)) == 2


def test_labels_of_another_task_are_not_measured(
    text_model: Path, hubscout: Callable[..., Any], tmp_path: Path
) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text("text,label\na good film,5\nthe bad book,1\n")
    result = hubscout("predict", text_model, table)
    assert result.exit_code == 0, result.output
    assert "'5'" in result.stderr
    assert "accuracy" not in result.stdout
    asked = hubscout("predict", text_model, table, "--label", "label")
    assert asked.exit_code == 2
    assert "not among the given names" in asked.stderr


def test_a_long_text_is_one_line_of_the_table(
    text_model: Path, hubscout: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "the film " * 50
    result = hubscout("predict", text_model, "--text", long)
    assert len(result.stdout.splitlines()) == 5
    (record,) = json.loads(hubscout("predict", text_model, "--text", long, "--json").stdout)
    assert record["input"] == long


@pytest.mark.parametrize(
    ("below", "told"), [((), True), (("train",), True), (("test",), False), (("val", "left"), False)]
)
def test_the_data_that_a_model_was_tuned_on_is_no_test(
    below: tuple[str, ...], told: bool, model: Path, picture_folder: Path, hubscout: Callable[..., Any], tmp_path: Path
) -> None:
    own = tmp_path / "model"
    shutil.copytree(model, own)
    record = json.loads((own / "tuning.json").read_text())
    record["environment"]["command"] = ["hubscout", "tune", str(picture_folder), "--model", "timm/x"]
    (own / "tuning.json").write_text(json.dumps(record))
    result = hubscout("predict", own, picture_folder.joinpath(*below))
    assert ("the model was tuned on this data" in result.stderr) is told, result.output


@pytest.mark.parametrize(
    ("data", "name", "told"),
    [
        ("tabs", "test.csv", False),
        ("tabs", "test.csv.gz", False),
        ("tabs", "train.csv", True),
        ("tabs", "train.csv.gz", True),
        ("tabs", "more.csv", True),
        ("--model", "a.csv", False),
    ],
)
def test_the_table_of_a_split_is_told_from_that_of_another(
    data: str,
    name: str,
    told: bool,
    text_model: Path,
    hubscout: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(text_model, "own")
    record = json.loads(Path("own/tuning.json").read_text())
    record["environment"]["command"] = ["hubscout", "tune", data, "timm/x"]
    Path("own/tuning.json").write_text(json.dumps(record))
    Path(data).mkdir()
    table = b"review,mood\na good old film,good\n"
    (tmp_path / data / name).write_bytes(gzip.compress(table) if name.endswith(".gz") else table)
    result = hubscout("predict", "own", tmp_path / data / name)
    assert "accuracy" in result.stdout, result.output
    assert ("the model was tuned on this data" in result.stderr) is told, result.output


def test_lines_and_texts_still_are_texts(text_model: Path, hubscout: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a good film\n\nthe bad book\n")
    assert len(json.loads(hubscout("predict", text_model, tmp_path / "lines.txt", "--json").stdout)) == 2
    (record,) = json.loads(hubscout("predict", text_model, "--text", "a good film", "--json").stdout)
    assert record["input"] == "a good film"
    for arguments, part in (
        ((tmp_path,), "name the files in it"),
        ((tmp_path / "lines.text",), "Did you mean"),
        (("a good film",), "A text itself is given by --text 'a good film'."),
        ((), "No texts were given"),
        ((tmp_path / "lines.txt", "--out", tmp_path / "no" / "a.csv"), "there is no folder"),
        ((tmp_path / "lines.txt", "--out", tmp_path / "a.json"), "CSV file"),
    ):
        result = hubscout("predict", text_model, *arguments)
        assert result.exit_code == 2
        assert part in result.stderr


def test_columns_of_labels_go_by_their_names(tmp_path: Path) -> None:
    """In any order, and with others beside them; without these names, in turn and one for each."""
    table = tmp_path / "rows.csv"
    table.write_text("text,width,height,other\nshort,1,10,5\nlonger,2,20,5\n")
    kind = kind_of("regression")

    def read(*label: str) -> np.ndarray:
        reader = Reader(["text"], kind, ("height", "width"), {"text": "text"}, label=label)
        return np.asarray(reader.encode(reader.read([table])))

    for label in (("height", "width"), ("width", "height"), ("width", "other", "height")):
        np.testing.assert_array_equal(read(*label), [[10, 1], [20, 2]])
    np.testing.assert_array_equal(read("height", "other"), [[10, 5], [20, 5]])
    with pytest.raises(TaskError, match=r"predicts 2 numbers \(height, width\), and 1 column was named.*: width\."):
        read("width")
    with pytest.raises(TaskError, match=r"2 numbers .* and 3 columns were named"):
        read("width", "other", "text")


@pytest.mark.parametrize("label", [5.0, 5, "5", "5.0"])
def test_a_column_of_classes_is_found_however_its_numbers_are_written(tmp_path: Path, label: object) -> None:
    (tmp_path / "new.jsonl").write_text(json.dumps({"review": "so very good", "stars": label}) + "\n")
    reader = Reader(("text",), kind_of("classification"), ("1", "5"), {})
    found = reader.read([tmp_path / "new.jsonl"])
    assert found.labels == [label]
    assert reader.encode(found).tolist() == [1]


def test_sounds_are_read_as_images_are(tmp_path: Path) -> None:
    for name in ("low/a.wav", "high/b.wav"):
        (tmp_path / name).parent.mkdir()
        wavfile.write(tmp_path / name, 8000, np.zeros(100, dtype=np.int16))
    (tmp_path / "low" / "cover.png").write_bytes(b"")
    (tmp_path / "clips.csv").write_text("clip,label\nlow/a.wav,low\n")
    reader = Reader(("audio",), kind_of("classification"), ("high", "low"), {})
    for path, labels in (
        (tmp_path, ["high", "low"]),
        (tmp_path / "clips.csv", ["low"]),
        (tmp_path / "low/a.wav", [None]),
    ):
        found = reader.read([path])
        assert found.labels == labels
        assert found.values[0]["sampling_rate"] == 8000
        assert found.names[-1].endswith("low/a.wav")


def test_a_file_in_another_encoding_is_read_as_the_error_says(tmp_path: Path) -> None:
    reader = Reader(("text",), kind_of("classification"), ("bad", "good"), {})
    for name, text in (("new.tsv", "text\tlabel\ntrès bien\tgood\n"), ("new.txt", "très bien\n")):
        (tmp_path / name).write_text(text, encoding="cp1252")
        with pytest.raises(TaskError, match=rf"'{name}\?encoding=cp1252'"):
            reader.read([tmp_path / name])
        assert reader.read([tmp_path / f"{name}?encoding=cp1252"]).names == ["très bien"]
    with pytest.raises(TaskError, match=r"no .*new\.tsv\?label=x"):
        reader.read([tmp_path / "new.tsv?label=x"])


def test_columns_of_labels_are_told_by_the_names_of_those_that_apply(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("text,cat,dog,big\nso small,0,1,0\nso big,1,1,1.0\nso so,0,0,0\n")
    reader = Reader(["text"], kind_of("multilabel"), ("cat", "dog", "big"), {})
    found = reader.read([tmp_path / "new.csv"])
    assert [reader.named(label) for label in found.labels] == [["dog"], ["cat", "dog", "big"], []]
    assert reader.encode(found).tolist() == [[0, 1, 0], [1, 1, 1], [0, 0, 0]]


def test_several_labels_are_told_with_their_probabilities(hubscout: Callable[..., Any], tmp_path: Path) -> None:
    texts = ["a good film", "a bad film", "a good book", "the book"] * 6
    split = Split(texts, np.array([["good" in text, "bad" in text, "book" in text] for text in texts], dtype=int))
    splits = dict.fromkeys(("train", "validation", "test"), split)
    task = Task("opinions", "multilabel", "text", ("praise", "blame", "book"), splits, "several")
    options = {**QUICK, "epochs": 20, "learning_rate": 1e-2}
    tuned = tune(task, save_bert(tmp_path / "bert"), method="fine-tune", **options)
    model, table = tuned.save(tmp_path / "model"), tmp_path / "new.csv"
    table.write_text("text\na good book\na bad film\n")
    result = hubscout("predict", model, table, "--json", "--out", tmp_path / "found.csv")
    assert result.exit_code == 0, result.output
    both, one = json.loads(result.stdout)
    assert both["prediction"] == ["praise", "book"]
    expected = tuned.predict(["a good book", "a bad film"]).values
    assert both["probabilities"]["book"] == pytest.approx(expected[0, 2], abs=1e-5)
    assert max(one["probabilities"], key=one["probabilities"].get) == "blame"
    written = list(csv.DictReader((tmp_path / "found.csv").open()))
    assert [float(share) for share in written[0]["probability"].split(";")] == pytest.approx(
        [both["probabilities"][label] for label in both["prediction"]]
    )
    assert float(written[1]["probability"]) == one["probabilities"]["blame"]
