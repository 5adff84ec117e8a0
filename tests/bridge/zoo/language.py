"""Models of transformers, of one or two small layers, with random weights and without dropout."""

from __future__ import annotations

from typing import Any

import torch

VOCABULARY = 60
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 32,
}  # fmt: skip
ENCODER = {**SMALL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DECODER = {**SMALL, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
SEQ2SEQ = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "dropout": 0.0,
    "attention_dropout": 0.0, "activation_dropout": 0.0, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip

# name: (class, configuration's class, its arguments)
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", "BertConfig", ENCODER),
    "distilbert": (
        "DistilBertForMaskedLM", "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
         "max_position_embeddings": 32, "dropout": 0.0, "attention_dropout": 0.0},
    ),
    "roberta": (
        "RobertaForTokenClassification", "RobertaConfig", {**ENCODER, "pad_token_id": 1, "max_position_embeddings": 40},
    ),
    "gpt2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "resid_pdrop": 0.0,
         "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 6}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**DECODER, "tie_word_embeddings": True}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**DECODER, "head_dim": 8, "sliding_window": 6}),
    "mixtral": (  # the other implementation of experts looks at values in its backward pass on the CPU
        "MixtralForCausalLM", "MixtralConfig",
        {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"},
    ),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
         "dropout_rate": 0.0, "use_cache": False, "decoder_start_token_id": 0},
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", {**SEQ2SEQ, "max_position_embeddings": 32}),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 16},
    ),
    "vit": (
        "ViTForImageClassification", "ViTConfig", {**ENCODER, "image_size": 16, "patch_size": 4},
    ),
    "swin": (
        "SwinForImageClassification", "SwinConfig",
        {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
         "drop_path_rate": 0.0},
    ),
    "clip": (
        "CLIPModel", "CLIPConfig",
        {"text_config": {**SMALL, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}, "projection_dim": 16,
         "vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                           "num_attention_heads": 4, "image_size": 16, "patch_size": 4}},
    ),
    "wav2vec2": (
        "Wav2Vec2ForCTC", "Wav2Vec2Config",
        {"vocab_size": 12, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
         "intermediate_size": 48, "conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3],
         "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
         "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0,
         "final_dropout": 0.0, "layerdrop": 0.0, "apply_spec_augment": False},
    ),
}  # fmt: skip


def build(name: str) -> torch.nn.Module:
    """A model of transformers in training mode. Its biases and scales are drawn too, so that no gradient is zero."""
    import transformers

    kind, config, arguments = CONFIGS[name]
    model = getattr(transformers, kind)(getattr(transformers, config)(**arguments))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.train()


def ids(rows: int = 2, length: int = 10) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (rows, length))


def padded(length: int = 10) -> dict[str, torch.Tensor]:
    """Two sequences, the second of them padded."""
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length - 3 :] = 0
    return {"input_ids": ids(2, length), "attention_mask": mask}
