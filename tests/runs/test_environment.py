from __future__ import annotations

import json
import subprocess
import sys

from hubscout.runs.environment import describe_environment, package_versions


def test_it_says_what_a_run_was_made_with() -> None:
    record = json.loads(json.dumps(describe_environment(device="cpu")))
    assert record["device"] == "cpu"
    assert record["cores"] >= 1
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["packages"]["numpy"]
    assert package_versions(("numpy", "no-such-package")).keys() == {"numpy"}


def test_looking_does_not_load_torch() -> None:
    code = (
        "import sys; from hubscout.runs.environment import describe_environment; describe_environment();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
