"""Qwen3-MoE: Qwen3 with experts."""

from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import Experts, ModelConfig


def config(f: Fields) -> ModelConfig:
    experts = Experts(
        int(f("expert_count", "num_experts|num_local_experts")),
        int(f("expert_used_count", "num_experts_per_tok")),
        int(f("expert_feed_forward_length", "moe_intermediate_size")),
        normalised=bool(f("expert_weights_norm", "norm_topk_prob", True)),
    )
    f.want_every_layer_sparse()
    return f.config(qk_norm="head", experts=experts)


ARCHITECTURE = Architecture("qwen3moe", ("qwen3_moe",), config)
