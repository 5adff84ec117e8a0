"""torch.backends.cpu by its path."""

from __future__ import annotations

from pyflame.core.device import CPU
from pyflame.engine.devices import get_device

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """The widest instructions that kernels use, as PyTorch names them: 'AVX512', 'AVX2', else 'DEFAULT'.

    >>> pf.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
    True
    """
    isa = get_device(CPU).target.isa
    return "AVX512" if "avx512f" in isa else "AVX2" if "avx2" in isa else "DEFAULT"
