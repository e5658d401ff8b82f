from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the repository, where there is one."""
    root = Path(os.environ.get("HUBSCOUT_SHARED", Path(__file__).parents[2].parent / "shared")) / "data"
    if not root.is_dir():
        pytest.skip("no folder of real data beside the repository")
    return root


def encode(pixels: np.ndarray, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


@pytest.fixture
def image_bytes() -> Callable[..., bytes]:
    """Encoded noise, different for each number."""

    def make(number: int, form: str = "PNG", size: int = 8) -> bytes:
        return encode(np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8), form)

    return make


@pytest.fixture
def image_folder(tmp_path: Path, image_bytes: Callable[..., bytes]) -> Callable[..., Path]:
    """A folder of images: {"train/cat": 3} makes three images in train/cat."""

    def make(counts: dict[str, int], name: str = "pictures") -> Path:
        root = tmp_path / name
        number = 0
        for home, count in counts.items():
            (root / home).mkdir(parents=True, exist_ok=True)
            for i in range(count):
                (root / home / f"{i:03d}.png").write_bytes(image_bytes(number))
                number += 1
        return root

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of this name and content."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.fixture
def image_table(tmp_path: Path, image_bytes: Callable[..., bytes]) -> Callable[..., Path]:
    """Writes a Parquet file of so many images with their labels, in row groups of four."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def make(n: int = 20) -> Path:
        table = pa.table({"image": [image_bytes(i) for i in range(n)], "label": ["ab"[i % 2] for i in range(n)]})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
        return tmp_path / "a.parquet"

    return make
