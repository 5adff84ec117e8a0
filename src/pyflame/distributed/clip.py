"""Gradient clipping by the norm that one process would see, however parameters and gradients are divided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflame.collectives.ops import all_gather_into_tensor
from pyflame.collectives.world import get_world_size
from pyflame.core.dtype import float32, float64
from pyflame.distributed.division import divisions_of
from pyflame.distributed.zero import sharding_gradients
from pyflame.tensor import Tensor
from pyflame.tensor.clip import clip_grads_with_norm_, get_total_norm, gradients_of
from pyflame.tensor.creation import zeros
from pyflame.tensor.gradients import no_grad

Groups = tuple[Any, ...]  # each has a part of these gradients on every process; the innermost group first


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients so that the norm of all of them, over all processes, is at most `max_norm`; gives that norm.

    Parameters of FullyShardedDataParallel, of parallel layers and of pipeline stages are summed over the processes that
    divide them; those that all processes have count once. Gradients of a ZeroRedundancyOptimizer of stage 2 are
    averaged first; go on with `step()`. Every process must call this with its parameters, in the same order.

    >>> p = pf.zeros(2, requires_grad=True); p.grad = pf.tensor([3.0, 4.0])
    >>> pf.distributed.clip_grad_norm_([p], 1.0), p.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    order = float(norm_type)
    norms = {groups: get_total_norm(gradients_of(some), order) for groups, some in _by_groups(listed).items()}
    while any(norms):
        groups = max(norms, key=len)  # the same on all processes of a group, also where stages differ
        norm = _over(groups[0], norms.pop(groups), order)
        rest = norms.get(groups[1:])
        norms[groups[1:]] = norm if rest is None else get_total_norm([norm, rest], order)
    total = get_total_norm(norms.values(), order, error_if_nonfinite)
    total = total.to(float64 if any(p.dtype is float64 for p in listed) else float32)
    clip_grads_with_norm_(listed, max_norm, total)
    return total


def _by_groups(parameters: list[Tensor]) -> dict[Groups, list[Tensor]]:
    """Parameters that are divided alike; those that have no gradient too, so that all processes see the same kinds."""
    averaged: dict[int, Any] = {}
    for optimizer in sharding_gradients(parameters):
        optimizer.average_gradients()
        averaged |= {id(p): optimizer.group for p in optimizer.params}
    found: dict[Groups, list[Tensor]] = {}
    for p in parameters:
        groups = [division.group for division in divisions_of(p)]
        groups += [averaged[id(p)]] if id(p) in averaged else []
        found.setdefault(tuple(groups), []).append(p)
    return found


def _over(group: Any, norm: Tensor, order: float) -> Tensor:
    """The norm of what all processes of a group have. Gathered, as a largest value must not lose a NaN."""
    everyone = zeros(get_world_size(group), dtype=float64)
    all_gather_into_tensor(everyone, norm.to(float64).reshape(1), group)
    return get_total_norm(everyone, order)
