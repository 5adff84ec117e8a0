"""pf.autocast: 16-bit where it pays, float32 where it matters, chosen by each op's class in the catalogue."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyflame.core.dtype import as_dtype, bfloat16, float16, float32
from pyflame.core.errors import DTypeError
from pyflame.core.state import mode

_GPUS = ("cuda", "rocm", "hip")


class autocast(mode):
    """Ops called inside compute in the given 16-bit dtype where the catalogue says "low" (matmul, convolution,
    attention), in float32 where it says "high" (softmax, norms, losses, sums), else in the dtype of their inputs.

    A context manager and a decorator. A device type may come first, as in PyTorch; it holds for all devices here. The
    dtype is bfloat16 unless given, float16 where the device type is a GPU's. float32 switches it off.

    >>> with pf.autocast(pf.bfloat16):
    ...     (pf.ones(2, 2) @ pf.ones(2, 2)).dtype.name
    'bfloat16'
    """

    def __init__(
        self,
        *args: Any,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
        device_type: str | None = None,
    ) -> None:
        given = list(args)
        if given and isinstance(given[0], str) and given[0].split(":")[0] in (*_GPUS, "cpu"):
            device_type = given.pop(0)
        if len(given) > 1:
            enabled = given[1]
        wanted = given[0] if given and given[0] is not None else dtype
        if wanted is None:
            wanted = float16 if device_type is not None and device_type.split(":")[0] in _GPUS else bfloat16
        self.dtype = as_dtype(wanted)
        if self.dtype is float32:
            enabled = False
        elif self.dtype not in (bfloat16, float16):
            raise DTypeError(
                f"[autocast] expected bfloat16 or float16 but got {self.dtype.name}; cast with x.to(...) for others"
            )
        self.enabled = enabled
        super().__init__(autocast=self.dtype if enabled else None)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            with autocast(self.dtype, enabled=self.enabled):
                return fn(*args, **kwargs)

        return call
