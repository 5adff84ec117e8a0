"""Qwen3: Llama with a norm over each head of q and k."""

from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import ModelConfig


def config(f: Fields) -> ModelConfig:
    return f.config(qk_norm="head")


ARCHITECTURE = Architecture("qwen3", ("qwen3",), config)
