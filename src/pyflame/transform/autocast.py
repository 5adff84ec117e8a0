"""pf.autocast: 16-bit where it pays, float32 where it matters, chosen by each op's class in the catalogue."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyflame.core.dtype import as_dtype, bfloat16, float16
from pyflame.core.errors import DTypeError
from pyflame.core.state import mode


class autocast(mode):
    """Ops called inside compute in the given 16-bit dtype where the catalogue says "low" (matmul, convolution,
    attention), in float32 where it says "high" (softmax, norms, losses, sums), else in the dtype of their inputs.

    A context manager and a decorator. A device type may come first, as in PyTorch; it holds for all devices here.

    >>> with pf.autocast(pf.bfloat16):
    ...     (pf.ones(2, 2) @ pf.ones(2, 2)).dtype.name
    'bfloat16'
    """

    def __init__(self, *args: Any, dtype: Any = None, enabled: bool = True, device_type: str | None = None) -> None:
        given = [a for a in args if not (isinstance(a, str) and a.split(":")[0] in ("cpu", "cuda", "rocm", "hip"))]
        wanted = given[0] if given else dtype if dtype is not None else bfloat16
        self.dtype = as_dtype(wanted)
        if self.dtype not in (bfloat16, float16):
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
