"""What a few long texts cost in tuning: batches cut into groups of similar length against batches as they are.

    python benchmarks/long_texts.py                       # a network of the size of a MiniLM on the CPU, one thread
    python benchmarks/long_texts.py --device cuda --batch-size 64

Seconds of the steps of an epoch, both ways in turns, on texts as long as those of SST-2 (19 words, half of them 12 to
26) and on the same with some of 500 words. On the CPU they are the processor's, on a GPU the clock's. First it says
what a pass of its own costs beside its tokens, which `hubscout.hubs.length_groups.TOKENS_PER_PASS` should be. The
weights are random: how long a pass takes does not depend on them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from hubscout.hubs import Backbone, length_groups, load, prepare_torchvision
from hubscout.runs.events import Event, Progress
from hubscout.tasks import Split, Task
from hubscout.tuning import tune

WORDS = [f"w{number}" for number in range(5000)]


def random_encoder(folder: Path, layers: int) -> str:
    """A BERT of the width of a MiniLM with random weights, each of whose tokens is a word."""
    prepare_torchvision()
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {word: place for place, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = BertConfig(
        vocab_size=30_522, hidden_size=384, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=1536
    )
    BertModel(config).save_pretrained(folder)
    plain = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    plain.add_tokens([f"[unused{number}]" for number in range(30_522 - len(vocabulary))])
    plain.model_max_length = 512
    plain.save_pretrained(folder)
    return f"file:{folder}"


def texts_task(samples: int, long: int) -> Task:
    """Texts of random words, some of them long."""
    generator = np.random.default_rng(0)
    lengths = np.clip(generator.normal(19, 9, samples).round().astype(int), 2, 52)
    lengths[generator.choice(samples, long, replace=False)] = 500
    texts = [" ".join(generator.choice(WORDS, length)) for length in lengths]
    split, few = Split(texts, np.arange(samples) % 2), Split(texts[:4], np.arange(4) % 2)
    return Task(
        "words", "classification", "text", ("a", "b"), {"train": split, "validation": few, "test": few}, "words"
    )


def tokens_per_pass(model: Backbone, device: str, clock: Callable[[], float]) -> float:
    """What a forward and a backward pass over 4 tokens take, in tokens of a pass over 32 texts of 32."""
    model.to(device)

    def seconds(rows: int, length: int) -> float:
        tokens = torch.ones(rows, length, dtype=torch.long, device=device)
        best = float("inf")
        for _ in range(5):
            began = clock()
            model.forward({"input_ids": tokens, "attention_mask": tokens}).features.sum().backward()
            if device != "cpu":
                torch.cuda.synchronize()
            best = min(best, clock() - began)
        return best

    return 1024 * seconds(1, 4) / seconds(32, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    clock = time.process_time if options.device == "cpu" else time.perf_counter
    if options.device == "cpu":
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = random_encoder(Path(folder), options.layers)
        print(f"a pass of its own costs {tokens_per_pass(load(model), options.device, clock):.0f} tokens")
        for long in (0, 4):
            task, seconds = texts_task(options.samples, long), {"as they are": 0.0, "in groups": 0.0}
            own = dict(length_groups.TOKENS_PER_PASS)
            for way in list(seconds) * options.rounds:
                length_groups.TOKENS_PER_PASS |= dict.fromkeys(own, 10**9) if way == "as they are" else own
                seconds[way] += epoch_seconds(task, model, options, clock)
            ratio = seconds["as they are"] / seconds["in groups"]
            said = ", ".join(f"{way} {total / options.rounds:.2f} s" for way, total in seconds.items())
            print(f"{long} of {options.samples} texts are long: an epoch takes {said}: {ratio:.2f} times")


def epoch_seconds(task: Task, model: str, options: argparse.Namespace, clock: Callable[[], float]) -> float:
    """Of the steps of one epoch but the first, which warms up."""
    ticks: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, Progress):
            ticks.append(clock())

    tune(
        task,
        model,
        method="fine-tune",
        epochs=1,
        batch_size=options.batch_size,
        device=options.device,
        log_every_steps=1,
        workers=0,
        learning_rate=1e-5,
        head_init="random",
        linear_probe=False,
        bootstrap_resamples=1,
        observer=observe,
    )
    return ticks[-1] - ticks[0]


if __name__ == "__main__":
    main()
