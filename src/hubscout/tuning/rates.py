"""Which optimiser and which learning rates suit which data: the defaults of `tune` and of the search of `reference`."""

from __future__ import annotations

from dataclasses import dataclass

from hubscout.tasks.kinds import kind_of

_TEXTS = ("text", "text-pair", "tokens")
_HALF_DECADES = tuple(float(f"{10 ** -(2 + k / 2):.6g}") for k in range(-2, 5))


@dataclass(frozen=True)
class Rates:
    """Of the backbone; a new head has ten times them.

    `tried` by a search, and those `beyond` only where the best of the tried ones is at their end.
    """

    default: float
    tried: tuple[float, ...]
    beyond: tuple[float, ...]
    weight_decays: tuple[float, ...]


# The paper's seven by seven, logarithmically spaced.
_SGD = Rates(0.003, _HALF_DECADES, (), tuple(float(f"{10 ** -(6 - k / 2):.6g}") for k in range(7)))
# Decoupled decay is multiplied by the rate: below a hundredth it does nothing.
_DECOUPLED = (1e-4, 0.01, 0.1)
_ADAMW = Rates(3e-4, (1e-4, 3e-4, 1e-3), (1e-5, 3e-5, 3e-3), _DECOUPLED)
# Encoders collapse at rates that suit images: above a few 1e-4 the large ones say the same of every text.
_ADAMW_TEXT = Rates(5e-5, (1e-5, 3e-5, 1e-4), (1e-6, 3e-6, 3e-4, 1e-3), _DECOUPLED)


def default_optimizer(modality: str, kind: str) -> str:
    """AdamW for texts, and for numbers: SGD sees their squared errors times the size of the features, and diverges.

    >>> default_optimizer("image", "classification"), default_optimizer("image", "regression")
    ('sgd', 'adamw')
    """
    return "adamw" if modality in _TEXTS or kind_of(kind).is_real_valued else "sgd"


def rates_of(optimizer: str, modality: str) -> Rates:
    """The rates of an optimiser for a kind of input.

    >>> rates_of("adamw", "text").tried, rates_of("sgd", "image").default
    ((1e-05, 3e-05, 0.0001), 0.003)
    """
    if optimizer == "sgd":
        return _SGD
    return _ADAMW_TEXT if modality in _TEXTS else _ADAMW
