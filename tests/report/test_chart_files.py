"""What is written to files is what the page shows."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from hubscout.errors import InputError, MissingDependencyError
from hubscout.ranking import Ranking
from hubscout.report import Run
from hubscout.report.charts.chart import Chart
from hubscout.report.charts.heat import HIGH, LOW, MINUS
from hubscout.report.markup import asset
from hubscout.report.pictures import PICTURES, draw


@pytest.fixture
def chart(make_ranking: Callable[..., Ranking]) -> Chart:
    return make_ranking([f"timm/model_{index}" for index in range(6)]).plot("cost")


def dots(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="5"', svg)]


def test_the_file_and_the_page_are_one_drawing(chart: Chart) -> None:
    assert dots(chart.svg()) == dots(chart.draw(chart.wide)) != []


def test_a_file_needs_no_style_sheet(run: Run) -> None:
    for name in PICTURES:
        if name == "reference":
            continue
        svg = draw(run, name).svg()
        assert not set(re.findall(r"[ (](class|style|data-tip|role|var|light-dark)[=(]", svg))
        for shape in ElementTree.fromstring(svg).iter():
            if shape.tag.rpartition("}")[2] in {"path", "circle", "line"}:
                assert {"stroke", "fill"} & set(shape.attrib), (name, shape.attrib)


def test_pixels_have_the_colour_of_the_best_model_where_its_dot_is(chart: Chart, tmp_path: Path) -> None:
    pixels = np.asarray(Image.open(chart.save(tmp_path / "new" / "cost.png", dots_per_inch=96)).convert("RGB"))
    root = ElementTree.fromstring(chart.svg())
    assert pixels.shape[:2] == (int(float(root.get("height"))), int(float(root.get("width"))))
    (x, y), *_ = dots(chart.svg())
    assert tuple(pixels[round(y), round(x)]) == (0x1C, 0x5F, 0xB8)


def test_a_page_of_a_paper_and_a_drawing(chart: Chart, tmp_path: Path) -> None:
    assert chart.save(tmp_path / "cost.pdf").read_bytes().startswith(b"%PDF")
    assert chart.save(tmp_path / "cost.svg").read_text(encoding="utf-8") == chart.svg()


def test_without_matplotlib_there_are_drawings(chart: Chart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert chart.save(tmp_path / "cost.svg").exists()
    with pytest.raises(MissingDependencyError, match="report"):
        chart.save(tmp_path / "cost.png")


def test_an_unknown_format_says_which_are_known(chart: Chart, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cost\.docx: a chart can be saved as svg, .*pdf.*png"):
        chart.save(tmp_path / "cost.docx")


@pytest.mark.parametrize(("name", "colour"), [("heat-low", LOW), ("heat-high", HIGH), ("minus", MINUS)])
def test_heat_maps_in_files_have_the_colours_of_the_page(name: str, colour: tuple[int, int, int]) -> None:
    assert f"--{name}: light-dark(#{bytes(colour).hex()}," in asset("charts.css")
