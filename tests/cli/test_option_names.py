from __future__ import annotations

import importlib

import pytest
import typer.main

from hubscout.cli.option_names import in_options

TUNE = typer.main.get_command(importlib.import_module("hubscout.cli.tune").app).params
RANK = typer.main.get_command(importlib.import_module("hubscout.cli.rank").app).params


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("learning_rate=-1.0: must be above 0.", "--learning-rate -1.0: must be above 0."),
        ("lora_rank=4: the model has none.", "--lora 4: the model has none."),
        ("optimizer='adam': allowed are 'auto'.", "--set optimizer=adam: allowed are 'auto'."),
        ("model='onnx:a b.onnx' is no torch module", "--model 'onnx:a b.onnx' is no torch module"),
        ("Say label= one of: a, b.", "Say --label one of: a, b."),
        ("or say kind='classification' if", "or say --kind classification if"),
        ("resume=True needs the folder: give out=...", "--resume needs the folder: give --out ..."),
        ("overwrite it (overwrite=True, --overwrite).", "overwrite it (--overwrite)."),
        ("limit must be a whole number", "--limit must be a whole number"),
        ("another run: epochs was 1 and is 2; seed was 0", "another run: --epochs was 1 and is 2; --seed was 0"),
        ("Error: A model must be one.", "Error: A model must be one."),
        ("frozen_norm_statistics=True helps", "--set frozen_norm_statistics=true helps"),
        ("hf/x?label=3 and a/seed=3 stay", "hf/x?label=3 and a/seed=3 stay"),
        ("the label of a model stays", "the label of a model stays"),
    ],
)
def test_arguments_become_options(said: str, wanted: str) -> None:
    assert in_options(said, TUNE) == wanted


def test_what_the_command_does_not_have_stays() -> None:
    assert in_options("budget must be: optimizer='adam'", RANK) == "--budget must be: optimizer='adam'"
