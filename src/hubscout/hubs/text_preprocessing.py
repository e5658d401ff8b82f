"""Texts, pairs of texts and lists of words to tokens, with each word's place among the tokens."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hubscout.errors import InputError, ModelError, check_choice
from hubscout.hubs.backbone import Batch
from hubscout.hubs.pooling import WordPooling

if TYPE_CHECKING:
    from torch import Tensor

IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
WORDS = "word_positions"
"""The key, for word-level inputs, of each word's token: (n, most words of a sample), -1 where there is no word."""
WORD_ENDS = "word_ends"
"""The key of each word's last token, where a word is the average of its tokens; else there is none."""
TRUNCATED = "truncated"
"""The key of what a sample lost to the length limit: words without a token of their own, or 1 for a text cut short."""
SECOND = "second."
"""Before the keys of the second text of a pair, where the two are encoded apart."""

Pairs = Literal["cross", "siamese"]
_slow_tokenizers = threading.Lock()
"""Held while one of those without a fast version works: they are not safe between threads."""


@dataclass(frozen=True)
class Tokens:
    """One tokenised sample; its length is the number of tokens, to sort samples by."""

    ids: np.ndarray
    types: np.ndarray
    words: np.ndarray | None = None
    ends: np.ndarray | None = None
    truncated: int = 0
    second: Tokens | None = None

    def __len__(self) -> int:
        return len(self.ids) + (len(self.second.ids) if self.second else 0)


@dataclass(eq=False)
class TextPreprocessing:
    """A model's tokenizer, its length limit, and how pairs are taken: `cross` as one sequence, `siamese` as two.

    A string is a text, a tuple of two strings a pair, any other sequence of strings a list of words. `words` says
    which tokens stand for a word: its first, its last, or the mean of them all.
    Batches are padded to their own longest sample, on the right. `prompt` goes before every text.
    """

    tokenizer: Any
    max_length: int
    pairs: Pairs
    accepts_types: bool
    words: WordPooling = "first"
    prompt: str = ""

    def __post_init__(self) -> None:
        tokenizer, max_length, pairs, words = self.tokenizer, self.max_length, self.pairs, self.words
        check_choice("pairs", pairs, get_args(Pairs))
        check_choice("words", words, get_args(WordPooling))
        if max_length < 3:
            raise InputError(f"max_length must leave room for a token, got {max_length}.")
        self.pad_id = next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)
        if self._backend is not None:
            # Set once: setting it at every call, as the tokenizer itself does, is not safe between threads.
            self._backend.enable_truncation(max_length=max_length)
            self._backend.no_padding()
            self._space_before_words = _needs_space(self._backend)
        read = f"{max_length}:{pairs}:{words}:{self.accepts_types}:{self.prompt}"
        self.key = f"text:{_fingerprint(tokenizer, self._backend)}:{read}"

    def __call__(self, sample: Any) -> Tokens:
        if isinstance(sample, str):
            return self._encode(sample, None)
        if isinstance(sample, tuple) and len(sample) == 2 and all(isinstance(part, str) for part in sample):
            if self.pairs == "cross":
                return self._encode(*sample)
            first, second = (self._encode(part, None) for part in sample)
            return Tokens(first.ids, first.types, truncated=max(first.truncated, second.truncated), second=second)
        if isinstance(sample, Sequence | np.ndarray) and all(isinstance(part, str) for part in sample):
            return self._encode_words(list(sample))
        raise InputError(f"Expected a text, a pair of texts or a list of words, got {type(sample).__name__}.")

    def collate(self, samples: Sequence[Tokens]) -> Batch:
        import torch

        batch = self._pad(samples)
        if samples[0].second is not None:
            seconds = [sample.second for sample in samples if sample.second is not None]
            batch |= {SECOND + name: tensor for name, tensor in self._pad(seconds).items()}
        for key, name in ((WORDS, "words"), (WORD_ENDS, "ends")):
            if getattr(samples[0], name) is not None:
                batch[key] = _padded([getattr(sample, name) for sample in samples], -1)
        batch[TRUNCATED] = torch.tensor([sample.truncated for sample in samples])
        return batch

    def example(self, length: int) -> Batch:
        """A batch of one text of `length` tokens, or of as many as a text may have; all of them are padding."""
        tokens = np.full(min(length, self.max_length), self.pad_id)
        return self._pad([Tokens(tokens, np.zeros_like(tokens))])

    def augmented(self) -> TextPreprocessing:
        return self

    @property
    def _backend(self) -> Any:
        """The library's fast tokenizer; None for those that are written in Python."""
        return getattr(self.tokenizer, "backend_tokenizer", None)

    def _pad(self, samples: Sequence[Tokens]) -> Batch:
        batch = {
            IDS: _padded([sample.ids for sample in samples], self.pad_id),
            MASK: _padded([np.ones_like(sample.ids) for sample in samples], 0),
        }
        return batch | {TYPES: _padded([sample.types for sample in samples], 0)} if self.accepts_types else batch

    def _encode(self, text: str, pair: str | None) -> Tokens:
        text = self.prompt + text
        if self._backend is not None:
            return self._tokens(self._backend.encode(text, pair))
        with _slow_tokenizers:
            found = self.tokenizer(text, pair, truncation=True, max_length=self.max_length)
            whole = self.tokenizer(text, pair)
        types = found.get(TYPES, [0] * len(found[IDS]))
        cut = int(len(whole[IDS]) > len(found[IDS]))
        return Tokens(np.array(found[IDS] or [self.pad_id]), np.array(types or [0]), truncated=cut)

    def _encode_words(self, words: list[str]) -> Tokens:
        if self._backend is None:
            raise ModelError(
                f"{type(self.tokenizer).__name__} cannot say which token belongs to which word: it has no fast "
                "version, and word-level tasks need one."
            )
        spaced = [f" {word}" if place and self._space_before_words else word for place, word in enumerate(words)]
        encoding = self._backend.encode(spaced, is_pretokenized=True)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for position, word in enumerate(encoding.word_ids):
            if word is not None:
                first.setdefault(word, position)
                last[word] = position
        tokens = self._tokens(encoding)
        return Tokens(
            tokens.ids,
            tokens.types,
            words=_places(last if self.words == "last" else first, len(words)),
            ends=_places(last, len(words)) if self.words == "mean" else None,
            truncated=len(words) - len(first),
        )

    def _tokens(self, encoding: Any) -> Tokens:
        if not encoding.ids:  # an empty text, to a tokenizer without special tokens
            return Tokens(np.array([self.pad_id]), np.array([0]))
        return Tokens(np.array(encoding.ids), np.array(encoding.type_ids), truncated=int(bool(encoding.overflowing)))


def _places(token_of_word: dict[int, int], count: int) -> np.ndarray:
    """A token for each word.

    A word with no token of its own, cut off or made of characters that the tokenizer drops, takes the place of the
    nearest kept one before it.
    """
    places = np.empty(count, dtype=np.int64)
    place = next(iter(token_of_word.values()), 0)
    for word in range(count):
        place = token_of_word.get(word, place)
        places[word] = place
    return places


def _padded(rows: Sequence[np.ndarray], value: int) -> Tensor:
    """Rows of different lengths as one matrix, with `value` behind the shorter ones."""
    from torch import from_numpy
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence([from_numpy(row).long() for row in rows], batch_first=True, padding_value=value)


def _needs_space(backend: Any) -> bool:
    """Whether words given one by one must bring their space to be split as they are within a text."""
    in_text = backend.encode("the cat", add_special_tokens=False).ids
    alone = backend.encode(["the", "cat"], is_pretokenized=True, add_special_tokens=False).ids
    spaced = backend.encode(["the", " cat"], is_pretokenized=True, add_special_tokens=False).ids
    return alone != in_text and spaced == in_text


def _fingerprint(tokenizer: Any, backend: Any) -> str:
    content = (
        backend.to_str() if backend is not None else repr((type(tokenizer), sorted(tokenizer.get_vocab().items())))
    )
    return hashlib.blake2b(content.encode(), digest_size=12).hexdigest()


def model_inputs(batch: Batch, *, second: bool = False) -> Batch:
    """Those tensors of a batch that the network takes: of the first text, or of the second of a siamese pair."""
    names = (IDS, MASK, TYPES)
    prefix = SECOND if second else ""
    return {name: batch[prefix + name] for name in names if prefix + name in batch}


def is_siamese(batch: Batch) -> bool:
    """Whether the batch holds pairs whose texts are encoded apart."""
    return SECOND + IDS in batch
