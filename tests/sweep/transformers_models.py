"""One family of transformers, tiny and with random weights, saved to a folder and opened by hubscout.

Image features are compared with what the family's own classifier takes, or where it has none with the output named
below; text features with hidden states that are pooled here, one text at a time and so without padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from image_families import IMAGES, SIDE, ImageFamily
from PIL import Image
from text_families import TEXT

from hubscout.hubs import load, prepare_torchvision

prepare_torchvision()
import transformers  # noqa: E402

TEXTS = ["The cat sits on the mat and the dog sleeps near the door.", "Shares fell on Monday.", "A kitten."]


def check_image(name: str, folder: Path) -> dict[str, Any]:
    """Save, open and compare; every disagreement is a line of `wrong`. What fails to load raises."""
    family = IMAGES[name]
    torch.manual_seed(0)
    config = getattr(transformers, family.config)(num_labels=5, **family.arguments)
    model = _build(config, "ForImageClassification" if family.oracle == "classifier" else "Model").eval()
    _settle(model)
    model.save_pretrained(folder)
    model.config.mask_ratio = 0.0  # ViT-MAE hides no part of an image that is to be described.
    if name != "timm_wrapper":  # hubscout opens it in timm, which prepares images as its own configuration says
        _processor(family).save_pretrained(folder)
    backbone = load(f"file:{folder}")
    coarse = np.random.default_rng(0).integers(0, 255, (2, 9, 12, 3)).astype(np.uint8)
    images = [Image.fromarray(array).resize((80, 80), Image.Resampling.BICUBIC) for array in coarse]
    batch = backbone.preprocessing.collate([backbone.preprocessing(image) for image in images])
    if name == "timm_wrapper":
        pixels = {"pixel_values": backbone._inputs(batch)}
    else:
        pixels = _processor(family)(images=images, return_tensors="pt")
    with torch.inference_mode():
        output = backbone(batch, backbone.layer_names)
        again = backbone(batch)
        expected, logits = _oracle(model, family, pixels)
    wrong = _compare(backbone, output, expected)
    if not torch.equal(again.features, output.features):
        wrong.append("a second pass gives other features")
    if logits is not None and (output.logits is None or not torch.allclose(output.logits, logits, atol=1e-4)):
        wrong.append("logits differ from those of the model")
    return _line(name, backbone, wrong)


def check_text(name: str, folder: Path) -> dict[str, Any]:
    """As `check_image`; a batch of texts of several lengths must give what each text gives alone."""
    family = TEXT[name]
    torch.manual_seed(0)
    tokenizer = word_pieces()
    arguments = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    config = getattr(transformers, family.config)(**{**arguments, **family.arguments})
    model = _build(config, "Model").eval()
    model.save_pretrained(folder)
    tokenizer = transformers.CanineTokenizer(model_max_length=96) if name == "canine" else tokenizer
    tokenizer.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    backbone = load(f"file:{folder}")
    batch = backbone.preprocessing.collate([backbone.preprocessing(text) for text in TEXTS])
    network = model.get_encoder() if config.is_encoder_decoder else model
    expected = []
    with torch.inference_mode():
        output = backbone(batch, backbone.layer_names)
        for text in TEXTS:
            ids = {"input_ids": tokenizer(text, return_tensors="pt")["input_ids"]}
            hidden = network(**ids).last_hidden_state[0]
            expected.append(hidden.mean(0) if family.pooling == "mean" else hidden[-1])
    return _line(name, backbone, _compare(backbone, output, torch.stack(expected)))


def _build(config: Any, suffix: str) -> Any:
    """By the class's name: some families have two classes of a kind, and transformers does not choose."""
    return getattr(transformers, type(config).__name__.removesuffix("Config") + suffix)(config)


def word_pieces() -> Any:
    """A small WordPiece tokenizer, as BERT's."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=100, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=48,
    )


def _settle(model: Any) -> None:
    """Batch norms with the statistics of images, as in a trained network: else the deeper ones give constants."""
    norms = [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            model.train()(pixel_values=torch.randn(8, 3, SIDE, SIDE))
        model.eval()


def _processor(family: ImageFamily) -> Any:
    if family.processor == "Siglip2ImageProcessor":
        return transformers.Siglip2ImageProcessor(patch_size=16, max_num_patches=16)
    return getattr(transformers, family.processor)(size={"height": SIDE, "width": SIDE})


def _oracle(model: Any, family: ImageFamily, pixels: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    if family.oracle != "classifier":
        assert callable(family.oracle)
        return family.oracle(model(**pixels)), None
    taken: list[torch.Tensor] = []
    heads = [part for part in model.modules() if getattr(part, "out_features", getattr(part, "out_channels", 0)) == 5]
    handle = heads[-1].register_forward_pre_hook(lambda _module, inputs: taken.append(inputs[0]))
    logits = model(**pixels).get("logits")
    handle.remove()
    return taken[0].flatten(1), logits


def _compare(backbone: Any, output: Any, expected: torch.Tensor) -> list[str]:
    wrong = []
    if output.features.shape != expected.shape:
        wrong.append(f"features are {tuple(output.features.shape)}, expected {tuple(expected.shape)}")
    elif not torch.allclose(output.features, expected, atol=1e-4, rtol=1e-3):
        wrong.append(f"features differ by {(output.features - expected).abs().max():.3g}")
    if len(output.features) > 1 and torch.equal(output.features[0], output.features[1]):
        wrong.append("features do not depend on the input")
    if backbone.card.feature_dim != expected.shape[1]:
        wrong.append(f"feature_dim is {backbone.card.feature_dim}, expected {expected.shape[1]}")
    if not backbone.layer_names:
        wrong.append("no layers to tap")
    for layer, values in output.layers.items():
        if values.ndim != 2 or len(values) != len(expected) or not torch.isfinite(values).all():
            wrong.append(f"{layer} gives {tuple(values.shape)}")
    return wrong


def _line(name: str, backbone: Any, wrong: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "feature_dim": backbone.card.feature_dim,
        "flops": backbone.card.flops,
        "layers": len(backbone.layer_names),
        "wrong": wrong,
    }
