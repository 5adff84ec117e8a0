"""Gradient clipping, as part of the graph: nothing is read back by the host, so it works inside of a jitted step.

`foreach` is PyTorch's choice of an implementation; there is one here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from pyflame.core.dtype import float32, float64
from pyflame.core.errors import ArgumentError, GradientError, TraceError
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.tensor import read


def gradients_of(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of those that have one."""
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in listed:
        read(p)  # a trace depends on which parameters have gradients
    return [p.grad for p in listed if p.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as if they were one vector, as a 0-d tensor. Those of 16 bits are summed in float32.

    >>> optim.get_total_norm([pf.tensor([3.0]), pf.tensor([4.0])])
    tensor(5.)
    """
    listed = [t for t in ([tensors] if isinstance(tensors, Tensor) else tensors) if t.numel()]
    order = float(norm_type)
    if not listed:
        return tensor(0.0)
    norm = FUNCTIONS["norm"]
    kind = float64 if any(t.dtype is float64 for t in listed) else float32
    total: Tensor = norm(FUNCTIONS["stack"]([norm(t, order, dtype=kind) for t in listed]), order)
    if error_if_nonfinite:
        if state.tracer is not None:
            raise TraceError(
                "[clip_grad_norm_] expected error_if_nonfinite=False in a jitted function, which cannot raise for a "
                "value; skip such steps: optimizer.step(skip=~pf.isfinite(norm))"
            )
        if not FUNCTIONS["isfinite"](total).item():
            raise GradientError(
                f"[clip_grad_norm_] expected finite gradients but their norm of order {order} is {total.item()}; look "
                "for the NaN or infinity, or pass error_if_nonfinite=False"
            )
    return total


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients down so that their total norm is at most `max_norm`; gives the norm that they had.

    >>> norm = optim.clip_grad_norm_(model.parameters(), 1.0)
    """
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if any(getattr(p, "divisions", ()) for p in listed):
        raise ArgumentError(
            "[clip_grad_norm_] expected whole parameters but some are divided among processes, whose norm this process "
            "cannot see; use pf.distributed.clip_grad_norm_"
        )
    total = get_total_norm(gradients_of(listed), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(listed, max_norm, total)
    return total


@no_grad()
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients down as clip_grad_norm_ does, by a norm that is known.

    >>> nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)
    """
    # A tiny number keeps the quotient finite; multiplying by 1 is cheaper than asking whether to.
    factor = FUNCTIONS["clamp"](float(max_norm) / (total_norm + 1e-6), max=1.0)
    for g in gradients_of(parameters):
        kind = g.dtype.compute
        g._rebind((g.to(kind) * factor.to(kind)).to(g.dtype))


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients to [-clip_value, clip_value].

    >>> optim.clip_grad_value_(model.parameters(), 0.5)
    """
    limit = float(clip_value)
    if not limit >= 0:
        raise ArgumentError(f"[clip_grad_value_] expected a clip_value of at least 0 but got {clip_value}")
    for g in gradients_of(parameters):
        g._rebind(FUNCTIONS["clamp"](g, -limit, limit))


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """An older name of `clip_grad_norm_`; it warns, as PyTorch's."""
    warnings.warn("[clip_grad_norm] is deprecated in favour of clip_grad_norm_", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
