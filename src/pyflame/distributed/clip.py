"""Gradient clipping where each process has gradients of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflame.collectives.ops import all_reduce
from pyflame.collectives.world import is_initialized
from pyflame.tensor import Tensor
from pyflame.tensor.clip import clip_grads_with_norm_, get_total_norm, gradients_of
from pyflame.tensor.gradients import no_grad


@no_grad()
def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float, group: Any = None) -> Tensor:
    """Scale gradients so that the norm of all of them, over all processes of the group, is at most `max_norm`.

    For parameters that differ between processes: those of FullyShardedDataParallel, of pipeline stages, of parallel
    layers. Where all processes have the same gradients, `nn.utils.clip_grad_norm_` is right.

    >>> p = pf.zeros(2, requires_grad=True); p.grad = pf.tensor([3.0, 4.0])
    >>> pf.distributed.clip_grad_norm_([p], 1.0), p.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    listed = list(parameters)
    norm = get_total_norm(gradients_of(listed))
    if is_initialized():
        square = norm * norm
        all_reduce(square, group=group)
        norm = square.sqrt()
    clip_grads_with_norm_(listed, max_norm, norm)
    return norm
