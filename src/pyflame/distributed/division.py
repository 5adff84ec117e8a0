"""How a parameter is divided among processes, kept on the parameter itself: norms and checkpoints read it there.

A parameter may be divided more than once, by a parallel layer and then by FullyShardedDataParallel: `divisions_of`
gives the layer's first, and what is put together again begins with the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from pyflame.collectives.ops import all_gather_into_tensor
from pyflame.collectives.world import get_rank, get_world_size, is_one_of_many
from pyflame.core.errors import NotSupportedError
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.tensor.modes import eval as evaluate


@dataclass(frozen=True)
class Division:
    """Each process of the group has parameters of its own: nothing can be put together."""

    group: Any

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what a part of this shape is a part of."""
        raise NotSupportedError(
            "[checkpoint] expected parameters that all processes share or divide but got those of a stage, which no "
            "other process has; save model.state_dict() of each process with pf.save"
        )

    def whole(self, part: Tensor) -> Tensor:
        """All parts together. Every process of the group must call this."""
        raise NotImplementedError

    def part(self, whole: Tensor) -> Tensor:
        """This process's part."""
        raise NotImplementedError


@dataclass(frozen=True)
class AxisDivision(Division):
    """Equal parts along one axis: those of parallel layers."""

    axis: int

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(n * get_world_size(self.group) if i == self.axis else n for i, n in enumerate(shape))

    def whole(self, part: Tensor) -> Tensor:
        return joined(part, self.axis, self.group)

    def part(self, whole: Tensor) -> Tensor:
        return whole.chunk(get_world_size(self.group), self.axis)[get_rank(self.group)]


@dataclass(frozen=True)
class FlatDivision(Division):
    """Equal parts of all elements in a row, with zeros at the end: those of FullyShardedDataParallel."""

    shape: tuple[int, ...]

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.shape

    def whole(self, part: Tensor) -> Tensor:
        return joined(part, 0, self.group)[: prod(self.shape)].reshape(self.shape)

    def part(self, whole: Tensor) -> Tensor:
        size, rank = get_world_size(self.group), get_rank(self.group)
        flat = whole.reshape(-1).numpy()
        length = -(-len(flat) // size)
        mine = flat[rank * length : (rank + 1) * length]
        out = tensor(mine).new_zeros(length)
        out[: len(mine)] = tensor(mine)
        evaluate(out)
        return out


def joined(part: Tensor, axis: int, group: Any) -> Tensor:
    """The parts of all processes, one behind the other along an axis."""
    first = part.detach().movedim(axis, 0).contiguous()
    out = first.new_zeros((get_world_size(group) * first.shape[0], *first.shape[1:]))
    all_gather_into_tensor(out, first, group)
    return out.movedim(0, axis)


def divisions_of(parameter: Tensor) -> tuple[Division, ...]:
    """How a parameter is divided, the first division first; empty where all processes have the whole of it."""
    return getattr(parameter, "divisions", ())


def divide(parameter: Parameter, division: Division) -> None:
    """Keep with a parameter that it is divided so, once."""
    if division not in divisions_of(parameter):
        parameter.divisions = (*divisions_of(parameter), division)  # type: ignore[attr-defined]


def whole_shape_of(parameter: Tensor) -> tuple[int, ...]:
    """The shape of what a parameter is a part of."""
    shape = tuple(parameter.shape)
    for division in divisions_of(parameter)[::-1]:
        shape = division.whole_shape(shape)
    return shape


def whole_of(parameter: Tensor, value: Tensor) -> Tensor:
    """A value that is divided as the parameter is, put together. Every process that divides it must call this."""
    whole_shape_of(parameter)  # raises where nothing can be put together
    for division in divisions_of(parameter)[::-1]:
        value = division.whole(value)
    return value


def part_of(parameter: Tensor, whole: Tensor) -> Tensor:
    """This process's part of a value, divided as the parameter is."""
    for division in divisions_of(parameter):
        whole = division.part(whole)
    return whole


def mark_divided(parameters: Iterable[Parameter], group: Any = None) -> None:
    """Say that each process of the group has parameters of its own here, so that `clip_grad_norm_` counts them all.

    Parallel layers, FullyShardedDataParallel and Schedule1F1B do this themselves; a layer of your own that differs
    between processes, such as experts, needs it.

    >>> pf.distributed.mark_divided(nn.Linear(2, 2).parameters())
    """
    if is_one_of_many(group):
        for p in parameters:
            divide(p, Division(group))
