"""Mixtral: Llama with experts in place of the MLP. Its GGUF files call themselves llama, so the code is there."""

from dataclasses import replace

from pyflame.llm.architectures.llama import ARCHITECTURE as LLAMA

ARCHITECTURE = replace(LLAMA, model_types=("mixtral",))
