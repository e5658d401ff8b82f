"""Low-rank adapters through peft: put in before tuning, merged into the weights after it."""

from __future__ import annotations

from torch import nn

from hubscout.errors import InputError
from hubscout.hubs import prepare_torchvision
from hubscout.optional import require


def add_adapters(body: nn.Module, rank: int, *, without: set[str]) -> int:
    """Freeze the body and put adapters of `rank` beside its linear layers and ungrouped convolutions; how many.

    `without` names modules that no adapter goes to: a source head, for one.
    """
    prepare_torchvision()  # peft imports transformers, and that torchvision
    peft = require("peft", extra="tuning", purpose="LoRA (lora_rank)")
    names = [
        name
        for name, module in body.named_modules()
        if name not in without and (isinstance(module, nn.Linear) or _is_ungrouped(module))
    ]
    if not names:
        raise InputError(f"lora_rank={rank}: the model has no linear layer and no ungrouped convolution to adapt.")
    config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=names, lora_dropout=0.0, bias="none")
    peft.inject_adapter_in_model(config, body)
    for name, parameter in body.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return len(names)


def merge_adapters(body: nn.Module) -> None:
    """Add what the adapters learnt to the weights and take them out: the network has its old structure again."""
    tuners = require("peft.tuners.tuners_utils", extra="tuning", purpose="LoRA (lora_rank)")
    for name, module in list(body.named_modules()):
        if isinstance(module, tuners.BaseTunerLayer):
            module.merge()
            parent, _, child = name.rpartition(".")
            setattr(body.get_submodule(parent) if parent else body, child, module.get_base_layer())


def _is_ungrouped(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.groups == 1
