"""torch.cuda by its path: the GPUs of this machine. On a machine with AMD GPUs only it means those, as torch does.

All but `amp` are methods of `pyflame.tensor.torch_cuda.cuda`; `pf.rocm` has the same for AMD GPUs.
"""

from typing import Any

from pyflame.cuda import amp
from pyflame.tensor.torch_cuda import cuda as _gpus

__all__ = ["amp"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_gpus, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in dir(_gpus) if not name.startswith("_"))})
