"""Runs a new user's first session and writes its pictures: the terminal as SVG, the pages as PNG.

    python docs/tools/session.py                  # some minutes; the folder of the session is scratch/session
    python docs/tools/session.py --pictures-only  # draw again what the last session left there

The data are made by `photographs.py`. What the page shows as typed is what is run here.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from photographs import write_photographs

DOCS = Path(__file__).resolve().parents[1]
ASSETS = DOCS / "assets"
COLUMNS = 100
LARGEST = 200_000
"""Bytes of a picture, at most."""
SESSION = {
    "rank": "hubscout rank surfaces/",
    "tune": "hubscout tune surfaces/ --model pypi/efficientnet-lite0 --out my-model/",
    "report": "hubscout report runs/surfaces-1",
    "page": "hubscout report my-model/",
    "predict": "hubscout predict my-model/ surfaces/wood/003.jpg --top 2",
}
_PROGRESS = re.compile(r"^\[\d+/\d+\] .*\bsamples\b|^[\w-]+: step \d")
"""Lines that a terminal shows in one place, one over the other."""
_FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 16px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""
"""The frame of rich, without the fonts that it loads from elsewhere."""


def run_session(folder: Path) -> None:
    """Type the commands; what each prints goes to NAME.txt."""
    write_photographs(folder / "surfaces")
    cache = str(folder.resolve() / "cache")
    # Without a hub, as on a machine that has none: what is printed does not depend on the network.
    offline = {"HF_HUB_OFFLINE": "1", "HUBSCOUT_CACHE": cache}
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "dumb", **offline}
    for name, command in SESSION.items():
        words = [sys.executable, "-m", *command.split()]
        done = subprocess.run(
            words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        (folder / f"{name}.txt").write_text(done.stdout, encoding="utf-8")
        if done.returncode != 0:
            raise SystemExit(f"{command}\nended with status {done.returncode}:\n{done.stdout}")


def draw_terminal(folder: Path, names: tuple[str, ...], target: Path) -> None:
    """What a terminal shows after these commands, as SVG."""
    from rich.console import Console
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
    for place, name in enumerate(names):
        if place:
            console.print()
        console.print(Text.assemble(("$ ", "bold green"), (SESSION[name], "bold")))
        printed = (folder / f"{name}.txt").read_text(encoding="utf-8").rstrip()
        for line in printed.splitlines():
            if not _PROGRESS.search(line):
                console.print(Text(line.rstrip()))
    title = "A folder of photographs"
    svg = console.export_svg(title=title, theme=DEFAULT_TERMINAL_THEME, code_format=_FRAME, unique_id="session")
    _write(target, svg.encode())


def draw_pages(folder: Path, pages: dict[str, tuple[str, int]]) -> None:
    """Screenshots of the tops of pages, light: target → (file, height in pixels)."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(color_scheme="light")
        for target, (file, height) in pages.items():
            page.set_viewport_size({"width": 1200, "height": height})
            page.goto((folder / file).resolve().as_uri())
            # 128 colours are enough for a page, at a third of the size.
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(128)
            packed = io.BytesIO()
            image.save(packed, "PNG", optimize=True)
            _write(ASSETS / target, packed.getvalue())
        browser.close()


def _write(target: Path, content: bytes) -> None:
    if len(content) > LARGEST:
        raise SystemExit(f"{target} would have {len(content):,} bytes; {LARGEST:,} are allowed.")
    target.write_bytes(content)
    print(f"{target.relative_to(DOCS.parent)}: {len(content):,} bytes")


def draw_data(folder: Path, target: Path) -> None:
    """Three pictures of each class, side by side."""
    from PIL import Image

    homes = sorted(home for home in (folder / "surfaces").iterdir() if home.is_dir())
    sheet = Image.new("RGB", (160 * len(homes), 120 * 3))
    for column, home in enumerate(homes):
        for row, path in enumerate(sorted(home.iterdir())[:3]):
            with Image.open(path) as image:
                sheet.paste(image.resize((160, 120)), (160 * column, 120 * row))
    packed = io.BytesIO()
    sheet.save(packed, "JPEG", quality=75)
    _write(target, packed.getvalue())


def main() -> None:
    """Run the session, then draw it."""
    parser = argparse.ArgumentParser(description="Run a new user's first session and draw it.")
    parser.add_argument("--folder", type=Path, default=DOCS.parent / "scratch" / "session")
    parser.add_argument("--pictures-only", action="store_true", help="draw what the last session left")
    given = parser.parse_args()
    folder: Path = given.folder
    if not given.pictures_only:
        shutil.rmtree(folder, ignore_errors=True)
        run_session(folder)
    draw_data(folder, ASSETS / "session-data.jpg")
    draw_terminal(folder, ("rank", "tune", "page"), ASSETS / "session.svg")
    draw_pages(
        folder,
        {
            "report-ranking.png": ("runs/surfaces-1/report.html", 1300),
            "report-tuning.png": ("my-model/report.html", 1300),
        },
    )


if __name__ == "__main__":
    main()
