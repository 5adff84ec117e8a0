"""torch.cuda by its path: the GPUs of this machine. On a machine with AMD GPUs only it means those, as torch does.

All but `amp` and `measures` are methods of `pyflame.tensor.torch_cuda.cuda`; `pf.rocm` has those for AMD GPUs.
"""

from typing import Any

from pyflame.cuda import amp, nvtx
from pyflame.cuda.measures import (
    clock_rate,
    device_memory_used,
    list_gpu_processes,
    power_draw,
    temperature,
    utilization,
)
from pyflame.tensor import torch_names
from pyflame.tensor.torch_cuda import cuda as _gpus

__all__ = [
    "amp",
    "clock_rate",
    "device_memory_used",
    "list_gpu_processes",
    "nvtx",
    "power_draw",
    "temperature",
    "utilization",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name.endswith("Tensor") and isinstance(kind := getattr(torch_names, name, None), torch_names.TensorType):
        return kind.on("cuda")
    return getattr(_gpus, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in dir(_gpus) if not name.startswith("_"))})
