"""torch.fx by its path: `wrap`, which libraries put before functions. Programs are traced by `pf.jit` here."""

from __future__ import annotations

from typing import Any

__all__ = ["wrap"]


def wrap(fn: Any) -> Any:
    """The function, or its name, as it is: tracing looks into every function.

    >>> pf.fx.wrap(len) is len
    True
    """
    return fn
