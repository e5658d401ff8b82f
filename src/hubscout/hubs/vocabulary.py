"""The tokenizer of a text model, and whether it is the model's own.

transformers makes up a vocabulary of a few tokens where it finds no files of one. Every text then becomes the same
few tokens, and the model's features say next to nothing: such a tokenizer is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubscout.errors import CheckpointError

_ANY_CLASS = ("tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model")
"""Files that hold the vocabulary of a tokenizer of any class."""
_USUAL = (*_ANY_CLASS, "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model")


def check_vocabulary(tokenizer: Any, network: Any, folders: Sequence[Path], identifier: str) -> None:
    """Refuse a tokenizer that was made up, or that belongs to another model.

    Args:
        tokenizer: what transformers opened.
        network: the model whose embeddings the tokens index, or None where it cannot be looked into.
        folders: where the files of the vocabulary may lie.
        identifier: the model, for the message.

    """
    own = getattr(tokenizer, "vocab_files_names", None)
    if not own:  # Tokenizers of bytes and characters have no files: their vocabulary is the alphabet.
        return
    names = sorted({*own.values(), *_ANY_CLASS})
    if (refusal := missing_vocabulary(folders, identifier, names)) is not None:
        raise refusal
    rows = _embedding_rows(network)
    if rows is not None and (len(tokenizer) < rows / 2 or tokenizer.vocab_size > rows):
        raise CheckpointError(
            f"The tokenizer of {identifier} is not the model's own: it knows {len(tokenizer):,} tokens, the model's "
            f"embeddings have {rows:,}. Files of its vocabulary: {', '.join(names)}."
        )


def missing_vocabulary(
    folders: Sequence[Path], identifier: str, names: Sequence[str] = _USUAL
) -> CheckpointError | None:
    """The refusal of a model that has no file of a vocabulary; None where there is one."""
    if any((folder / name).is_file() for folder in folders for name in names):
        return None
    if any(any(folder.glob("*.tiktoken")) for folder in folders):
        return None
    return CheckpointError(
        f"{identifier} has no vocabulary: none of {', '.join(names)} is in {' or '.join(map(str, folders))}. Without "
        "its own tokenizer a text model reads nothing: copy those files from the model that it was trained from."
    )


def _embedding_rows(network: Any) -> int | None:
    """How many tokens the model has embeddings for; None for one that computes them otherwise."""
    try:
        return getattr(network.get_input_embeddings(), "num_embeddings", None)
    except (AttributeError, NotImplementedError):
        return None


def longest_text(tokenizer: Any, network: Any) -> int:
    """How many tokens the model takes: the lower of what its tokenizer and its position embeddings allow."""
    limits = [tokenizer.model_max_length]
    for name, part in network.named_modules():
        if name.endswith(("position_embeddings", "wpe")) and hasattr(part, "num_embeddings"):
            # RoBERTa counts positions from after the padding's own.
            taken = part.padding_idx + 1 if part.padding_idx is not None else 0
            limits.append(part.num_embeddings - taken)
    stated = getattr(network.config, "max_position_embeddings", None) or getattr(network.config, "n_positions", None)
    if len(limits) == 1 and stated and stated > 0:
        limits.append(stated)
    limit = min(limits)
    return int(limit) if limit < 1_000_000 else 512
