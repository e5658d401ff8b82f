"""What several tests of hubs do with models: run one, save one, and attack with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hubscout.hubs import Backbone, Output


def run(backbone: Backbone, samples: list[Any], layers: tuple[str, ...] = ()) -> Output:
    """One batch of raw samples through a backbone."""
    batch = backbone.preprocessing.collate([backbone.preprocessing(sample) for sample in samples])
    with torch.no_grad():
        return backbone(batch, layers)


def save_hub_folder(architecture: str, folder: Path, **arguments: Any) -> torch.nn.Module:
    """A folder that timm saved."""
    import timm
    from timm.models import save_for_hf

    torch.manual_seed(0)
    model = timm.create_model(architecture, **arguments).eval()
    save_for_hf(model, str(folder), model_args=arguments, safe_serialization=True)
    return model


class Attack:
    """Touches a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)
