"""Gemma 3: Gemma 2 with norms over heads of q and k instead of soft-caps.

Five of six layers have a window and turn by a base of their own.
"""

from pyflame.llm.architectures.base import Architecture, Fields, add_one
from pyflame.llm.architectures.gemma2 import query_scalar
from pyflame.llm.config import ModelConfig, Rope


def config(f: Fields) -> ModelConfig:
    every = int(f("attention.sliding_window_pattern", "sliding_window_pattern", 6))
    local = (f.metadata.get("rope_parameters") or {}).get("sliding_attention", {}).get("rope_theta")
    return f.config(
        activation="gelu_tanh",
        embedding_scale=f.width**0.5,
        post_norm=True,
        qk_norm="head",
        attention_scale=query_scalar(f, 62) ** -0.5,
        rope=f.rope(1e6),
        local_rope=Rope(f.head_size, float(local or f("rope.freq_base_swa", "rope_local_base_freq", 10000.0))),
        windows=f.windows(
            f("attention.sliding_window", "sliding_window", 1024), lambda layer: (layer + 1) % every != 0
        ),
    )


ARCHITECTURE = Architecture(
    "gemma3",
    ("gemma3_text", "gemma3"),
    config,
    adapt=add_one,
    aliases={r"^language_model\.": "", r"^model\.language_model\.": "model."},
)
