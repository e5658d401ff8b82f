"""`Backbone`: the shape that every model of every hub is brought into."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hubscout.errors import ModalityError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Batch = dict[str, "Tensor"]
"""What a preprocessing collates and a backbone takes; every value has the batch as its first axis."""


class Preprocessing(Protocol):
    """One model's own way from a raw input to what its network takes."""

    @property
    def key(self) -> str:
        """Equal keys give equal outputs: inputs are decoded once for all models that share a key."""

    def __call__(self, sample: Any) -> Any:
        """One raw input, prepared; runs in decoding threads and must not touch shared state."""

    def collate(self, samples: Sequence[Any]) -> Batch:
        """A batch out of prepared inputs.

        Args:
            samples: what preprocessing gave, one for each input.

        Returns:
            The batch: name → tensor.

        """

    def augmented(self) -> Preprocessing:
        """The same with the random augmentation that is standard for the model; itself where there is none.

        Returns:
            The preprocessing for training.

        """


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What is known of a model beside its weights. `identifier` opens it again.

    Hubs and configurations say anything: a fact of another type than the one here becomes None, and `notes` say so.

    Example:
        >>> facts = {"feature_dim": 512, "params": 11_689_512, "bytes": 46_796_648, "flops": "many"}
        >>> ModelCard(identifier="timm/resnet18", architecture="resnet18", modalities=("image",), **facts).notes
        ("flops: 'many' makes no sense and is left out",)

    """

    identifier: str
    architecture: str
    modalities: tuple[str, ...]
    feature_dim: int
    params: int
    bytes: int
    flops: int | None = None
    """Multiply-adds counted twice, for one sample at the model's own input size."""
    source_classes: int | None = None
    """Size of the source head; None for a model without one."""
    source_data: str | None = None
    """What it was pre-trained with, in words."""
    source_accuracy: float | None = None
    """On that data."""
    licence: str | None = None
    """As the hub names it."""
    downloads: int | None = None
    """As the hub counted them."""
    commit: str | None = None
    """What the Hugging Face Hub calls the version of the repository that the weights are from."""
    weights_fingerprint: str = ""
    """A hash of the weights."""
    code_fingerprint: str = ""
    """Of the user's own source that makes the model; "" where only installed packages do."""
    tuned_from: str = ""
    """Of a tuned network: the identifier that its architecture is opened by."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        notes = list(self.notes)
        for name, kind in _FACTS.items():
            said = getattr(self, name)
            taken = _sensible(said, kind)
            if said is not None and taken is None:
                notes.append(f"{name}: {said!r:.60} makes no sense and is left out")
            object.__setattr__(self, name, taken)
        object.__setattr__(self, "architecture", self.architecture or "unknown")
        object.__setattr__(self, "notes", tuple(notes))


_INPUTS = {"image": "images", "text-pair": "pairs of texts", "tokens": "lists of words", "array": "arrays"}


def check_modality(card: ModelCard, modality: str, *, called: str = "This model") -> None:
    """Raise where a model does not read inputs of a modality, before it fails in a stranger way.

    A card without modalities says nothing, and the model is tried. `called` names the model in the message.
    """
    if card.modalities and modality not in card.modalities:
        takes, given = " or ".join(_INPUTS.get(name, name) for name in card.modalities), _INPUTS.get(modality, modality)
        hint = ' If they are images, open them with modality="image".' if (takes, given) == ("images", "arrays") else ""
        raise ModalityError(f"{called} takes {takes}, but the task's inputs are {given}.{hint}")


_FACTS: Mapping[str, Any] = {
    "architecture": str,
    "flops": int,
    "source_classes": int,
    "source_data": str,
    "source_accuracy": float,
    "licence": str,
    "downloads": int,
}


def _sensible(said: Any, kind: Any) -> Any:
    """A fact of this type that every file format can hold; several texts, such as two licences, become one."""
    if kind is str:
        if isinstance(said, list | tuple) and said and all(isinstance(part, str) for part in said):
            said = ", ".join(said)
        return said.encode("utf-8", "replace").decode() if isinstance(said, str) else None
    number = isinstance(said, numbers.Integral if kind is int else numbers.Real) and not isinstance(said, bool)
    return kind(said) if number and abs(said) < 1 << 63 else None


@dataclass(frozen=True)
class Output:
    """What one forward pass gives.

    `features` are (n, D), or for word-level inputs (words in the batch, D) with the words in reading order.
    `logits` are those of the source head, None where there is none. `layers` are the tapped ones, each (n, D_layer).
    """

    features: Tensor
    logits: Tensor | None = None
    layers: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def joined(cls, outputs: Sequence[Output]) -> Output:
        """Those of several batches, one after the other.

        Args:
            outputs: of one backbone, at least one.

        Returns:
            The rows of all.

        """
        import torch

        logits = [output.logits for output in outputs if output.logits is not None]
        return cls(
            torch.cat([output.features for output in outputs]),
            torch.cat(logits) if logits else None,
            {name: torch.cat([output.layers[name] for output in outputs]) for name in outputs[0].layers},
        )

    def take(self, rows: Tensor | slice) -> Output:
        """Some of its rows.

        Args:
            rows: numbers of rows in any order, or a slice.

        Returns:
            The output of these rows.

        """
        layers = {name: value[rows] for name, value in self.layers.items()}
        return Output(self.features[rows], None if self.logits is None else self.logits[rows], layers)


class Backbone(ABC):
    """A pre-trained model: from a batch to features and, in the same pass, the logits of its source head.

    `module` is the network, to be moved, frozen or trained; None for a model that torch does not run (ONNX).
    `forward` is differentiable and leaves the choice of gradients, autocast and train or eval mode to its caller.

    Example:
        >>> backbone = hubscout.load("timm/resnet18.a1_in1k")  # doctest: +SKIP
        >>> batch = backbone.preprocessing.collate([backbone.preprocessing(image)])  # doctest: +SKIP
        >>> backbone(batch).features.shape  # doctest: +SKIP
        torch.Size([1, 512])

    """

    card: ModelCard
    preprocessing: Preprocessing
    module: nn.Module | None
    settled_options: frozenset[str] = frozenset()
    """Options of the identifier that show in `card.weights_fingerprint`, in the network or in `preprocessing.key`, so
    that the identifier need not say them for two models to be told apart."""

    @abstractmethod
    def forward(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        """Run a batch.

        Args:
            batch: what `preprocessing.collate` gave, on the device of the model.
            layers: those of `layer_names` whose outputs are wanted too.

        Returns:
            Features, source logits and the wanted layers, on the same device.

        Raises:
            InputError: the model has no such layer.

        """

    def __call__(self, batch: Batch, layers: Sequence[str] = ()) -> Output:
        return self.forward(batch, layers)

    def __repr__(self) -> str:
        card = self.card
        reads = "/".join(card.modalities) or "unknown inputs"
        return f"Backbone({card.identifier!r}: {reads} to {card.feature_dim} features, {card.params:,} parameters)"

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The layers that can be tapped, from the input to the output."""
        return ()

    @property
    def averages_layers(self) -> bool:
        """Whether `mean`, the average of the layers after the first, can be tapped beside those of `layer_names`."""
        return False

    @property
    def ignores_padding(self) -> bool:
        """Whether it gives the same for a sound, but for rounding, however much silence is put behind it in a batch."""
        return False

    def to(self, device: str | torch.device) -> Backbone:
        """Move to a device, in place.

        Args:
            device: "cpu", "cuda", "cuda:N" or "mps".

        Returns:
            The backbone itself.

        """
        if self.module is not None:
            self.module.to(device)
        return self

    def save(self, folder: Path, *, head: nn.Module, target_names: Sequence[str], kind: str) -> None:
        """Write the backbone with a new head so that the library it came from opens it again.

        Args:
            folder: where to; made if it is missing.
            head: one linear layer from the features to the targets, dropout around it aside.
            target_names: what its outputs are called.
            kind: the kind of task, such as "classification".

        Raises:
            ModelError: a head that is not one linear layer of this shape.
            NotImplementedError: a model that cannot be saved, such as an ONNX file.

        """
        raise NotImplementedError(f"{type(self).__name__} cannot be saved with a new head.")
