"""Small random checkpoints made with transformers, as `open_checkpoint` would give them, and their oracle's logits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open


@dataclass
class Stored:
    shape: tuple[int, ...]
    encoding: str
    bytes: Any


class MemoryCheckpoint:
    """Tensors in memory, with the interface of llm/files.py's Checkpoint."""

    kind = "hf"
    chat_template = None

    def __init__(self, architecture: str, metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.architecture, self.metadata, self.tensors = architecture, metadata, tensors
        self.path = Path("memory")

    def names(self) -> list[str]:
        return list(self.tensors)

    def size(self, name: str) -> int:
        return self.tensors[name].nbytes

    def stored(self, name: str) -> Stored:
        x = np.ascontiguousarray(self.tensors[name])
        return Stored(x.shape, x.dtype.name, x.reshape(-1).view(np.uint8))


VOCAB = 96
SIZES = dict(
    vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=128,
)  # fmt: skip

_DEEPSEEK = dict(
    num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10,
    n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2, first_k_dense_replace=1,
    n_group=4, topk_group=2, topk_method="group_limited_greedy", routed_scaling_factor=1.5, head_dim=8,
)  # fmt: skip

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama3_rope": (
        "Llama",
        dict(
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=1e4,
                factor=4.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            )
        ),
    ),
    "llama_linear_biased": (
        "Llama",
        dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0), attention_bias=True, mlp_bias=True),
    ),
    "llama_yarn": (
        "Llama",
        dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16)),
    ),
    "mistral_window": ("Mistral", dict(sliding_window=5)),
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2)),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", dict(head_dim=16)),
    "gemma": ("Gemma", dict(head_dim=16)),
    "gemma2": ("Gemma2", dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=4)),
    "gemma2_scaled": ("Gemma2", dict(head_dim=16, query_pre_attn_scalar=8, sliding_window=4)),
    "gemma3": (
        "Gemma3",
        dict(
            num_hidden_layers=3,
            head_dim=16,
            sliding_window=4,
            query_pre_attn_scalar=16,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
    "gpt2": ("GPT2", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=128)),
    "qwen2_moe": (
        "Qwen2Moe",
        dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40),
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        dict(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True),
    ),
    "phi3": ("Phi3", dict(pad_token_id=0)),
    "phi3_long": (
        "Phi3",
        dict(
            pad_token_id=0,
            original_max_position_embeddings=8,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=1e4,
                long_factor=[1.0, 1.5, 2.0, 4.0],
                short_factor=[1.0, 1.0, 1.1, 1.2],
            ),
        ),
    ),
    "olmo2": ("Olmo2", {}),
    "stablelm": ("StableLm", dict(partial_rotary_factor=0.5, use_qkv_bias=True)),
    "stablelm_parallel": ("StableLm", dict(partial_rotary_factor=0.5, use_parallel_residual=True, qk_layernorm=True)),
    "gpt_neox": ("GPTNeoX", dict(rotary_pct=0.5)),
    "gpt_neox_serial": ("GPTNeoX", dict(use_parallel_residual=False)),
    "falcon": (
        "Falcon",
        dict(
            num_kv_heads=1,
            multi_query=True,
            new_decoder_architecture=False,
            parallel_attn=True,
            bias=False,
            alibi=False,
        ),
    ),
    "falcon_grouped": (
        "Falcon",
        dict(num_kv_heads=2, new_decoder_architecture=True, parallel_attn=True, bias=False, alibi=False),
    ),
    "deepseek_v2": ("DeepseekV2", _DEEPSEEK),
    "deepseek_v2_plain_q": ("DeepseekV2", {**_DEEPSEEK, "q_lora_rank": None, "topk_method": "greedy"}),
    "deepseek_v3": (
        "DeepseekV3",
        {
            **_DEEPSEEK,
            "norm_topk_prob": True,
            "rope_parameters": dict(
                rope_type="yarn",
                rope_theta=1e4,
                factor=4.0,
                mscale=1.0,
                mscale_all_dim=0.7,
                original_max_position_embeddings=16,
            ),
        },
    ),
    "deepseek_v3_plain": ("DeepseekV3", {**_DEEPSEEK, "norm_topk_prob": True}),
    "gpt_oss": ("GptOss", dict(head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=4)),
}

_CLASSES = {"Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"), "GPT2": ("GPT2Config", "GPT2LMHeadModel")}


def make(name: str, folder: Path) -> tuple[MemoryCheckpoint, Any]:
    """A checkpoint as transformers saves it, and the model."""
    family, changes = MODELS[name]
    config_class, model_class = _CLASSES.get(family, (f"{family}Config", f"{family}ForCausalLM"))
    sizes = changes if "n_embd" in changes else {**SIZES, **changes}
    torch.manual_seed(len(name))
    config = getattr(transformers, config_class)(**sizes)
    model = getattr(transformers, model_class)(config).float().eval()
    return _saved(model, folder), model


def make_bert(folder: Path) -> tuple[MemoryCheckpoint, Callable[[list[int]], np.ndarray]]:
    """A BERT, and its last hidden states."""
    sizes = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
    model = transformers.BertModel(transformers.BertConfig(**sizes)).float().eval()

    def hidden(tokens: list[int]) -> np.ndarray:
        with torch.no_grad():
            return model(torch.tensor([tokens])).last_hidden_state[0].numpy()

    return _saved(model, folder), hidden


def _saved(model: Any, folder: Path) -> MemoryCheckpoint:
    """What transformers writes, with random numbers in every tensor: what starts as 0 or 1 would hide mistakes."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "numpy") as file:
        tensors = {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118  no mapping
    metadata = json.loads((folder / "config.json").read_text())
    return MemoryCheckpoint(metadata["model_type"], metadata, tensors)


def oracle_logits(model: Any, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens)).logits.numpy()
