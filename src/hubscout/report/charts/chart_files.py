"""From the SVG of a page to files: the style sheet's looks written into the drawing, and other formats by matplotlib.

The rules of `charts.css` are simple on purpose (`svg tag.class.class`, no nesting), so that this file can read them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hubscout.errors import InputError
from hubscout.optional import require
from hubscout.report.markup import asset
from hubscout.runs.files import write_atomically

Rule = tuple[str, frozenset[str], dict[str, str]]
POINTS = 0.75
"""A pixel in points: 96 pixels and 72 points are an inch."""
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_PLACES = frozenset({"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r"})
_KEPT = _PLACES | {"d", "width", "height", "viewBox", "transform", "fill", "stroke"}


@cache
def _style_sheet() -> tuple[Rule, ...]:
    """The rules of the charts' style sheet in their order, with the colours of the light theme."""
    text = re.sub(r"/\*.*?\*/", "", asset("charts.css"), flags=re.DOTALL)
    colours = dict(re.findall(r"(--[\w-]+):\s*(?:light-dark\()?(#[0-9a-f]+)", text))
    rules: list[Rule] = []
    for selectors, body in re.findall(r"(svg [^{}]+)\{([^}]*)\}", text):
        body = re.sub(r"var\((--[\w-]+)\)", lambda found: colours[found[1]], body)
        look = {name.strip(): value.strip() for name, _, value in (p.partition(":") for p in body.split(";")) if value}
        for selector in selectors.split(","):
            name, *classes = selector.strip().removeprefix("svg ").split(".")
            rules.append((name, frozenset(classes), look))
    return tuple(rules)


def standalone(svg: str) -> str:
    """A drawing of a page as a file of its own: looks instead of classes, nothing for pointers and readers.

    >>> standalone('<svg viewBox="0 0 8 8" style="font-size:12px"><line class="axis" x1="1"></line></svg>')[-38:]
    '<line stroke="#8a919b" x1="1" /></svg>'
    """
    root = ElementTree.fromstring(svg)
    size = re.search(r"font-size:([\d.]+)px", root.get("style", ""))
    width, height = root.get("viewBox", "0 0 0 0").split()[2:]
    _resolve(root, "#000000")
    root.insert(0, ElementTree.Element("rect", width=width, height=height, fill="#ffffff"))
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": height, "font-family": FONT}
    root.set("font-size", size[1] if size else "12")
    return ElementTree.tostring(root, encoding="unicode")


def _resolve(element: ElementTree.Element, colour: str) -> None:
    classes = frozenset(element.get("class", "").split())
    look: dict[str, str] = {}
    for name, wanted, found in _style_sheet():
        if name in {"", element.tag} and wanted <= classes:
            look |= found
    colour = look.pop("color", colour)
    own = {name: value for name, value in element.attrib.items() if name in _KEPT}
    element.attrib = {name: colour if value == "currentColor" else value for name, value in look.items()} | own
    if element.tag == "text":
        element.set("dy", "0.35em")  # as good as a baseline in the middle, and every program knows it
    for child in list(element):
        if "reach" in child.get("class", "").split():
            element.remove(child)
        else:
            _resolve(child, colour)


def write_drawing(svg: str, path: Path, dots_per_inch: int) -> Path:
    """Write a drawing of `standalone` to a file; its ending says the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".svg":
        write_atomically(path, svg)
        return path
    figures = require("matplotlib.figure", extra="report", purpose="Writing charts as PNG or PDF")
    root = ElementTree.fromstring(re.sub(r' xmlns="[^"]*"', "", svg, count=1))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    # The class itself, not pyplot: no global state, no window, no backend changed.
    figure = figures.Figure(figsize=(width / 96, height / 96))
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in kinds:
        raise InputError(f"{path}: a chart can be saved as svg, {', '.join(sorted(set(kinds) - {'svg'}))}.")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    _paint(axes, root, float(root.get("font-size", 12)), 1.0)
    figure.savefig(path, dpi=dots_per_inch)
    return path


def _paint(axes: Any, element: ElementTree.Element, size: float, opacity: float) -> None:
    from matplotlib import patches

    opacity *= float(element.get("opacity", 1))
    at = {name: float(value) for name, value in element.items() if name in _PLACES}
    if element.tag == "text":
        _write(axes, element, at, size)
    elif element.tag == "line":
        _stroke(axes, [(at["x1"], at["y1"]), (at["x2"], at["y2"])], element, opacity)
    elif element.tag == "circle":
        axes.add_patch(patches.Circle((at["cx"], at["cy"]), at["r"], **_look(element, opacity)))
    elif element.tag == "rect":
        corner = (at.get("x", 0.0), at.get("y", 0.0))
        sides = float(element.get("width", 0)), float(element.get("height", 0))
        axes.add_patch(patches.Rectangle(corner, *sides, **_look(element, opacity)))
    elif element.tag == "path":
        for points in _strokes(element.get("d", "")):
            _stroke(axes, points, element, opacity)
    for child in element:
        _paint(axes, child, size, opacity)


def _look(element: ElementTree.Element, opacity: float) -> dict[str, Any]:
    fill, stroke = element.get("fill", "none"), element.get("stroke", "none")
    width = float(element.get("stroke-width", 1)) * POINTS
    dashes = [float(part) * POINTS / width for part in element.get("stroke-dasharray", "").split()]
    return {
        "facecolor": fill,
        "edgecolor": stroke,
        "linewidth": width if stroke != "none" else 0.0,
        "linestyle": (0, tuple(dashes)) if dashes else "-",
        "alpha": opacity,
        "zorder": 2,
    }


def _stroke(axes: Any, points: list[tuple[float, float]], element: ElementTree.Element, opacity: float) -> None:
    from matplotlib import patches
    from matplotlib import path as paths

    axes.add_patch(patches.PathPatch(paths.Path(points), **_look(element, opacity)))


def _strokes(path: str) -> list[list[tuple[float, float]]]:
    """The points of a path of M, L, H, V and Z; each M begins another stroke.

    >>> _strokes("M1 2L3 4H5ZM0 0V9")
    [[(1.0, 2.0), (3.0, 4.0), (5.0, 4.0), (1.0, 2.0)], [(0.0, 0.0), (0.0, 9.0)]]
    """
    strokes: list[list[tuple[float, float]]] = []
    for command, numbers in re.findall(r"([MLHVZ])([^MLHVZ]*)", path):
        given = [float(number) for number in numbers.replace(",", " ").split()]
        if command == "M":
            strokes.append([(given[0], given[1])])
            continue
        stroke = strokes[-1]
        if command == "L":
            stroke.append((given[0], given[1]))
        else:
            x, y = stroke[0] if command == "Z" else stroke[-1]
            stroke.append((x, y) if command == "Z" else (given[0], y) if command == "H" else (x, given[0]))
    return strokes


def _write(axes: Any, element: ElementTree.Element, at: dict[str, float], size: float) -> None:
    from matplotlib import patheffects

    turned = re.match(r"rotate\((-?[\d.]+)", element.get("transform", ""))
    halo = element.get("stroke", "none")
    axes.text(
        at["x"],
        at["y"],
        element.text or "",
        fontsize=size * POINTS,
        color=element.get("fill", "#000000"),
        ha={"middle": "center", "end": "right"}.get(element.get("text-anchor", ""), "left"),
        va="center_baseline",
        rotation=-float(turned[1]) if turned else 0.0,
        rotation_mode="anchor",
        parse_math=False,  # a name with dollars is a name
        zorder=3,
        path_effects=[patheffects.withStroke(linewidth=3, foreground=halo)] if halo != "none" else None,
    )
