"""A small folder of pictures that look like photographs of surfaces, made by a program, to show the product on.

    python docs/tools/photographs.py surfaces/

Six classes, a folder each. Light, colour, scale and angle change from picture to picture, the classes share their
colours, and another surface shows through each one: what tells them apart is the stronger texture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter
from scipy.ndimage import gaussian_filter

WIDTH, HEIGHT = 200, 150
PER_CLASS = 24
_PALETTES = (
    ((92, 64, 45), (196, 150, 105)),
    ((70, 78, 86), (188, 194, 200)),
    ((44, 74, 92), (150, 190, 204)),
    ((96, 90, 60), (206, 200, 160)),
    ((110, 52, 44), (206, 150, 130)),
)


def _noise(generator: np.random.Generator, *scales: tuple[float, float, float]) -> np.ndarray:
    """Smooth noise of several scales: (blur up and down, blur left and right, weight)."""
    total = np.zeros((HEIGHT, WIDTH))
    for vertical, horizontal, weight in scales:
        layer = gaussian_filter(generator.normal(size=(HEIGHT, WIDTH)), (vertical, horizontal), mode="wrap")
        total += weight * layer / layer.std()
    return total


def _grid(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Places turned by a random angle, and a random scale in pixels."""
    angle, scale = generator.uniform(-0.5, 0.5), generator.uniform(0.7, 1.4)
    across, down = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    turned = across * np.cos(angle) + down * np.sin(angle), down * np.cos(angle) - across * np.sin(angle)
    return *turned, scale


def wood(generator: np.random.Generator) -> np.ndarray:
    """Rings, cut lengthwise."""
    across, down, scale = _grid(generator)
    bent = down + 9 * _noise(generator, (12, 40, 1.0)) + 0.02 * across
    return np.sin(bent / (4.5 * scale)) + 0.5 * _noise(generator, (0.6, 9, 1.0))


def marble(generator: np.random.Generator) -> np.ndarray:
    """Thin veins in a cloudy ground."""
    veins = np.abs(_noise(generator, (14, 18, 1.0), (5, 6, 0.35)))
    return -3 * np.exp(-((veins / 0.14) ** 2)) + 0.7 * _noise(generator, (20, 20, 1.0)) + 1


def bricks(generator: np.random.Generator) -> np.ndarray:
    """Courses of bricks with mortar between them."""
    across, down, scale = _grid(generator)
    long, high = 38 * scale, 16 * scale
    course = np.floor(down / high)
    shifted = across + (course % 2) * long / 2
    inside = (np.mod(shifted, long) > 3) & (np.mod(down, high) > 3)
    shade = np.sin(course * 12.9 + np.floor(shifted / long) * 78.2)
    return np.where(inside, 0.5 * shade - 0.4, 2.0) + 0.35 * _noise(generator, (0.8, 0.8, 1.0))


def fabric(generator: np.random.Generator) -> np.ndarray:
    """A plain weave."""
    across, down, scale = _grid(generator)
    warp, weft = np.sin(across / (1.5 * scale)), np.sin(down / (1.5 * scale))
    return np.maximum(warp, weft) * 1.1 + 0.7 * _noise(generator, (15, 15, 1.0)) + 0.2 * _noise(generator, (1, 1, 1.0))


def water(generator: np.random.Generator) -> np.ndarray:
    """Ripples, longer towards the viewer."""
    near = np.linspace(0.5, 1.6, HEIGHT)[:, None]
    ripples = _noise(generator, (2.2, 9, 1.0), (5, 22, 0.8))
    return ripples * near + np.clip(_noise(generator, (1.2, 4, 1.0)) - 1.6, 0, None) * 2


def gravel(generator: np.random.Generator) -> np.ndarray:
    """Pebbles of one size, each with its light and its shadow."""
    size = generator.uniform(4.5, 8)
    cells = _noise(generator, (size / 2.2, size / 2.2, 1.0))
    down, across = np.gradient(cells)
    return 0.9 * np.tanh(2 * cells) + 2.2 * (across - down) + 0.25 * _noise(generator, (0.7, 0.7, 1.0))


CLASSES = (bricks, fabric, gravel, marble, water, wood)


def picture(surface: np.ndarray, generator: np.random.Generator) -> Image.Image:
    """A surface as a camera would show it: a colour, uneven light, a little blur and grain."""
    low, high = (np.array(colour, dtype=float) for colour in _PALETTES[generator.integers(len(_PALETTES))])
    flat = np.clip((surface - surface.mean()) / (4 * surface.std()) + 0.5, 0, 1)[:, :, None]
    light = np.linspace(*generator.uniform(0.75, 1.2, size=2), WIDTH)[None, :, None]
    pixels = (low + flat * (high - low)) * light + generator.normal(scale=5, size=(HEIGHT, WIDTH, 3))
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    return image.filter(ImageFilter.GaussianBlur(generator.uniform(0.2, 1.6)))


def _level(surface: np.ndarray) -> np.ndarray:
    return (surface - surface.mean()) / surface.std()


def write_photographs(folder: Path, per_class: int = PER_CLASS, seed: int = 0) -> Path:
    """Write the pictures as JPEG files, a folder per class."""
    for place, surface in enumerate(CLASSES):
        home = folder / surface.__name__
        home.mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            generator = np.random.default_rng([seed, place, number])
            other = CLASSES[(place + generator.integers(1, len(CLASSES))) % len(CLASSES)]
            share = generator.uniform(0, 0.5)
            mixed = (1 - share) * _level(surface(generator)) + share * _level(other(generator))
            picture(mixed, generator).save(home / f"{number:03d}.jpg", quality=85)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a folder of pictures of surfaces, made by a program.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--per-class", type=int, default=PER_CLASS)
    given = parser.parse_args()
    write_photographs(given.folder, given.per_class)
