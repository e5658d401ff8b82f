"""`ModelEntry` and `ModelListing`: what a hub says it has, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TEXT_MODALITIES = ("text", "text-pair", "tokens")
"""What a model of texts takes."""


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """One model of a hub. What the hub does not tell is None."""

    identifier: str
    params: int | None = None
    flops: int | None = None
    source_data: str | None = None
    licence: str | None = None
    downloads: int | None = None
    input_size: int | None = None
    """Pixels on a side, for image models."""
    on_this_machine: bool = False
    modalities: tuple[str, ...] = ()
    """The kinds of input that it takes; empty where the hub does not tell."""

    def takes(self, modality: str) -> bool:
        """Whether it may take such inputs."""
        return not self.modalities or modality in self.modalities


class ModelListing(list[ModelEntry]):
    """The entries, with `notes` on how they were found, such as that the hub could not be reached."""

    def __init__(self, entries: Iterable[ModelEntry] = (), notes: Iterable[str] = ()) -> None:
        super().__init__(entries)
        self.notes: tuple[str, ...] = tuple(notes)
