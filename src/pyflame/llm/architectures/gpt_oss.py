"""gpt-oss: experts with biases and a clamped swiglu, chosen before the softmax; sinks in every attention; yarn; a
window on every other layer. Its GGUF files call the norm before the MLP post_attention_norm.

Hugging Face stores gate and up of an expert as alternating columns of one matrix (inputs, outputs); encoded ones, as
OpenAI publishes them, as alternating rows of one matrix (outputs, inputs).
"""

from pyflame.llm.architectures.base import Architecture, Array, Fields
from pyflame.llm.config import Experts, ModelConfig


def config(f: Fields) -> ModelConfig:
    experts = Experts(
        int(f("expert_count", "num_local_experts")),
        int(f("expert_used_count", "num_experts_per_tok")),
        int(f("expert_feed_forward_length", "intermediate_size")),
        gating="softmax_chosen",
        bias=True,
        router_bias=True,
    )
    return f.config(
        ffn=experts.ffn,
        activation="clamped_swiglu",
        rope=f.rope(truncate=False),
        mlp_norm="post_attention_norm",
        sinks=True,
        experts=experts,
        windows=f.windows(f("attention.sliding_window", "sliding_window", 128), lambda layer: layer % 2 == 0),
    )


def adapt(config: ModelConfig, name: str, x: Array) -> Array:
    kind, _, stored = name.partition("_exps.")
    if not stored:
        return x
    if kind in ("ffn_gate", "ffn_up"):
        x = x[..., (kind == "ffn_up") :: 2]
    return x.swapaxes(1, 2) if stored == "weight" else x


def rows(name: str, x: Array) -> Array:
    kind = name.partition("_exps.")[0]
    return x[:, (kind == "ffn_up") :: 2] if kind in ("ffn_gate", "ffn_up") else x


ARCHITECTURE = Architecture(
    "gpt-oss",
    ("gpt_oss",),
    config,
    adapt,
    rows,
    parts={f"ffn_gate_up_exps.{kind}": (f"ffn_gate_exps.{kind}", f"ffn_up_exps.{kind}") for kind in ("weight", "bias")},
    aliases={
        r"^model\.layers\.(\d+)\.mlp\.experts\.gate_up_proj$": r"blk.\1.ffn_gate_up_exps.weight",
        r"^model\.layers\.(\d+)\.mlp\.experts\.gate_up_proj_bias$": r"blk.\1.ffn_gate_up_exps.bias",
        r"^model\.layers\.(\d+)\.mlp\.experts\.down_proj$": r"blk.\1.ffn_down_exps.weight",
        r"^model\.layers\.(\d+)\.mlp\.experts\.down_proj_bias$": r"blk.\1.ffn_down_exps.bias",
        r"^model\.layers\.(\d+)\.self_attn\.sinks$": r"blk.\1.attn_sinks.weight",
    },
)
