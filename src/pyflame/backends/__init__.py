"""torch.backends by its path: switches that programs set and facts that they ask for.

A switch with a meaning here has it (`cudnn.deterministic`, `cuda.matmul.allow_tf32`); the others are remembered and
change nothing, since what they choose is chosen by measurement. What is not there says so: `mps.is_available()`.

`amd` and `nvidia`, which PyTorch has not, prepare models for GPUs (docs/backends.md).
"""

from importlib import import_module as _import_module

from pyflame.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["amd", "cpu", "cuda", "cudnn", "kernel_pytorch", "mkl", "mkldnn", "mps", "nvidia", "openmp"]
_LATER = ("amd", "kernel_pytorch", "nvidia")


def __getattr__(name: str) -> object:
    if name in _LATER:
        return _import_module(f"pyflame.backends.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
