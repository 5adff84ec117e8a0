"""torch.utils.checkpoint by its path: the function is `pf.checkpoint`."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyflame.core.errors import ArgumentError, ArgumentTypeError, type_name
from pyflame.tensor import Tensor
from pyflame.transform import checkpoint as _checkpoint
from pyflame.transform.checkpoint import CheckpointError

__all__ = [
    "CheckpointError", "CheckpointPolicy", "check_backward_validity", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "detach_variable", "get_device_states", "noop_context_fn",
    "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def noop_context_fn() -> Contexts:
    """Contexts of the two runs of a checkpointed function that do nothing.

    >>> first, second = pf.utils.checkpoint.noop_context_fn()
    """
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`pf.checkpoint` with PyTorch's options. `context_fn` gives the contexts of the first run and of the run for
    gradients. The others change nothing here: random numbers are always the same in both runs, gradients always flow to
    tensors that the function captures, and the second run computes no more than gradients need.

    >>> pf.utils.checkpoint.checkpoint(pf.exp, pf.zeros(2), use_reentrant=False)
    tensor([1., 1.])
    """
    if context_fn is not noop_context_fn:
        function = _within(function, context_fn())
    return _checkpoint(function, *args, **kwargs)


def _within(function: Callable[..., Any], contexts: Contexts) -> Callable[..., Any]:
    """The function, whose first call runs within one context, and all others within the second."""
    first, again = contexts
    waiting = [first]

    def run(*args: Any, **kwargs: Any) -> Any:
        with waiting.pop() if waiting else again:
            return function(*args, **kwargs)

    return run


class set_checkpoint_early_stop(nullcontext[None]):
    """Taken and without effect: the run for gradients computes no more than they need in any case.

    >>> with pf.utils.checkpoint.set_checkpoint_early_stop(False):
    ...     pass
    """

    def __init__(self, enable: bool) -> None:
        super().__init__()


class set_checkpoint_debug_enabled(nullcontext[None]):
    """Taken and without effect: the second run is the first one, so both cannot differ."""

    def __init__(self, enabled: bool | None) -> None:
        super().__init__()


class CheckpointPolicy(enum.Enum):
    """What PyTorch's policies say of an op: whether its result is kept, or computed again for gradients."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> Contexts:
    """Contexts for `context_fn` that do nothing: everything in a checkpointed function is computed again.

    >>> from functools import partial
    >>> from pyflame.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> checkpoint(pf.exp, pf.zeros(2), context_fn=partial(create_selective_checkpoint_contexts, [pf.exp]))
    tensor([1., 1.])
    """
    return nullcontext(), nullcontext()


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of tensors, off the tape; those that required gradients still do, as leaves.

    >>> (pf.utils.checkpoint.detach_variable((pf.ones(2, requires_grad=True) * 2, 3)))[0].is_leaf
    True
    """
    if not isinstance(inputs, tuple):
        raise ArgumentTypeError(f"[detach_variable] expected a tuple of tensors but got {type_name(inputs)}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """No devices and no states: the random numbers of all devices come from the one that `pf.get_rng_state()` gives.

    >>> pf.utils.checkpoint.get_device_states(pf.ones(2))
    ([], [])
    """
    return [], []


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Take back what `get_device_states` gave, which is nothing.

    >>> pf.utils.checkpoint.set_device_states([], [])
    """


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor requires gradients: nothing would flow back.

    >>> pf.utils.checkpoint.check_backward_validity([pf.ones(2, requires_grad=True)])
    """
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("[checkpoint] no input requires gradients, so there will be none", stacklevel=2)


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
