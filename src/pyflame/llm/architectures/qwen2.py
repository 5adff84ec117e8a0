"""Qwen2 and Qwen2.5: Llama with a bias on q, k and v. Its GGUF files turn halves, as Hugging Face does."""

from pyflame.llm.architectures.base import QKV, Architecture, Fields
from pyflame.llm.config import ModelConfig


def config(f: Fields) -> ModelConfig:
    window = f("", "sliding_window", None) if f("", "use_sliding_window", False) else None
    first = int(f("", "max_window_layers", 0))
    return f.config(biases=QKV, windows=f.windows(window, lambda layer: layer >= first))


ARCHITECTURE = Architecture("qwen2", ("qwen2",), config)
