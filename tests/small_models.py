"""Small models and data that tests of several folders share: nothing is downloaded, all is made in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = ("good", "fine", "bad", "poor", "film", "book", "a", "the")


def save_bert(
    folder: Path,
    words: Sequence[str] = WORDS,
    *,
    width: int = 16,
    seed: int = 0,
    longest: int = 16,
    dropout: float = 0.1,
) -> str:
    """Write a BERT with random weights, each of whose tokens is a word; gives its identifier."""
    import torch

    from hubscout.hubs import prepare_torchvision

    prepare_torchvision()
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=longest,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_max_length=longest,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    ).save_pretrained(folder)
    return f"file:{folder}"


COLOUR_NETWORKS = '''
import time

import torch
from torch import nn

CONFIG = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 1.0}


class Channels(nn.Module):
    """Averages of patches of some colour channels, after a rest."""

    def __init__(self, keep, seconds=0.0):
        super().__init__()
        self.pretrained_cfg = CONFIG
        self.num_features = 12
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.keep = nn.Parameter(torch.tensor(keep), requires_grad=False)
        self.seconds = seconds

    def forward(self, image):
        time.sleep(self.seconds)
        return self.pool(image * self.keep[:, None, None]).flatten(1)


def colours():
    return Channels([1.0, 1.0, 1.0])


def red():
    return Channels([1.0, 0.0, 0.0])
'''
"""The source of a module of networks, for `python:` identifiers; tests append their own."""


def write_colour_images(folder: Path) -> Path:
    """90 noisy images in a folder per class: reddish, greenish or bluish."""
    generator = np.random.default_rng(0)
    for place, name in enumerate(("red", "green", "blue")):
        (folder / name).mkdir(parents=True)
        for index in range(30):
            pixels = generator.integers(0, 256, (16, 16, 3)) * 0.5
            pixels[:, :, place] += generator.integers(10, 60)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{index}.png")
    return folder
