"""Qwen2-MoE: Qwen2 with experts, and beside them one MLP for all tokens, behind a gate of its own."""

from pyflame.llm.architectures.base import LLAMA_MODULES, QKV, Architecture, Fields
from pyflame.llm.config import Experts, ModelConfig


def config(f: Fields) -> ModelConfig:
    experts = Experts(
        int(f("expert_count", "num_experts|num_local_experts")),
        int(f("expert_used_count", "num_experts_per_tok")),
        int(f("expert_feed_forward_length", "moe_intermediate_size")),
        normalised=bool(f("expert_weights_norm", "norm_topk_prob", False)),
        shared_ffn=int(f("expert_shared_feed_forward_length", "shared_expert_intermediate_size")),
        shared_gate=True,
    )
    f.want_every_layer_sparse()
    return f.config(biases=QKV, experts=experts)


ARCHITECTURE = Architecture(
    "qwen2moe",
    ("qwen2_moe",),
    config,
    adapt=lambda config, name, x: x.reshape(-1) if name == "ffn_gate_inp_shexp.weight" else x,
    modules=rf"{LLAMA_MODULES}|model\.layers\.\d+\.mlp\.shared_expert\.(?:gate|up|down)_proj",
)
