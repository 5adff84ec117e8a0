"""torch.cuda.amp by its path: the older names of what `pyflame.amp` has."""

from __future__ import annotations

from typing import Any

from pyflame import amp
from pyflame.amp import custom_bwd, custom_fwd
from pyflame.core.dtype import float16
from pyflame.core.torch_paths import below

__getattr__ = below("cuda.amp")

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
__path__: list[str] = []  # torch has files below it


class autocast(amp.autocast):
    """pf.autocast with float16 as its default.

    >>> with pf.cuda.amp.autocast():
    ...     (pf.ones(2, 2) @ pf.ones(2, 2)).dtype.name
    'float16'
    """

    def __init__(self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True) -> None:
        super().__init__(dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """pf.GradScaler, with the scale as its first argument.

    >>> pf.cuda.amp.GradScaler(1024.0).get_scale()
    1024.0
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(None, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
