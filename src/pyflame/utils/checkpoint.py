"""torch.utils.checkpoint by its path: the function is `pf.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.transform import checkpoint as _checkpoint

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    **kwargs: Any,
) -> Any:
    """`pf.checkpoint` with PyTorch's options, which change nothing here: random numbers are always the same in both
    runs, and gradients always flow to tensors that the function captures.

    >>> pf.utils.checkpoint.checkpoint(pf.exp, pf.zeros(2), use_reentrant=False)
    tensor([1., 1.])
    """
    return _checkpoint(function, *args, **kwargs)


def checkpoint_sequential(functions: Any, segments: int, input: Any, **kwargs: Any) -> Any:
    """Run a sequence of functions in segments, of which all but the last are computed again in the backward pass.

    >>> layers = [pf.tanh, pf.sin, pf.exp]
    >>> pf.utils.checkpoint.checkpoint_sequential(layers, 2, pf.zeros(2))
    tensor([1., 1.])
    """
    listed = list(functions.children() if hasattr(functions, "children") else functions)
    if not 1 <= segments <= len(listed):
        raise ArgumentError(f"[checkpoint_sequential] expected 1 to {len(listed)} segments but got {segments}")
    size = len(listed) // segments
    last = size * (segments - 1)

    def run(start: int, end: int) -> Callable[[Any], Any]:
        def forward(value: Any) -> Any:
            for function in listed[start:end]:
                value = function(value)
            return value

        return forward

    for start in range(0, last, size):
        input = checkpoint(run(start, start + size), input, **kwargs)
    return run(last, len(listed))(input)
