"""Which models run code, and who may say so: the user, never a file."""

from __future__ import annotations

from hubscout.errors import CodeNotAllowedError, InputError
from hubscout.hubs.identifiers import Identifier


def code_wanted(identifier: Identifier) -> str | None:
    """The code that opening a model would run, in words; None where only data is read.

    Hubs of other packages count as data: who installed them has said yes to their code.

    >>> code_wanted(Identifier.parse("file:w.pth?arch=python:my_models.py:build"))
    'the function my_models.py:build'
    >>> code_wanted(Identifier.parse("file:w.pth?arch=timm/resnet18")) is None
    True
    """
    if identifier.hub == "python":
        return f"the function {identifier.name}"
    if identifier.options.get("trust_remote_code"):
        return "custom code"
    if "arch" not in identifier.options:
        return None
    try:
        return code_wanted(Identifier.parse(str(identifier.options["arch"])))
    except InputError:
        return None  # no hub opens it either


def refuse_code(identifier: Identifier) -> None:
    """Raise where a model was named by a file and would run code."""
    wanted = code_wanted(identifier) if identifier.origin is not None else None
    if wanted is not None:
        raise CodeNotAllowedError(
            f"{identifier.origin} names the model {str(identifier)!r:.300}, which would run {wanted}; nothing was run. "
            "What a file names opens data only. If you trust it, allow its code: --allow-code on the command line, "
            "allow_code=True in Python."
        )
