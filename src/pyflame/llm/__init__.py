"""Language models: checkpoints in, text out. Made of nn modules, ops of the catalogue and `pf.jit`.

>>> model = pf.llm.load("SmolLM2-135M-Instruct.Q4_1.gguf")
>>> for chunk in model.stream(messages=[{"role": "user", "content": "Hello"}]):
...     print(chunk.text, end="")
"""

from pyflame.llm.adapter import load_adapter, save_adapter
from pyflame.llm.architectures import known as known_architectures
from pyflame.llm.config import ModelConfig
from pyflame.llm.estimate import Estimate, estimate
from pyflame.llm.files import open_checkpoint
from pyflame.llm.generate import Model
from pyflame.llm.load import load
from pyflame.llm.lora import add_lora, lora_parameters, merge_lora, remove_lora
from pyflame.llm.lora_rows import load_adapters
from pyflame.llm.sampler import Sampling
from pyflame.llm.serving.engine import Engine
from pyflame.llm.serving.offline import batch
from pyflame.llm.serving.request import Request
from pyflame.llm.serving.stats import EngineStats, Histogram
from pyflame.llm.text import Chunk, Generation, Logprob, Timings

__all__ = [
    "Chunk",
    "Engine",
    "EngineStats",
    "Estimate",
    "Generation",
    "Histogram",
    "Logprob",
    "Model",
    "ModelConfig",
    "Request",
    "Sampling",
    "Timings",
    "add_lora",
    "batch",
    "estimate",
    "known_architectures",
    "load",
    "load_adapter",
    "load_adapters",
    "lora_parameters",
    "merge_lora",
    "open_checkpoint",
    "remove_lora",
    "save_adapter",
]
