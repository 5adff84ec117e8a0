"""Falcon: layer norms, a parallel plain MLP with a gelu, keys and values shared by all heads (7B) or by groups (40B).

The 40B model has a norm of its own for attention (`attn_norm_2`); what GGUF calls attn_norm is then the MLP's. Hugging
Face stores q, k and v group by group; GGUF all of q, then all of k, then all of v.
"""

import numpy as np

from pyflame.core.errors import NotSupportedError
from pyflame.llm.architectures.base import Architecture, Array, Fields
from pyflame.llm.config import ModelConfig

_MODULES = r"transformer\.h\.\d+\.(?:self_attention|mlp)\.(?:query_key_value|dense\w*)|lm_head"


def config(f: Fields) -> ModelConfig:
    if f.hf and f("", "alibi", False):
        raise NotSupportedError("[falcon] expected rotary positions but got alibi=true, which no decoder here has")
    if f.hf:
        shared = 1 if f("", "multi_query", True) else f.heads
        kv_heads = int(f("", "num_kv_heads")) if f("", "new_decoder_architecture", False) else shared
    else:
        kv_heads = int(f("attention.head_count_kv", ""))
    two_norms = "blk.0.attn_norm_2.weight" in f.names
    return f.config(
        kv_heads=kv_heads,
        ffn=int(f("feed_forward_length", "ffn_hidden_size", 4 * f.width)),
        context=int(f("context_length", "max_position_embeddings", 2048)),
        norm="layer",
        norm_eps=float(f("attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-5)),
        norm_bias=True,
        parallel=True,
        fused_qkv=True,
        mlp="plain",
        activation="gelu",
        attention_norm="attn_norm_2" if two_norms else "attn_norm",
        mlp_norm="attn_norm" if two_norms else None,
    )


def adapt(config: ModelConfig, name: str, x: Array) -> Array:
    if not name.startswith("attn_qkv"):
        return x
    shared, size = config.heads // config.kv_heads, config.head_size
    groups = x.reshape(config.kv_heads, shared + 2, size, -1)
    parts = (groups[:, :shared], groups[:, shared : shared + 1], groups[:, shared + 1 :])
    return np.concatenate([p.reshape(-1, *x.shape[1:]) for p in parts])


ARCHITECTURE = Architecture("falcon", ("falcon",), config, adapt, modules=_MODULES)
