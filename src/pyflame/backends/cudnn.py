"""torch.backends.cudnn by its path: `deterministic` is pf.deterministic, `allow_tf32` the precision of products."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

from pyflame.backends.cuda import Products
from pyflame.core.precision import get_float32_matmul_precision, set_float32_matmul_precision
from pyflame.core.state import state
from pyflame.tensor.torch_cuda import cuda

__all__ = ["benchmark", "enabled", "flags", "is_available", "version"]

# Remembered only. Implementations are measured once per shape unless PYFLAME_TUNE=0; PYFLAME_LIBRARIES names libraries.
benchmark = False
benchmark_limit = 10
enabled = True


def is_available() -> bool:
    """Whether there is a GPU whose vendor library may run convolutions: cuDNN or MIOpen.

    >>> pf.backends.cudnn.is_available() == pf.cuda.is_available()
    True
    """
    return cuda.is_available()


def version() -> int | None:
    """None: libraries are loaded when they are first used, and `pf.explain` names them."""
    return None


class _Switches(types.ModuleType):
    """The module's class: assignments to these names take effect."""

    @property
    def deterministic(self) -> bool:
        """Whether only implementations are used that give the same bits in every run, in this thread."""
        return state.deterministic

    @deterministic.setter
    def deterministic(self, wanted: bool) -> None:
        state.deterministic = bool(wanted)

    allow_tf32 = Products.allow_tf32  # one switch for products and convolutions


@contextmanager
def flags(
    enabled: bool = True, benchmark: bool = False, deterministic: bool = False, allow_tf32: bool | None = None
) -> Iterator[None]:
    """The switches within a `with` block.

    >>> with pf.backends.cudnn.flags(deterministic=True):
    ...     y = pf.ones(3).sum()
    """
    before = state.deterministic, get_float32_matmul_precision()
    state.deterministic = deterministic
    if allow_tf32 is not None:
        set_float32_matmul_precision("high" if allow_tf32 else "highest")
    try:
        yield
    finally:
        state.deterministic = before[0]
        set_float32_matmul_precision(before[1])


sys.modules[__name__].__class__ = _Switches
