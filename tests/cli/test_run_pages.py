"""hubscout serve"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_page_offers_no_code_that_a_file_names(hubscout: Run, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "models.txt").write_text(f"{zoo}:red\n")
    refused = hubscout("serve", tmp_path / "runs", "--port", "0", "-m", f"@{tmp_path / 'models.txt'}")
    assert refused.exit_code == 1
    assert "models.txt names" in refused.stderr
    assert "--allow-code" in refused.stderr


def test_a_folder_that_is_none_is_said(hubscout: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    result = hubscout("serve", file)
    assert result.exit_code == 2
    assert result.stderr == f"Error: {file} is a file: give the folder of the run folders.\n"
    monkeypatch.setattr("hubscout.serve.serve", lambda *_, ready, **__: ready("http://here/", None))
    assert "typo is a new, empty folder" in hubscout("serve", tmp_path / "typo").stderr
    assert "empty folder" not in hubscout("serve", tmp_path).stderr
    monkeypatch.chdir(tmp_path)
    assert "runs is a new, empty folder" in hubscout("serve").stderr  # where runs go that nobody gave a folder
