"""What a run was made with, so that it can be made again."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "hubscout",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "torchvision",
    "timm",
    "transformers",
    "sentence-transformers",
    "datasets",
    "onnxruntime",
    "pandas",
    "pyarrow",
    "pillow",
    "ray",
)


def package_versions(names: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Versions of the installed ones among `names`, without importing any."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def processor() -> str:
    """The name of the processor, as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_environment(*, device: str | None = None) -> dict[str, Any]:
    """Versions, hardware, command line and time. Looks at accelerators only if torch is loaded already."""
    record: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[:],
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": usable_cores(),
        "packages": package_versions(),
    }
    if device is not None:
        record["device"] = device
    torch = sys.modules.get("torch")
    if torch is not None:
        record["threads"] = torch.get_num_threads()
        if torch.cuda.is_available():
            record["accelerators"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return record
