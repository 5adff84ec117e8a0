"""StableLM: Llama with layer norms and a rope over a part of each head.

The 12B model has norms for each head of q and k, and a parallel MLP that reads what attention reads.
"""

from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import ModelConfig


def config(f: Fields) -> ModelConfig:
    parallel = (
        bool(f("use_parallel_residual", "use_parallel_residual", False)) and "blk.0.ffn_norm.weight" not in f.names
    )
    return f.config(
        norm="layer",
        norm_eps=float(f("attention.layer_norm_epsilon", "layer_norm_eps", 1e-5)),
        norm_bias=True,
        qk_norm="each" if "blk.0.attn_q_norm.weight" in f.names else "none",
        parallel=parallel,
        mlp_norm=None if parallel else "ffn_norm",
    )


ARCHITECTURE = Architecture("stablelm", ("stablelm",), config)
