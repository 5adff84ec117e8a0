"""Llama 2 and 3, and what has the same shape: SmolLM, TinyLlama, Yi, Mistral. The other files say what differs.

GGUF's files have the rows of q and k reordered so that rope turns neighbours; Hugging Face's turn halves. Mixtral's
GGUF files call themselves llama, too, and have experts.
"""

from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import Experts, ModelConfig


def config(f: Fields) -> ModelConfig:
    window = f("attention.sliding_window", "sliding_window", None)
    return f.config(
        rope=f.rope(interleaved=not f.hf),
        windows=f.windows(window, lambda layer: True),
        experts=_experts(f),
    )


def _experts(f: Fields) -> Experts | None:
    count = int(f("expert_count", "num_local_experts", 0))
    if not count:
        return None
    return Experts(
        count, int(f("expert_used_count", "num_experts_per_tok")), int(f("feed_forward_length", "intermediate_size"))
    )


ARCHITECTURE = Architecture("llama", ("llama", "mistral"), config)
