"""Errors speak of Python arguments; on the command line they speak of the options of the command that ran."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Sequence
from typing import Any

_OTHER_NAMES = {"data_in_memory": "--in-memory", "lora_rank": "--lora"}
"""Arguments whose option is called otherwise."""


def in_options(message: str, parameters: Sequence[Any]) -> str:
    """Say `--learning-rate -1` where a message says `learning_rate=-1.0`.

    Args:
        message: what an error says.
        parameters: of the command, as click has them.

    Returns:
        The message with every argument that the command has as an option, or takes by `--set`, in that form.

    Example:
        >>> import click
        >>> options = [click.Option(["--max-latency"]), click.Option(["--overwrite"], is_flag=True)]
        >>> in_options("max_latency must be a time. Overwrite it (overwrite=True, --overwrite).", options)
        '--max-latency must be a time. Overwrite it (--overwrite).'

    """
    options = options_by_argument(parameters)
    if "--set" in options.values():
        options |= {name: f"--set {name}" for name in _tuning_arguments() if name not in options}
    for name, option in options.items():
        message = _renamed(message, name, option)
    return re.sub(r"(--[\w-]+)(?:,| or) \1\b", r"\1", message)


def options_by_argument(parameters: Sequence[Any]) -> dict[str, str]:
    """The option, such as `--in-memory`, for each argument, such as `data_in_memory`."""
    named = ((one.name, next((name for name in one.opts if name.startswith("--")), "")) for one in parameters)
    options = {name: option for name, option in named if option}
    return options | {name: option for name, option in _OTHER_NAMES.items() if option in options.values()}


def _renamed(message: str, name: str, option: str) -> str:
    # Not inside a path, another name, or the options of an identifier such as `?pooling=mean`.
    start = rf"(?<![\w?&=./-]){name}"
    joint = "=" if option.startswith("--set ") else " "

    def valued(found: re.Match[str]) -> str:
        value = found["quoted"] if found["quoted"] is not None else found["plain"]
        if found["plain"] == "True":
            return option if joint == " " else f"{option}=true"
        return f"{option}{joint}{shlex.quote(value)}"

    message = re.sub(rf"{start}=(?:'(?P<quoted>[^']*)'|(?P<plain>-?[\w.+]*[\w+]))", valued, message)
    message = re.sub(rf"{start}=(?=[\s.])\s?", f"{option} ", message)
    # A sentence that begins with a small letter begins with the name of an argument.
    return re.sub(rf"(?:(?<=[.:;] )|^){name}(?= (?:must|was|is empty)\b)", option, message)


def _tuning_arguments() -> list[str]:
    from hubscout.tuning.arguments import TuningArguments

    return [field.name for field in dataclasses.fields(TuningArguments)]
