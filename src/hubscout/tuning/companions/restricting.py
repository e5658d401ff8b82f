"""What of a network is trained, and what holds it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hubscout.tuning.companions.bss import BatchSpectralShrinkage
from hubscout.tuning.companions.freezing import freeze
from hubscout.tuning.companions.l2_sp import L2SP
from hubscout.tuning.companions.lora import add_adapters
from hubscout.tuning.companions.penalty import Penalty

if TYPE_CHECKING:
    import torch

    from hubscout.tuning.arguments import TuningArguments
    from hubscout.tuning.network import Network


def restrict(
    network: Network, arguments: TuningArguments, unused: Sequence[str], device: torch.device
) -> Iterator[str]:
    """Add adapters, freeze, and set the penalties, as the arguments say; gives notes of what was done."""
    if arguments.lora_rank is not None:
        heads = {name.rpartition(".")[0] for name in unused}
        count = add_adapters(network.body, arguments.lora_rank, without=heads)
        network.to(device)
        yield f"LoRA of rank {arguments.lora_rank} beside {count} layers."
    if arguments.freeze is not None:
        frozen = freeze(network.body, arguments.freeze)
        yield f"{frozen:,} parameters of the backbone are frozen."
    penalties: dict[str, Penalty] = {}
    if arguments.l2_sp:
        penalties["l2-sp"] = L2SP(network.body, arguments.l2_sp)
    if arguments.bss:
        penalties["bss"] = BatchSpectralShrinkage(arguments.bss)
    network.penalties = penalties
