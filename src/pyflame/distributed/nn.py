"""torch.distributed.nn by its path: collectives that give new tensors, and that gradients flow through.

The gradient of each is the collective that goes the other way, so every process must call backward too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyflame.collectives import ops
from pyflame.collectives.ops import ReduceOp
from pyflame.collectives.world import get_rank, get_world_size
from pyflame.tensor import Tensor
from pyflame.tensor.custom import Function

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter",
    "scatter",
]  # fmt: skip

Back = Callable[..., Sequence[Tensor]]


class _Collective(Function):
    """`run` makes the results; `back` takes their gradients to those of the tensors."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], back: Back, *tensors: Tensor) -> Any:
        ctx.back = back
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *ctx.back(*gradients)


def _like(tensor: Tensor, group: Any) -> list[Tensor]:
    """Room for one such tensor of each process."""
    return [tensor.new_zeros(tensor.shape) for _ in range(get_world_size(group))]


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all processes; its gradient is the sum of theirs.

    >>> pf.distributed.nn.all_reduce(pf.ones(2))
    tensor([1., 1.])
    """

    def run(x: Tensor) -> Tensor:
        out = x.clone()
        ops.all_reduce(out, op, group)
        return out

    return _Collective.apply(run, lambda g: (all_reduce(g, op, group),), tensor)  # type: ignore[no-any-return]


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of process `src`, to which the gradients of all go."""

    def run(x: Tensor) -> Tensor:
        out = x.clone()
        ops.broadcast(out, src, group)
        return out

    def back(g: Tensor) -> Sequence[Tensor]:
        total = reduce(g, src, group=group)
        return (total if get_rank() == src else total * 0,)

    return _Collective.apply(run, back, tensor)  # type: ignore[no-any-return]


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all processes, in process `dst`, whose gradient all get."""

    def run(x: Tensor) -> Tensor:
        out = x.clone()
        ops.reduce(out, dst, op, group)
        return out

    return _Collective.apply(run, lambda g: (broadcast(g, dst, group),), tensor)  # type: ignore[no-any-return]


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes; the gradient is the sum of what all of them give this one's.

    >>> pf.distributed.nn.all_gather(pf.ones(2))
    (tensor([1., 1.]),)
    """

    def run(x: Tensor) -> tuple[Tensor, ...]:
        outs = _like(x, group)
        ops.all_gather(outs, x, group)
        return tuple(outs)

    def back(*gradients: Tensor) -> Sequence[Tensor]:
        return (reduce_scatter(gradients[0].new_zeros(tensor.shape), gradients, group=group),)

    return _Collective.apply(run, back, tensor)  # type: ignore[no-any-return]


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all processes of their tensors for this one. `output` is of its shape."""

    def run(*parts: Tensor) -> Tensor:
        out = output.new_zeros(output.shape)
        ops.reduce_scatter(out, list(parts), op, group)
        return out

    return _Collective.apply(run, lambda g: all_gather(g, group), *input_list)  # type: ignore[no-any-return]


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes, in process `dst`; zeros in the others."""

    def run(x: Tensor) -> tuple[Tensor, ...]:
        outs = _like(x, group)
        ops.gather(x, outs if get_rank() == dst else None, dst, group)
        return tuple(outs)

    return _Collective.apply(run, lambda *g: (scatter(g, dst, group),), tensor)  # type: ignore[no-any-return]


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This process's tensor of the list of process `src`. The others give a list of such tensors too."""

    def run(*parts: Tensor) -> Tensor:
        out = parts[0].new_zeros(parts[0].shape)
        ops.scatter(out, list(parts) if get_rank() == src else None, src, group)
        return out

    return _Collective.apply(run, lambda g: gather(g, src, group), *tensors)  # type: ignore[no-any-return]


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Process i's tensor for this one, in place i. The first list says their shapes."""

    def run(*parts: Tensor) -> tuple[Tensor, ...]:
        outs = [out.new_zeros(out.shape) for out in output_tensor_list]
        ops.all_to_all(outs, list(parts), group)
        return tuple(outs)

    def back(*gradients: Tensor) -> Sequence[Tensor]:
        return all_to_all([part.detach() for part in input_tensor_list], gradients, group)

    return _Collective.apply(run, back, *input_tensor_list)  # type: ignore[no-any-return]


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
) -> Tensor:
    """As all_to_all, with parts of one tensor along its first axis. `output` is of the result's shape."""

    def run(x: Tensor) -> Tensor:
        out = output.new_zeros(output.shape)
        ops.all_to_all_single(out, x, output_split_sizes, input_split_sizes, group)
        return out

    def back(g: Tensor) -> Sequence[Tensor]:
        return (all_to_all_single(input.detach(), g, input_split_sizes, output_split_sizes, group),)

    return _Collective.apply(run, back, input)  # type: ignore[no-any-return]
