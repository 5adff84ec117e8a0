"""GPT-2: learned positions, layer norms, one matrix for q, k and v, a plain MLP with a gelu, biases everywhere.

Hugging Face stores its matrices as (inputs, outputs).
"""

import numpy as np

from pyflame.llm.architectures.base import Architecture, Array, Fields
from pyflame.llm.config import ModelConfig

_LINEAR = ("attn_qkv", "attn_output", "ffn_up", "ffn_down")
_MODULES = r"transformer\.h\.\d+\.(?:attn|mlp)\.c_(?:attn|proj|fc)|lm_head"


def config(f: Fields) -> ModelConfig:
    width, heads = int(f("embedding_length", "n_embd")), int(f("attention.head_count", "n_head"))
    context = int(f("context_length", "n_positions"))
    return ModelConfig(
        f.architecture,
        layers=int(f("block_count", "n_layer")),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_size=width // heads,
        ffn=int(f("feed_forward_length", "n_inner", 4 * width)),
        vocab=f.shape("token_embd.weight")[0],
        context=context,
        norm="layer",
        norm_eps=float(f("attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-5)),
        norm_bias=True,
        fused_qkv=True,
        mlp="plain",
        activation="gelu_tanh",
        biases=frozenset(_LINEAR),
        position_embeddings=context,
        tied="output.weight" not in f.names,
    )


def adapt(config: ModelConfig, name: str, x: Array) -> Array:
    return np.ascontiguousarray(x.T) if name.removesuffix(".weight") in _LINEAR else x


ARCHITECTURE = Architecture("gpt2", ("gpt2",), config, adapt, modules=_MODULES)
