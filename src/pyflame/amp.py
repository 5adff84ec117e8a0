"""torch.amp by its path: autocast and GradScaler, and decorators for autograd functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from pyflame.core.dtype import as_dtype
from pyflame.core.state import mode, state
from pyflame.core.torch_paths import below
from pyflame.optim.scaler import GradScaler
from pyflame.tensor import Tensor
from pyflame.transform.autocast import autocast

__getattr__ = below("amp")

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
__path__: list[str] = []  # torch has files below it

Fn = TypeVar("Fn", bound=Callable[..., Any])


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast works on a type of device: it does on all of them.

    >>> pf.amp.is_autocast_available("cpu")
    True
    """
    return device_type.split(":")[0] in ("cpu", "cuda", "rocm", "hip", "sim", "null", "meta")


def custom_fwd(fwd: Any = None, *, device_type: str = "cuda", cast_inputs: object = None) -> Any:
    """Decorates `forward` of an autograd.Function: with `cast_inputs` it runs without autocast, its float tensors cast.

    >>> @pf.amp.custom_fwd(device_type="cuda", cast_inputs=pf.float32)
    ... def forward(ctx, x):
    ...     return x * 2
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if cast_inputs is None or state.autocast is None:
            return fwd(*args, **kwargs)
        wanted = as_dtype(cast_inputs)

        def cast(value: Any) -> Any:
            return value.to(wanted) if isinstance(value, Tensor) and value.dtype.is_float else value

        with mode(autocast=None):
            return fwd(*map(cast, args), **{k: cast(v) for k, v in kwargs.items()})

    return forward


def custom_bwd(bwd: Any = None, *, device_type: str = "cuda") -> Any:
    """Decorates `backward` of an autograd.Function. Backward passes run without autocast here, so it changes nothing.

    >>> @pf.amp.custom_bwd(device_type="cuda")
    ... def backward(ctx, g):
    ...     return g * 2
    """
    return functools.partial(custom_bwd, device_type=device_type) if bwd is None else bwd
