"""A backbone whose source head lies in a file of its own, as tuning leaves it where no library has a place for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubscout.errors import CheckpointError
from hubscout.hubs.backbone import Backbone, Batch, Output
from hubscout.hubs.headed_saving import HEAD_WEIGHTS
from hubscout.hubs.weight_files import fingerprint, read_state

if TYPE_CHECKING:
    from torch import nn


class HeadedBackbone(Backbone):
    """The features of one backbone, and as logits what a linear layer makes of them."""

    def __init__(self, inner: Backbone, head: nn.Linear) -> None:
        from torch import nn

        assert inner.module is not None
        self._inner, self.head = inner, head
        self.preprocessing = inner.preprocessing
        self.module = nn.ModuleDict({"backbone": inner.module, "head": head}).eval()
        prints = inner.card.weights_fingerprint, fingerprint(head)
        self.card = replace(inner.card, source_classes=head.out_features, weights_fingerprint="-".join(prints)[:48])

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self._inner.layer_names

    @property
    def averages_layers(self) -> bool:
        return self._inner.averages_layers

    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        found = self._inner.forward(batch, layers)
        return Output(found.features, self.head(found.features), found.layers)

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        self._inner.save(folder, head=head, target_names=target_names, kind=kind)


def add_saved_head(backbone: Backbone, folder: Path) -> Backbone:
    """The backbone with the head that lies beside it in the folder, or as it is where there is none."""
    from torch import nn

    path = folder / HEAD_WEIGHTS
    if not path.is_file():
        return backbone
    state = read_state(path)
    if "weight" not in state or state["weight"].ndim != 2:
        raise CheckpointError(f"{path} holds no linear layer; its tensors are {', '.join(state)}.")
    head = nn.Linear(state["weight"].shape[1], state["weight"].shape[0], bias="bias" in state)
    head.load_state_dict(state)
    return HeadedBackbone(backbone, head)
