from __future__ import annotations

from pathlib import Path

import pytest

from hubscout.hubs.source_code import code_fingerprint

FILES = {
    "model.py": "import torch\nfrom near import WIDTH\nimport package.inner\n\ndef make():\n    import late\n",
    "near.py": "WIDTH = 3\n",
    "package/__init__.py": "from .sibling import HEIGHT\n",
    "package/inner.py": "from . import other\nfrom .. import nothing\n",
    "package/sibling.py": "HEIGHT = 4\n",
    "package/other.py": "DEPTH = 5\n",
    "late.py": "import model\n",  # a circle
    "stranger.py": "nobody imports this\n",
}


def write(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder / "model.py"


@pytest.mark.parametrize("name", FILES)
def test_a_change_in_any_imported_file_counts(tmp_path: Path, name: str) -> None:
    file = write(tmp_path)
    before = code_fingerprint(file)
    with open(tmp_path / name, "a") as opened:
        opened.write("# more\n")
    assert (code_fingerprint(file) != before) == (name != "stranger.py")


def test_the_same_source_elsewhere_is_the_same(tmp_path: Path) -> None:
    assert code_fingerprint(write(tmp_path / "one")) == code_fingerprint(write(tmp_path / "two"))


def test_installed_packages_are_left_out() -> None:
    import numpy

    assert code_fingerprint(Path(numpy.__file__)) == ""
    assert code_fingerprint(Path(pytest.__file__)) == ""


def test_a_file_that_is_no_python_has_a_fingerprint_too(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def (:")
    assert code_fingerprint(file)
    file.write_bytes(b"\x00\xff")
    assert code_fingerprint(file)


def test_the_path_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "model.py").write_text("import shelved\n")
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    before = code_fingerprint(tmp_path / "model.py")
    (tmp_path / "library" / "shelved.py").write_text("A = 1\n")
    assert code_fingerprint(tmp_path / "model.py") != before
