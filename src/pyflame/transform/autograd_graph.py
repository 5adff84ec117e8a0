"""torch.autograd.graph: hooks on several gradients. What the tape keeps is the engine's affair, so hooks on saved
tensors are not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.core.state import state
from pyflame.tensor.grad_fn import GradFn as Node
from pyflame.tensor.gradients import HookHandle
from pyflame.tensor.tensor import Tensor

__all__ = [
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class saved_tensors_hooks:
    """Raises: the tape keeps graphs, and computes again what is cheap, so there is no moment at which it saves."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError(
            f"[{type(self).__name__}] expected a way to save memory that is there; use pf.checkpoint(function, *args), "
            "which keeps arguments only"
        )


class save_on_cpu(saved_tensors_hooks):
    """Raises, as saved_tensors_hooks."""


class disable_saved_tensors_hooks(nullcontext[None]):
    """A block without hooks on saved tensors, as every one is."""

    def __init__(self, error_message: str = "") -> None:
        super().__init__()


class allow_mutation_on_saved_tensors(nullcontext[None]):
    """A block in which saved tensors may be changed in place, as everywhere: the tape keeps values, not memory."""


class _Handles:
    def __init__(self, handles: list[HookHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all") -> Any:
    """Call `fn(gradients)` in a backward pass when the gradients of all tensors are known, or at its end where some
    have none; with mode="any" `fn(gradient)` at the first one. The gradients cannot be changed.

    >>> a, b = (pf.ones(1, requires_grad=True) for _ in range(2))
    >>> handle = pf.autograd.graph.register_multi_grad_hook([a, b], lambda found: print([g.item() for g in found]))
    >>> (2 * a + 3 * b).sum().backward()
    [2.0, 3.0]
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"[register_multi_grad_hook] expected mode 'all' or 'any' but got {mode!r}")
    found: dict[int, Tensor] = {}

    def finish() -> None:
        if found and mode == "all":
            gradients = [found.get(i) for i in range(len(tensors))]
            found.clear()
            fn(gradients)

    def arrived(number: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            if finish not in state.after_backward:  # the first one of this pass
                state.after_backward.append(finish)  # some may have no gradient
                found.clear()
                if mode == "any":
                    fn(gradient)
            found[number] = gradient
            if len(found) == len(tensors):
                finish()

        return hook

    return _Handles([t.register_hook(arrived(i)) for i, t in enumerate(tensors) if t.requires_grad])
