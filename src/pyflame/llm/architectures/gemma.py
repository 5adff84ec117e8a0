"""Gemma: Llama with a gelu, embeddings scaled by sqrt(width), a wide head, and norms stored as what is added to 1."""

from pyflame.llm.architectures.base import Architecture, Fields, add_one
from pyflame.llm.config import ModelConfig


def config(f: Fields) -> ModelConfig:
    return f.config(activation="gelu_tanh", embedding_scale=f.width**0.5)


ARCHITECTURE = Architecture("gemma", ("gemma",), config, adapt=add_one)
