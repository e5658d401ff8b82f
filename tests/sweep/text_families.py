"""A tiny configuration of each text family of transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
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
