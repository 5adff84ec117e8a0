"""torch.backends.cpu by its path."""

from __future__ import annotations

from pyflame.core.device import CPU
from pyflame.engine.devices import get_device

__all__ = ["get_cpu_capability"]


_CAPABILITIES = {"avx512f": "AVX512", "avx2": "AVX2", "sve256": "SVE256"}


def get_cpu_capability() -> str:
    """The widest instructions that kernels use, as PyTorch names them: 'AVX512', 'AVX2', 'SVE256', else 'DEFAULT'.

    >>> pf.backends.cpu.get_cpu_capability() in ("AVX512", "AVX2", "SVE256", "DEFAULT")
    True
    """
    isa = get_device(CPU).target.isa
    return next((name for feature, name in _CAPABILITIES.items() if feature in isa), "DEFAULT")
