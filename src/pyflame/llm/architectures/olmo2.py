"""OLMo 2: Llama with norms behind attention and MLP instead of before, and norms over all of q and of k."""

from pyflame.llm.architectures.base import Architecture, Fields
from pyflame.llm.config import ModelConfig


def config(f: Fields) -> ModelConfig:
    return f.config(pre_norm=False, post_norm=True, qk_norm="all")


ARCHITECTURE = Architecture("olmo2", ("olmo2",), config)
