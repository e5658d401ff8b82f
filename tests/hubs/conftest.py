"""Small but real model folders, as `save_pretrained` leaves them: what a hub would have downloaded."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hubscout.hubs import prepare_torchvision

sys.path.insert(0, str(Path(__file__).parent))
from hub_client import HubClient
from hub_server import HubServer

prepare_torchvision()

SENTENCES = [
    "The cat sits on the mat and the dog sleeps near the door.",
    "Shares fell sharply on Monday after a long week of trading.",
    "EU rejects German call to boycott British lamb.",
    "A kitten is lying on a rug, unhappily unwilling to move.",
]
TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def shared() -> Path:
    root = Path(os.environ.get("HUBSCOUT_SHARED", Path(__file__).parents[3] / "shared"))
    if not (root / "hub" / "weights").is_dir():
        pytest.skip("the folder of real weights is not here")
    return root


@pytest.fixture(scope="session")
def image() -> Image.Image:
    coarse = np.random.default_rng(0).integers(0, 255, (9, 12, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC)


def word_pieces() -> Any:
    """A WordPiece tokenizer like BERT's, trained on the sentences above."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=24,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def byte_pairs() -> Any:
    """A byte-level BPE like GPT-2's: no special tokens, words begin with a space."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", model_max_length=32)


def save(folder: Path, model: Any, *companions: Any) -> Path:
    model.eval().save_pretrained(folder)
    for companion in companions:
        companion.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    tokenizer = word_pieces()
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=24, pad_token_id=0, **TINY)
    return save(tmp_path_factory.mktemp("bert"), BertForMaskedLM(config), tokenizer)


@pytest.fixture(scope="session")
def bert_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    tokenizer = word_pieces()
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=24, num_labels=5, pad_token_id=0, **TINY)
    return save(tmp_path_factory.mktemp("bert-classifier"), BertForSequenceClassification(config), tokenizer)


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokenizer = byte_pairs()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return save(tmp_path_factory.mktemp("gpt2"), GPT2LMHeadModel(config), tokenizer)


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    tokenizer = word_pieces()
    config = T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return save(tmp_path_factory.mktemp("t5"), T5ForConditionalGeneration(config), tokenizer)


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    config = ViTConfig(image_size=32, patch_size=8, num_labels=7, **TINY)
    processor = ViTImageProcessor(size={"height": 32, "width": 32})
    return save(tmp_path_factory.mktemp("vit"), ViTForImageClassification(config), processor)


@pytest.fixture(scope="session")
def convnext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import ConvNextConfig, ConvNextImageProcessor, ConvNextModel

    torch.manual_seed(0)
    config = ConvNextConfig(hidden_sizes=[8, 12, 16, 24], depths=[1, 1, 1, 1], image_size=64)
    processor = ConvNextImageProcessor(size={"shortest_edge": 64})
    return save(tmp_path_factory.mktemp("convnext"), ConvNextModel(config), processor)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    torch.manual_seed(0)
    tokenizer = word_pieces()
    config = CLIPConfig(
        text_config={**TINY, "vocab_size": len(tokenizer), "max_position_embeddings": 24, "eos_token_id": 3},
        vision_config={**TINY, "image_size": 32, "patch_size": 8, "hidden_size": 40},
        projection_dim=16,
    )
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return save(tmp_path_factory.mktemp("clip"), CLIPModel(config), processor, tokenizer)


@pytest.fixture(scope="session")
def wav2vec2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2Model

    torch.manual_seed(0)
    config = Wav2Vec2Config(
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        feat_extract_norm="layer",
        **TINY,
    )
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=16_000, return_attention_mask=True)
    return save(tmp_path_factory.mktemp("wav2vec2"), Wav2Vec2Model(config), extractor)


@pytest.fixture(scope="session")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=50,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    extractor = WhisperFeatureExtractor(chunk_length=2)
    return save(tmp_path_factory.mktemp("whisper"), WhisperForConditionalGeneration(config), extractor)


def save_timm(folder: Path, name: str = "test_resnet", **options: Any) -> Path:
    """A folder in the layout that timm has on the Hub."""
    import timm
    import torch

    torch.manual_seed(0)
    timm.models.save_for_hf(timm.create_model(name, **options), str(folder), safe_serialization=True)
    return folder


@pytest.fixture(scope="session")
def repositories(bert: Path, vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind of repository that a hub may have, as OWNER/NAME."""
    import torch
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer

    root = tmp_path_factory.mktemp("repositories")
    for name in ("bert", "gated", "private", "big", "renewed", "cut", "altered", "spoiled", "stalled", "half", "slow"):
        shutil.copytree(bert, root / "acme" / name)
    shutil.copytree(vit, root / "acme" / "vit")
    pickled = shutil.copytree(bert, root / "acme" / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    mute = shutil.copytree(bert, root / "acme" / "mute")
    for file in mute.glob("tokenizer*"):
        file.unlink()
    code = shutil.copytree(bert, root / "evil" / "remote")
    config = json.loads((code / "config.json").read_text())
    classes = {"AutoConfig": "code.Config", "AutoModel": "code.Model", "AutoTokenizer": ["code.Tokenizer", None]}
    (code / "config.json").write_text(json.dumps(config | {"model_type": "their-own", "auto_map": classes}))
    trap = "import os, pathlib\npathlib.Path(os.environ['TRAP']).touch()\n"
    (code / "code.py").write_text(trap + "from transformers import BertConfig as Config, BertModel as Model\n")
    save_timm(root / "timm" / "test_resnet.r160_in1k", num_classes=1000)
    save_timm(root / "acme" / "flowers", num_classes=5)
    SentenceTransformer(str(bert)).save(str(root / "sentence-transformers" / "tiny"))
    return root


@pytest.fixture(scope="session")
def hub(repositories: Path) -> Iterator[HubServer]:
    """A Hugging Face Hub with these repositories."""
    with HubServer() as server:
        for folder in sorted(repositories.glob("*/*")):
            name = folder.relative_to(repositories).as_posix()
            server.add(name, folder, gated=name == "acme/gated", private=name == "acme/private")
        yield server


@pytest.fixture(scope="session")
def client(hub: HubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubClient]:
    """A process that takes it for the Hugging Face Hub."""
    home = tmp_path_factory.mktemp("hub-home")
    process = HubClient(hub.url, home, TRAP=str(home / "executed"))
    yield process
    process.close()


@pytest.fixture
def newcomer(hub: HubServer, tmp_path: Path) -> Iterator[HubClient]:
    """Such a process with an empty cache, for tests of what is fetched."""
    process = HubClient(hub.url, tmp_path / "home", TRAP=str(tmp_path / "executed"))
    yield process
    process.close()
