"""torch.fx by its path: `wrap`, which libraries put before functions. Programs are traced by `pf.jit` here; the names
of its graphs can be imported, and raise when they are called.
"""

from __future__ import annotations

from typing import Any

from pyflame.core.torch_paths import below
from pyflame.core.torch_paths import refused as _refused

__all__ = ["wrap"]
__path__: list[str] = []  # torch has files below it
_REFUSED = ("Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "symbolic_trace")
_WAY = "pf.jit traces functions, pf.explain shows their graphs, pf.onnx.export writes them"
_below = below("fx")


def wrap(fn: Any) -> Any:
    """The function, or its name, as it is: tracing looks into every function.

    >>> pf.fx.wrap(len) is len
    True
    """
    return fn


def __getattr__(name: str) -> type:
    if name not in _REFUSED:
        return _below(name)  # type: ignore[no-any-return]
    return globals().setdefault(name, _refused(name, _WAY))  # type: ignore[no-any-return]
