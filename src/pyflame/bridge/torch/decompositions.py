"""How aten ops are taken apart before a joint graph is cut into forward and backward: by torch, but for a few."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from pyflame.bridge.torch import rows
from pyflame.bridge.torch.split import op_name

_ATEN = torch.ops.aten
_MEAN = 1  # of reductions, as aten numbers them

# What torch's table of core ops leaves whole and our backward passes want in pieces. Of a log-softmax in pieces they
# keep logits, maxima and sums, and compute again what would be as large as the logits in float32.
_MORE = (
    _ATEN._log_softmax, _ATEN.native_layer_norm_backward, _ATEN.native_group_norm_backward,
    _ATEN.native_batch_norm_backward,
)  # fmt: skip


def nll_loss_backward(
    g: torch.Tensor, input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
    ignore_index: int, total_weight: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """By a comparison with all classes, which fuses with what comes next; torch scatters into zeros, which does not."""
    axis = min(input.dim() - 1, 1)
    behind = [1] * (input.dim() - axis - 1)
    g = g / total_weight if reduction == _MEAN else g
    target = target[0] if input.dim() == 1 and target.dim() else target
    target = target.unsqueeze(axis)
    g = g.unsqueeze(axis) if input.dim() > g.dim() > 0 else g
    g = g if weight is None else g * weight.reshape(-1, *behind)
    classes = torch.arange(input.shape[axis], device=input.device).reshape(-1, *behind)
    return torch.where((classes == target) & (target != ignore_index), -g, 0).to(input.dtype)


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's, but for ops that our catalogue has whole."""
    table = {**core_aten_decompositions(), **get_decompositions(_MORE)}
    table |= dict.fromkeys((_ATEN.nll_loss_backward.default, _ATEN.nll_loss2d_backward.default), nll_loss_backward)
    return {op: fn for op, fn in table.items() if op_name(op) not in rows.WHOLE}
