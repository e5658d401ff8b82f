from __future__ import annotations

from pathlib import Path

import pytest

from hubscout.errors import InputError
from hubscout.runs.run_folder import check_folder


def test_without_a_wish_every_folder_will_do(tmp_path: Path) -> None:
    for out in (None, tmp_path, tmp_path / "new"):
        check_folder(out, "ranking.json", resume=False, overwrite=False)
        check_folder(out, "ranking.json", resume=False, overwrite=True)


def test_what_is_resumed_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run to resume"):
        check_folder(tmp_path, "ranking.json", "steps/*.pt", resume=True, overwrite=False)
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "1.pt").touch()
    check_folder(tmp_path, "ranking.json", "steps/*.pt", resume=True, overwrite=False)
    with pytest.raises(InputError, match="needs the folder"):
        check_folder(None, "ranking.json", resume=True, overwrite=False)


def test_one_cannot_have_both(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exclude each other"):
        check_folder(tmp_path, "ranking.json", resume=True, overwrite=True)
