"""A small checkpoint as llama.cpp's converter would write it: GGUF's keys of config.json, GGUF's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.llm.architectures import find
from pyflame.llm.load import Reader
from tests.llm.checkpoints import MemoryCheckpoint

# GGUF's key without the architecture <- config.json's, of all architectures; a key that is not there is not written.
_KEYS = {
    "block_count": ("num_hidden_layers", "n_layer"),
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd"),
    "feed_forward_length": ("intermediate_size", "ffn_hidden_size"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon"),
    "attention.key_length": ("head_dim",),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_shared_count": ("n_shared_experts",),
    "expert_weights_scale": ("routed_scaling_factor",),
    "leading_dense_block_count": ("first_k_dense_replace",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.key_length_mla": (),
    "attention.value_length_mla": ("v_head_dim",),
    "use_parallel_residual": ("use_parallel_residual",),
}


def as_gguf(checkpoint: MemoryCheckpoint) -> MemoryCheckpoint:
    reader = Reader(checkpoint, find("hf", checkpoint.architecture))
    given, config = checkpoint.metadata, reader.config
    name = reader.architecture.name
    found: dict[str, Any] = {}
    for key, names in _KEYS.items():
        values = [given[n] for n in names if given.get(n) is not None]
        if values:
            found[key] = values[0]
    found["attention.head_count_kv"] = 1 if config.latent else config.kv_heads
    found.setdefault("feed_forward_length", config.ffn)
    rope = given.get("rope_parameters") or {}
    theta = rope.get("full_attention", rope).get("rope_theta")
    if theta is not None:
        found["rope.freq_base"] = theta
    if config.rope is not None:
        found["rope.dimension_count"] = config.rope.dims
    found |= _SPECIAL.get(name, lambda *_: {})(given, config)
    if rope.get("rope_type") in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
        found["rope.scaling.original_context_length"] = rope.get("original_max_position_embeddings", 0)
    tensors = {n: np.asarray(reader.numbers(n)) for n in reader.sources}
    tensors |= _extra(name, rope, config)
    if name == "llama":
        tensors = {n: _interleaved(n, x, config) for n, x in tensors.items()}
    metadata = {"general.architecture": name, **{f"{name}.{k}": v for k, v in found.items()}}
    out = MemoryCheckpoint(name, metadata, tensors)
    out.kind = "gguf"
    return out


def _interleaved(name: str, x: np.ndarray, config: Any) -> np.ndarray:
    """Rows of q and k as the converter orders them for Llama."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[2] if "blk." in name else "")
    if heads is None:
        return x
    return x.reshape(heads, 2, config.head_size // 2, -1).swapaxes(1, 2).reshape(x.shape)


def _extra(name: str, rope: dict[str, Any], config: Any) -> dict[str, np.ndarray]:
    """Frequencies that the converter writes as tensors."""
    if rope.get("rope_type") == "llama3":
        own = config.rope.base ** (-np.arange(0, config.rope.dims, 2) / config.rope.dims)
        turns = rope["original_max_position_embeddings"] * own / (2 * np.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = (turns - low) / (high - low)
        factors = 1 / ((1 - smooth) / rope["factor"] + smooth)
        factors = np.where(turns < low, rope["factor"], np.where(turns > high, 1.0, factors))
        return {"rope_freqs.weight": factors.astype(np.float32)}
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{n}.weight": np.array(rope[f"{n}_factor"], np.float32) for n in ("short", "long")}
    return {}


def _deepseek(given: dict[str, Any], config: Any) -> dict[str, Any]:
    latent, v3 = config.latent, given["model_type"] == "deepseek_v3"
    out = {
        "attention.key_length": latent.kv_rank + latent.rope_dims,
        "attention.value_length": latent.kv_rank,
        "attention.key_length_mla": latent.nope_dims + latent.rope_dims,
        "expert_weights_norm": config.experts.normalised,
        "expert_gating_func": 2 if v3 else 1,
    }
    if v3:
        out |= {"expert_group_count": given["n_group"], "expert_group_used_count": given["topk_group"]}
    return out


_SPECIAL: dict[str, Any] = {
    "gemma3": lambda given, config: {"attention.sliding_window_pattern": 2},
    "phi3": lambda given, config: {
        "rope.scaling.original_context_length": given.get("original_max_position_embeddings", config.context),
        "rope.scaling.attn_factor": config.rope.attention_factor,
    },
    "deepseek2": _deepseek,
    "falcon": lambda given, config: {"context_length": 2048, "feed_forward_length": config.ffn},
    "gpt-oss": lambda given, config: {"expert_feed_forward_length": given["intermediate_size"]},
    "bert": lambda given, config: {"pooling_type": 1},
}
