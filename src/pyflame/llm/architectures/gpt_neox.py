"""GPT-NeoX and Pythia: layer norms, biases, a parallel plain MLP with a gelu, a rope over a part of each head.

Hugging Face stores q, k and v head by head; GGUF all of q, then all of k, then all of v.
"""

from pyflame.llm.architectures.base import Architecture, Array, Fields
from pyflame.llm.config import ModelConfig

_GELUS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# The head is left out: its name depends on the version of transformers (embed_out, lm_head).
_MODULES = r"gpt_neox\.layers\.\d+\.(?:attention|mlp)\.(?:query_key_value|dense\w*)"


def config(f: Fields) -> ModelConfig:
    return f.config(
        kv_heads=f.heads,
        norm="layer",
        norm_eps=float(f("attention.layer_norm_epsilon", "layer_norm_eps", 1e-5)),
        norm_bias=True,
        parallel=bool(f("use_parallel_residual", "use_parallel_residual", True)),
        fused_qkv=True,
        mlp="plain",
        activation=_GELUS[f("", "hidden_act", "gelu")],
    )


def adapt(config: ModelConfig, name: str, x: Array) -> Array:
    if not name.startswith("attn_qkv"):
        return x
    # (heads, 3, size, ...) -> (3, heads, size, ...)
    return x.reshape(config.heads, 3, config.head_size, -1).swapaxes(0, 1).reshape(x.shape)


ARCHITECTURE = Architecture("gptneox", ("gpt_neox",), config, adapt, modules=_MODULES)
