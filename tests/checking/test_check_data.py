from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import hubscout as hs
from hubscout.checking.check_data import equal_groups, near_groups
from hubscout.cli.app import app
from hubscout.errors import UnknownNameError


def picture(seed: int, side: int = 48) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def test_options_of_another_function_are_refused_with_and_without_models() -> None:
    for models in ((), "no/such/model"):
        with pytest.raises(UnknownNameError, match="Did you mean 'limit'"):
            hs.check((["a", "b"], [0, 1]), models, limti=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes in two splits, with one fault of each sort."""
    root = tmp_path / "flowers"
    number = 0
    sizes = {
        "train": {"daisy": 120, "rose": 12, "tulip": 4},
        "val": {"daisy": 3, "rose": 3},
        "test": {"daisy": 6, "rose": 6},
    }
    for split, counts in sizes.items():
        for name, count in counts.items():
            (root / split / name).mkdir(parents=True)
            for row in range(count):
                picture(number).save(root / split / name / f"{row:03d}.png")
                number += 1
    (root / "test" / "rose" / "000.png").write_bytes((root / "train" / "rose" / "001.png").read_bytes())
    (root / "train" / "daisy" / "007.png").write_bytes((root / "train" / "rose" / "003.png").read_bytes())
    Image.open(root / "train" / "daisy" / "010.png").save(root / "train" / "daisy" / "011.jpg", quality=60)
    (root / "train" / "rose" / "005.png").write_bytes(b"not an image at all")
    picture(999).save(root / "train" / "rose" / "006.png", "JPEG")
    (root / "train" / "rose" / "notes.docx").write_bytes(b"x")
    return root


def test_each_thing_is_said_once(folder: Path) -> None:
    from typer.testing import CliRunner

    told = CliRunner().invoke(app, ["check", str(folder)])
    both = told.stderr + told.stdout
    assert both.count("train 137, validation 6, test 12") == 1
    assert both.count("times") == 1  # the imbalance
    assert both.count("exactly the same") == 2  # duplicates, conflicts
    assert "flowers: image classification" in told.stderr
    assert not any("imbalanced" in note or "occur again" in note for note in hs.check(folder).notes)


def test_every_fault_is_found_by_name(folder: Path) -> None:
    found = hs.check(folder)
    assert tuple(finding.name for finding in found.findings) == (
        *("unreadable", "duplicates", "conflicts", "near-duplicates"),
        *("few-samples", "imbalance", "endings"),
    )
    assert [sample.name for group in found["unreadable"].groups for sample in group] == [
        str(Path("train", "rose", "005.png"))
    ]
    crossing = found["duplicates"].groups[0]
    assert {sample.split for sample in crossing} == {"train", "test"}
    assert "more than one split" in found["duplicates"].words
    assert found["duplicates"].count == 4
    assert {sample.label for sample in found["conflicts"].groups[0]} == {"daisy", "rose"}
    near = {Path(sample.name).name for group in found["near-duplicates"].groups for sample in group}
    assert near == {"010.png", "011.jpg"}
    assert "'tulip' 4" in found["few-samples"].words
    assert "'daisy'" in found["imbalance"].words
    assert "1 .docx" in found["endings"].words
    assert found["endings"].groups[0][0].note == "is .jpg"
    counts = "unreadable (1), duplicates (4), conflicts (2), near-duplicates (2), few-samples (1), imbalance (1)"
    assert repr(found) == f"DataCheck({found.task!r}: {counts}, endings (2))"
    assert "005.png" in str(found)
    assert len(found.to_frame()) == 1 + 4 + 2 + 2 + 1


def test_good_data_has_no_findings() -> None:
    texts = [f"a sentence of its own, number {row}" for row in range(60)]
    found = hs.check((texts, ["a", "b"] * 30))
    assert found.findings == ()
    assert "Nothing found" in str(found)


def test_texts_that_differ_in_case_and_marks_are_near_duplicates() -> None:
    texts = [f"a sentence of its own, number {row}" for row in range(60)]
    texts[7] = "A sentence of its OWN - number 5!"
    found = hs.check((texts, ["a", "b"] * 30))
    assert [finding.name for finding in found.findings] == ["near-duplicates"]
    assert sorted(sample.name for sample in found["near-duplicates"].groups[0]) == sorted([texts[5], texts[7]])


def test_empty_texts_are_named_and_marks_are_no_duplicates_of_each_other() -> None:
    texts = [f"a sentence of its own, number {row}" for row in range(60)]
    texts[3], texts[4], texts[9], texts[11] = "  ", "  ", "!!!", "..."
    found = hs.check((texts, ["a", "b"] * 30))
    assert [finding.name for finding in found.findings] == ["empty"]
    samples = [sample for group in found["empty"].groups for sample in group]
    assert [sample.name for sample in samples] == [f"{sample.split}, row {sample.row}" for sample in samples]
    assert found["empty"].count == 2


def test_tagged_sentences(tmp_path: Path) -> None:
    """Duplicates across splits, the same sentence with other tags, rare tags."""
    cities = ["Rome", "Oslo", "Bonn", "Lima", "Kiev", "Bern", "Riga", "Cairo"]
    lines = [f"I O\nlive O\nin O\n{city} B-LOC\nsince O\n{year} O\n" for year in range(1990, 2002) for city in cities]
    lines[5] = "Ann B-PER\nsings O\n"
    (tmp_path / "train.txt").write_text("\n".join([*lines, lines[0].replace("B-LOC", "O")]))
    (tmp_path / "test.txt").write_text("\n".join([lines[1], "No O\none O\nhere O\n"]))
    found = hs.check(tmp_path)
    assert {finding.name for finding in found.findings} == {"duplicates", "conflicts", "few-samples", "imbalance"}
    assert {sample.split for sample in found["duplicates"].groups[0]} == {"train", "test"}
    assert {sample.label for sample in found["conflicts"].groups[0]} == {"O O O B-LOC O O", "O O O O O O"}
    assert "'B-PER' 1" in found["few-samples"].words


def test_a_task_says_the_cheap_part_by_itself(folder: Path) -> None:
    notes = hs.open_task(folder).notes
    assert any("2 inputs occur again" in note and "1 of test is in train too" in note for note in notes)
    assert any("imbalanced" in note for note in notes)


def test_the_command_names_findings_and_writes_a_page(folder: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    page = tmp_path / "check.html"
    result = CliRunner().invoke(app, ["check", str(folder), "--out", str(page)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for part in ("unreadable", "005.png", "near-duplicates", "mislabelled samples were not looked for"):
        assert part in result.output, part
    assert "such as --models small" in result.output
    (line,) = [line for line in result.output.splitlines() if "005.png" in line]
    assert line.count("005.png") == 1
    assert "cannot be decoded (no format that Pillow knows" in line
    assert page.read_text().count('<figure class="sample">') >= 9
    as_json = CliRunner().invoke(app, ["check", str(folder), "--json", "--quiet"])
    assert {one["name"] for one in json.loads(as_json.stdout)["findings"]} >= {"unreadable", "duplicates"}
    refused = CliRunner().invoke(app, ["check", str(folder), "--out", "check.pdf"])
    assert refused.exit_code == 2


def blurred(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (7, 7, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((120, 90), Image.Resampling.BICUBIC)


def sketch(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L").resize((16, 16), Image.Resampling.BOX), dtype=np.float32)


def compressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=40)
    return Image.open(io.BytesIO(buffer.getvalue()))


def brighter(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.clip(np.asarray(image).astype(int) + 8, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("change", [compressed, brighter, lambda image: image.resize((64, 48))])
def test_the_same_picture_after_a_change_is_found_and_others_are_not(change) -> None:
    pictures = [blurred(seed) for seed in range(60)]
    sketches = {number: sketch(image) for number, image in enumerate([*pictures, *map(change, pictures[:10])])}
    groups = near_groups(sketches)
    assert sorted(groups) == [(number, 60 + number) for number in range(10)]


def test_empty_pictures_are_not_compared() -> None:
    assert near_groups({number: np.full((16, 16), 255.0, dtype=np.float32) for number in range(5)}) == []
    assert near_groups({}) == []


def test_groups_of_equal_keys() -> None:
    assert equal_groups(enumerate("abcab")) == [(0, 3), (1, 4)]


def test_numbers_far_from_all_others_are_found() -> None:
    numbers = [*map(float, range(40)), 1e6]
    found = hs.check(([f"text {number}" for number in range(41)], numbers))
    assert found["outliers"].count == 1
    assert found["outliers"].groups[0][0].label == "1e+06"
