"""hubscout serve"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_a_page_offers_no_code_that_a_file_names(hubscout: Run, zoo: str, tmp_path: Path) -> None:
    (tmp_path / "models.txt").write_text(f"{zoo}:red\n")
    refused = hubscout("serve", tmp_path / "runs", "--port", "0", "-m", f"@{tmp_path / 'models.txt'}")
    assert refused.exit_code == 1
    assert "models.txt names" in refused.stderr
    assert "--allow-code" in refused.stderr
