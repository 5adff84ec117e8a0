"""Gemma 2: Gemma with norms behind attention and MLP, soft-capped scores and logits, a window on every other layer."""

from pyflame.llm.architectures.base import Architecture, Fields, add_one
from pyflame.llm.config import ModelConfig


def config(f: Fields) -> ModelConfig:
    return f.config(
        activation="gelu_tanh",
        embedding_scale=f.width**0.5,
        post_norm=True,
        attention_scale=query_scalar(f, 46) ** -0.5,
        attention_softcap=float(f("attn_logit_softcapping", "attn_logit_softcapping", 0.0)) or None,
        final_softcap=float(f("final_logit_softcapping", "final_logit_softcapping", 0.0)) or None,
        windows=f.windows(f("attention.sliding_window", "sliding_window", 4096), lambda layer: layer % 2 == 0),
    )


def query_scalar(f: Fields, largest: int) -> float:
    """GGUF does not store it: the model with so many layers (27B) takes width / heads, others the size of a head."""
    layers = int(f("block_count", "num_hidden_layers"))
    usual = f.width / f.heads if layers == largest else f.head_size
    return float(f("", "query_pre_attn_scalar", usual))


ARCHITECTURE = Architecture("gemma2", ("gemma2",), config, adapt=add_one)
