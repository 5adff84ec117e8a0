"""DeepSeek V2 and V3: latent attention, and experts behind a few dense layers, with an MLP that all tokens share.

V3 scores experts by sigmoid, chooses by score plus a bias, and among the best groups only. Yarn's factor is not in cos
and sin but in the scale of the scores.
"""

import numpy as np

from pyflame.llm.architectures.base import LLAMA_MODULES, Architecture, Array, Fields
from pyflame.llm.config import Experts, Latent, ModelConfig, Rope
from pyflame.llm.rope import yarn_attention_factor


def config(f: Fields) -> ModelConfig:
    latent = _latent(f)
    rope = f.rope(size=latent.rope_dims, interleaved=True)
    return f.config(
        rope=Rope(**{**vars(rope), "dims": latent.rope_dims, "attention_factor": _turn_factor(f, rope)}),
        kv_heads=f.heads,
        head_size=latent.nope_dims + latent.rope_dims,
        latent=latent,
        attention_scale=(latent.nope_dims + latent.rope_dims) ** -0.5 * _score_factor(f, rope),
        experts=_experts(f),
    )


def _latent(f: Fields) -> Latent:
    rope_dims = int(f("rope.dimension_count", "qk_rope_head_dim"))
    size = f("attention.key_length_mla", "", 0) or f("attention.key_length", "", 0)
    value = f("attention.value_length_mla", "", 0) or f("attention.value_length", "v_head_dim")
    nope_dims = int(f("", "qk_nope_head_dim")) if f.hf else int(size) - rope_dims
    return Latent(
        int(f("attention.kv_lora_rank", "kv_lora_rank")),
        rope_dims,
        nope_dims,
        int(value),
        int(f("attention.q_lora_rank", "q_lora_rank", 0)),
    )


def _score_factor(f: Fields, rope: Rope) -> float:
    """Yarn's, squared since it stands for q's and k's; what is left of it is in `_turn_factor`."""
    scale = f.scaling().get("mscale_all_dim") or 10.0 * float(f("rope.scaling.yarn_log_multiplier", "", 0.0))
    return yarn_attention_factor(rope.factor, scale) ** 2 if rope.scaling == "yarn" and scale else 1.0


def _turn_factor(f: Fields, rope: Rope) -> float:
    return rope.attention_factor if f.hf else 1.0


def _experts(f: Fields) -> Experts | None:
    count = int(f("expert_count", "n_routed_experts", 0))
    if not count:
        return None
    ffn = int(f("expert_feed_forward_length", "moe_intermediate_size"))
    v3 = f.metadata.get("model_type") == "deepseek_v3" if f.hf else f("expert_gating_func", "", 1) == 2
    grouped = v3 or (f.hf and f("", "topk_method", "") == "group_limited_greedy")
    return Experts(
        count,
        int(f("expert_used_count", "num_experts_per_tok")),
        ffn,
        gating="sigmoid" if v3 else "softmax",
        normalised=bool(f("expert_weights_norm", "norm_topk_prob", False)) if v3 or not f.hf else False,
        scale=float(f("expert_weights_scale", "routed_scaling_factor", 1.0)),
        shared_ffn=ffn * int(f("expert_shared_count", "n_shared_experts", 0)),
        leading_dense=int(f("leading_dense_block_count", "first_k_dense_replace", 0)),
        choice_bias=any(n.endswith("exp_probs_b.bias") for n in f.names),
        groups=int(f("expert_group_count", "n_group", 1)) if grouped else 1,
        groups_used=int(f("expert_group_used_count", "topk_group", 1)) if grouped else 1,
        group_score="top2" if v3 else "max",
    )


def adapt(config: ModelConfig, name: str, x: Array) -> Array:
    if name not in ("attn_k_b.weight", "attn_v_b.weight") or config.latent is None:
        return x
    part = config.latent
    both = x.reshape(config.heads, part.nope_dims + part.value_size, part.kv_rank)
    keys, values = np.split(both, [part.nope_dims], axis=1)
    return keys.swapaxes(1, 2) if name == "attn_k_b.weight" else values


ARCHITECTURE = Architecture(
    "deepseek2",
    ("deepseek_v2", "deepseek_v3"),
    config,
    adapt,
    parts={"attn_kv_b.weight": ("attn_k_b.weight", "attn_v_b.weight")},
    aliases={r"^model\.layers\.(\d+)\.mlp\.gate\.e_score_correction_bias$": r"blk.\1.exp_probs_b.bias"},
    modules=rf"{LLAMA_MODULES}|model\.layers\.\d+\.(?:self_attn\.(?:q_a_proj|q_b_proj|kv_a_proj_with_mqa)"
    r"|mlp\.shared_experts\.(?:gate|up|down)_proj)",
)
