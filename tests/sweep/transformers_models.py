"""One family of transformers, tiny and with random weights, saved to a folder and opened by hubscout.

Image features are compared with what the family's own classifier takes, or where it has none with the output named
below; text features with hidden states that are pooled here, one text at a time and so without padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from hubscout.hubs import load, prepare_torchvision

prepare_torchvision()
import transformers  # noqa: E402

TEXTS = ["The cat sits on the mat and the dog sleeps near the door.", "Shares fell on Monday.", "A kitten."]
SIDE = 64

WIDTH: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
PATCHES = {**WIDTH, "image_size": SIDE, "patch_size": 16}
TOWERS = {"vision_config": PATCHES, "text_config": {**WIDTH, "vocab_size": 50}}
STAGES = {"hidden_sizes": [8, 12, 16, 24], "depths": [1, 1, 1, 1]}
WINDOWS = {"image_size": SIDE, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}


@dataclass(frozen=True)
class ImageFamily:
    """`oracle` is "classifier", or a function from the outputs of the base model to features."""

    config: str
    arguments: dict[str, Any]
    oracle: str | Callable[[Any], torch.Tensor] = "classifier"
    processor: str = "ViTImageProcessor"


def _pooler(outputs: Any) -> torch.Tensor:
    return outputs.pooler_output.flatten(1)


def _first(outputs: Any) -> torch.Tensor:
    return outputs.last_hidden_state[:, 0]


def _map_mean(outputs: Any) -> torch.Tensor:
    return outputs.last_hidden_state.mean((2, 3))


def _mean(outputs: Any) -> torch.Tensor:
    return outputs.last_hidden_state.mean(1)


IMAGES: dict[str, ImageFamily] = {
    "beit": ImageFamily("BeitConfig", PATCHES),
    "bit": ImageFamily(
        "BitConfig", {"embedding_size": 32, "hidden_sizes": [32, 32, 64, 64], "depths": [1, 1, 1, 1], "num_groups": 8}
    ),
    "clip": ImageFamily("CLIPVisionConfig", PATCHES, _pooler),
    "clip-classifier": ImageFamily("CLIPConfig", TOWERS),
    "convnext": ImageFamily("ConvNextConfig", STAGES),
    "convnextv2": ImageFamily("ConvNextV2Config", STAGES),
    "cvt": ImageFamily("CvtConfig", {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3]}, _map_mean),
    "data2vec-vision": ImageFamily("Data2VecVisionConfig", PATCHES),
    "deit": ImageFamily("DeiTConfig", PATCHES),
    "dinat": ImageFamily(
        "DinatConfig", {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "dilations": [[1], [1]]}
    ),
    "dinov2": ImageFamily("Dinov2Config", PATCHES, _first),
    "dinov2_with_registers": ImageFamily("Dinov2WithRegistersConfig", PATCHES, _first),
    "dinov3_convnext": ImageFamily("DINOv3ConvNextConfig", STAGES, _pooler),
    "dinov3_vit": ImageFamily("DINOv3ViTConfig", PATCHES, _first),
    "donut-swin": ImageFamily("DonutSwinConfig", WINDOWS),
    "efficientnet": ImageFamily(
        "EfficientNetConfig", {"image_size": SIDE, "width_coefficient": 0.25, "hidden_dim": 320}
    ),
    "focalnet": ImageFamily(
        "FocalNetConfig",
        {
            "image_size": SIDE,
            "embed_dim": 8,
            "depths": [1, 1],
            "hidden_sizes": [8, 16],
            "focal_levels": [1, 1],
            "focal_windows": [3, 3],
        },
    ),
    "hgnet_v2": ImageFamily(
        "HGNetV2Config",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 12, 16, 24],
            "depths": [1, 1, 1, 1],
            "stem_channels": [3, 8, 8],
            "stage_in_channels": [8, 8, 12, 16],
            "stage_mid_channels": [8, 8, 8, 8],
            "stage_out_channels": [8, 12, 16, 24],
            "stage_num_blocks": [1, 1, 1, 1],
        },
    ),
    "hiera": ImageFamily(
        "HieraConfig", {"embed_dim": 8, "image_size": [SIDE, SIDE], "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2]}
    ),
    "ijepa": ImageFamily("IJepaConfig", PATCHES),
    "levit": ImageFamily(
        "LevitConfig",
        {
            "image_size": SIDE,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        _pooler,
    ),
    "metaclip_2": ImageFamily("MetaClip2VisionConfig", PATCHES, _pooler),
    "metaclip_2-classifier": ImageFamily("MetaClip2Config", TOWERS),
    "mobilenet_v1": ImageFamily("MobileNetV1Config", {"image_size": SIDE, "depth_multiplier": 0.25}),
    "mobilenet_v2": ImageFamily("MobileNetV2Config", {"image_size": SIDE, "depth_multiplier": 0.25}),
    "mobilevit": ImageFamily(
        "MobileViTConfig",
        {
            "image_size": SIDE,
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
            "num_attention_heads": 2,
        },
    ),
    "mobilevitv2": ImageFamily("MobileViTV2Config", {"image_size": SIDE, "width_multiplier": 0.25}),
    "perceiver": ImageFamily(
        "PerceiverConfig",
        {
            "image_size": SIDE,
            "num_latents": 8,
            "d_latents": 32,
            "d_model": 32,
            "num_self_attends_per_block": 1,
            "num_self_attention_heads": 2,
            "num_cross_attention_heads": 1,
        },
        _mean,
    ),
    "poolformer": ImageFamily("PoolFormerConfig", {**STAGES, "pool_size": 3}, _map_mean),
    "pp_lcnet": ImageFamily("PPLCNetConfig", {"scale": 0.25}),
    "pvt": ImageFamily(
        "PvtConfig",
        {
            "image_size": SIDE,
            "hidden_sizes": [8, 16, 16, 24],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 2, 2],
            "sequence_reduction_ratios": [8, 4, 2, 1],
        },
    ),
    "pvt_v2": ImageFamily(
        "PvtV2Config",
        {"image_size": SIDE, "hidden_sizes": [8, 16, 16, 24], "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 2]},
    ),
    "regnet": ImageFamily("RegNetConfig", {"embedding_size": 8, **STAGES, "groups_width": 4}),
    "resnet": ImageFamily("ResNetConfig", {"embedding_size": 8, **STAGES}),
    "segformer": ImageFamily(
        "SegformerConfig", {"hidden_sizes": [8, 16, 16, 24], "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 2]}
    ),
    "siglip": ImageFamily("SiglipVisionConfig", PATCHES, _pooler),
    "siglip-classifier": ImageFamily("SiglipConfig", TOWERS),
    "siglip2": ImageFamily(
        "Siglip2VisionConfig", {**WIDTH, "patch_size": 16, "num_patches": 16}, _pooler, "Siglip2ImageProcessor"
    ),
    "swiftformer": ImageFamily("SwiftFormerConfig", {"embed_dims": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}, _map_mean),
    "swin": ImageFamily("SwinConfig", WINDOWS),
    "swinv2": ImageFamily("Swinv2Config", WINDOWS),
    "textnet": ImageFamily(
        "TextNetConfig",
        {
            "stem_out_channels": 8,
            "hidden_sizes": [8, 8, 12, 16, 24],
            "conv_layer_kernel_sizes": [[[3, 3]], [[3, 3]], [[3, 3]], [[3, 3]]],
            "conv_layer_strides": [[1], [2], [2], [2]],
        },
    ),
    "timm_wrapper": ImageFamily("TimmWrapperConfig", {"architecture": "resnet10t"}),
    "vit": ImageFamily("ViTConfig", PATCHES),
    "vit_mae": ImageFamily(
        "ViTMAEConfig",
        {**PATCHES, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2},
        _first,
    ),
    "vit_msn": ImageFamily("ViTMSNConfig", PATCHES),
    "yolos": ImageFamily("YolosConfig", {**PATCHES, "image_size": [SIDE, SIDE], "num_detection_tokens": 4}, _first),
}

DECODER = {**WIDTH, "num_key_value_heads": 2}
T5_LIKE = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
BART_LIKE = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class TextFamily:
    """`pooling` is the one of the documented table: mean for encoders, last for decoders."""

    config: str
    arguments: dict[str, Any]
    pooling: str = "mean"


TEXT: dict[str, TextFamily] = {
    "albert": TextFamily("AlbertConfig", {**WIDTH, "embedding_size": 16}),
    "bart": TextFamily("BartConfig", BART_LIKE),
    "bert": TextFamily("BertConfig", WIDTH),
    "big_bird": TextFamily("BigBirdConfig", {**WIDTH, "block_size": 8, "num_random_blocks": 1}),
    "biogpt": TextFamily("BioGptConfig", WIDTH, "last"),
    "bloom": TextFamily("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 2}, "last"),
    "camembert": TextFamily("CamembertConfig", WIDTH),
    "canine": TextFamily(
        "CanineConfig", {**WIDTH, "local_transformer_stride": 8, "max_position_embeddings": 128, "type_vocab_size": 2}
    ),
    "convbert": TextFamily("ConvBertConfig", {**WIDTH, "embedding_size": 32}),
    "ctrl": TextFamily("CTRLConfig", {"n_embd": 32, "n_layer": 2, "n_head": 2, "dff": 48}, "last"),
    "data2vec-text": TextFamily("Data2VecTextConfig", WIDTH),
    "deberta": TextFamily("DebertaConfig", WIDTH),
    "deberta-v2": TextFamily("DebertaV2Config", {**WIDTH, "relative_attention": True, "position_buckets": 8}),
    "distilbert": TextFamily("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}),
    "electra": TextFamily("ElectraConfig", {**WIDTH, "embedding_size": 16}),
    "ernie": TextFamily("ErnieConfig", WIDTH),
    "esm": TextFamily("EsmConfig", {**WIDTH, "pad_token_id": 0, "mask_token_id": 4, "max_position_embeddings": 64}),
    "eurobert": TextFamily("EuroBertConfig", DECODER),
    "falcon": TextFamily("FalconConfig", {**WIDTH, "num_kv_heads": 2}, "last"),
    "flaubert": TextFamily("FlaubertConfig", {"emb_dim": 32, "n_layers": 2, "n_heads": 2}),
    "fnet": TextFamily("FNetConfig", WIDTH),
    "funnel": TextFamily(
        "FunnelConfig",
        {"d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 48, "block_sizes": [1, 1], "num_decoder_layers": 1},
    ),
    "gemma": TextFamily("GemmaConfig", {**DECODER, "head_dim": 16}, "last"),
    "gemma2": TextFamily("Gemma2Config", {**DECODER, "head_dim": 16}, "last"),
    "gemma3_text": TextFamily("Gemma3TextConfig", {**DECODER, "head_dim": 16}, "last"),
    "gpt2": TextFamily("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 2}, "last"),
    "gpt_neo": TextFamily(
        "GPTNeoConfig",
        {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]},
        "last",
    ),
    "gpt_neox": TextFamily("GPTNeoXConfig", WIDTH, "last"),
    "gptj": TextFamily("GPTJConfig", {"n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 8}, "last"),
    "led": TextFamily("LEDConfig", {**BART_LIKE, "attention_window": 4, "max_encoder_position_embeddings": 64}),
    "llama": TextFamily("LlamaConfig", DECODER, "last"),
    "longformer": TextFamily("LongformerConfig", {**WIDTH, "attention_window": [4, 4]}),
    "longt5": TextFamily("LongT5Config", {**T5_LIKE, "local_radius": 4}),
    "luke": TextFamily("LukeConfig", {**WIDTH, "entity_vocab_size": 10, "entity_emb_size": 8}),
    "mamba": TextFamily("MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, "last"),
    "mamba2": TextFamily(
        "Mamba2Config",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 2},
        "last",
    ),
    "mbart": TextFamily("MBartConfig", BART_LIKE),
    "megatron-bert": TextFamily("MegatronBertConfig", WIDTH),
    "mistral": TextFamily("MistralConfig", DECODER, "last"),
    "mixtral": TextFamily("MixtralConfig", {**DECODER, "num_local_experts": 2}, "last"),
    "mobilebert": TextFamily("MobileBertConfig", {**WIDTH, "embedding_size": 16, "intra_bottleneck_size": 16}),
    "modernbert": TextFamily("ModernBertConfig", WIDTH),
    "modernbert-decoder": TextFamily("ModernBertDecoderConfig", WIDTH, "last"),
    "mpnet": TextFamily("MPNetConfig", WIDTH),
    "mpt": TextFamily("MptConfig", {"d_model": 32, "n_layers": 2, "n_heads": 2, "max_seq_len": 64}, "last"),
    "mra": TextFamily("MraConfig", WIDTH),
    "mt5": TextFamily("MT5Config", T5_LIKE),
    "nomic_bert": TextFamily("NomicBertConfig", WIDTH),
    "nystromformer": TextFamily("NystromformerConfig", {**WIDTH, "segment_means_seq_len": 64, "num_landmarks": 8}),
    "olmo2": TextFamily("Olmo2Config", DECODER, "last"),
    "openai-gpt": TextFamily("OpenAIGPTConfig", {"n_embd": 32, "n_layer": 2, "n_head": 2}, "last"),
    "opt": TextFamily("OPTConfig", {**WIDTH, "ffn_dim": 48, "word_embed_proj_dim": 32}, "last"),
    "pegasus": TextFamily("PegasusConfig", BART_LIKE),
    "phi3": TextFamily("Phi3Config", DECODER, "last"),
    "qwen2": TextFamily("Qwen2Config", DECODER, "last"),
    "qwen3": TextFamily("Qwen3Config", {**DECODER, "head_dim": 16}, "last"),
    "reformer": TextFamily(
        "ReformerConfig",
        {
            "hidden_size": 32,
            "num_attention_heads": 2,
            "attention_head_size": 16,
            "feed_forward_size": 48,
            "attn_layers": ["local", "lsh"],
            "axial_pos_shape": [8, 8],
            "axial_pos_embds_dim": [16, 16],
            "local_attn_chunk_length": 8,
            "lsh_attn_chunk_length": 8,
            "num_buckets": 2,
        },
    ),
    "rembert": TextFamily("RemBertConfig", {**WIDTH, "input_embedding_size": 16, "output_embedding_size": 16}),
    "roberta": TextFamily("RobertaConfig", WIDTH),
    "roberta-prelayernorm": TextFamily("RobertaPreLayerNormConfig", WIDTH),
    "roc_bert": TextFamily(
        "RoCBertConfig",
        {
            **WIDTH,
            "pronunciation_vocab_size": 20,
            "shape_vocab_size": 20,
            "pronunciation_embed_dim": 8,
            "shape_embed_dim": 8,
        },
    ),
    "roformer": TextFamily("RoFormerConfig", {**WIDTH, "embedding_size": 16}),
    "rwkv": TextFamily("RwkvConfig", {"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}, "last"),
    "smollm3": TextFamily("SmolLM3Config", DECODER, "last"),
    "splinter": TextFamily("SplinterConfig", WIDTH),
    "squeezebert": TextFamily("SqueezeBertConfig", {**WIDTH, "embedding_size": 32}),
    "starcoder2": TextFamily("Starcoder2Config", DECODER, "last"),
    "switch_transformers": TextFamily("SwitchTransformersConfig", {**T5_LIKE, "num_experts": 2}),
    "t5": TextFamily("T5Config", T5_LIKE),
    "umt5": TextFamily("UMT5Config", T5_LIKE),
    "xglm": TextFamily("XGLMConfig", {"d_model": 32, "num_layers": 2, "attention_heads": 2, "ffn_dim": 48}, "last"),
    "xlm": TextFamily("XLMConfig", {"emb_dim": 32, "n_layers": 2, "n_heads": 2}),
    "xlm-roberta": TextFamily("XLMRobertaConfig", WIDTH),
    "xlm-roberta-xl": TextFamily("XLMRobertaXLConfig", WIDTH),
    "xlnet": TextFamily("XLNetConfig", {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 48}, "last"),
    "xmod": TextFamily("XmodConfig", {**WIDTH, "languages": ["en_XX"], "default_language": "en_XX"}),
    "yoso": TextFamily("YosoConfig", WIDTH),
}


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
