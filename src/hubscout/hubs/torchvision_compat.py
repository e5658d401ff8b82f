"""torchvision beside a torch that it was not built for."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

_lock = threading.Lock()
_declarations: Any = None  # The operators vanish with the library object that declares them.


def prepare_torchvision() -> bool:
    """Make `import torchvision` work; call it before importing torchvision, timm or transformers.

    A torchvision wheel built for CUDA cannot load its library beside a CPU-only torch. On import it then asks for
    operators that the library would have declared ("operator torchvision::nms does not exist"), and timm and
    transformers fail with it. No model or transform that hubscout uses calls these operators, so that their
    declarations are enough. Where torchvision loads by itself, or is not installed, nothing changes.

    Returns:
        Whether declarations were needed.

    Example:
        >>> _ = prepare_torchvision()
        >>> import timm

    """
    global _declarations
    with _lock:
        if _declarations is not None:
            return True
        try:
            importlib.import_module("torchvision")
        except ModuleNotFoundError:
            return False
        except RuntimeError as error:
            if "torchvision::" not in str(error):
                raise
        else:
            return False
        import torch

        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declarations = library
        importlib.import_module("torchvision")
        return True
