"""A tiny configuration of each image family of transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

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
