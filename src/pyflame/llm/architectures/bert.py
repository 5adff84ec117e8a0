"""BERT and MiniLM: an encoder whose output is pooled to one embedding per text.

Norms stand behind each sum, positions are learned, and every token sees every other.
"""

from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import ModelConfig

_BIASED = frozenset({"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"})
_POOLING = {0: "none", 1: "mean", 2: "cls"}


def config(f: Fields) -> ModelConfig:
    return f.config(
        rope=None,
        norm="layer",
        norm_eps=float(f("attention.layer_norm_epsilon", "layer_norm_eps", 1e-12)),
        norm_bias=True,
        embedding_norm=True,
        mlp="plain",
        activation="gelu",
        biases=_BIASED,
        position_embeddings=f.shape("position_embd.weight")[0],
        token_types=f.shape("token_types.weight")[0],
        causal=False,
        pooling=_POOLING[int(f("pooling_type", "", 1))],
    )


ARCHITECTURE = Architecture(
    "bert",
    ("bert",),
    config,
    aliases={r"^bert\.": ""},
    modules=r"encoder\.layer\.\d+\.(?:attention\.self\.(?:query|key|value)|(?:attention\.output|intermediate|output)\.dense)",
    ignored=r"(?:bert\.)?pooler\..*|cls\..*|cls.*",
)
