"""Layers divided among processes (Megatron's division): columns, then rows, with one sum behind both.

A column-parallel layer gives each process some of the outputs; a row-parallel one takes them, and sums what all
processes make of theirs. Weights are drawn whole, by the group's first process, and cut: any number of processes starts
with the weights that one would have.
"""

from __future__ import annotations

from typing import Any

from pyflame.collectives.flat import broadcast_all
from pyflame.collectives.ops import all_reduce
from pyflame.collectives.world import get_rank, get_world_size, is_one_of_many
from pyflame.core.errors import ArgumentError
from pyflame.distributed.division import AxisDivision, divide, joined
from pyflame.nn.embedding import Embedding
from pyflame.nn.linear import Linear
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.custom import Function


def _summed(x: Tensor, group: Any) -> Tensor:
    out = x.detach() * 1
    all_reduce(out, group=group)
    return out


class _Copied(Function):
    """The same input for all processes; back, the sum of what each says about it."""

    @staticmethod
    def forward(ctx: Any, group: Any, x: Tensor) -> Tensor:
        ctx.group = group
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, _summed(gradient, ctx.group)


class _Summed(Function):
    """The sum over all processes; back, the same gradient for each."""

    @staticmethod
    def forward(ctx: Any, group: Any, x: Tensor) -> Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, gradient


class _Joined(Function):
    """The last axes of all processes, one behind the other; back, each process's own part."""

    @staticmethod
    def forward(ctx: Any, group: Any, x: Tensor) -> Tensor:
        ctx.group, ctx.width = group, x.shape[-1]
        return joined(x, -1, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        start = get_rank(ctx.group) * ctx.width
        return None, gradient[..., start : start + ctx.width]


class ParallelLayer(Module):
    """What the layers share: the group, and how a weight is cut."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        self.many = is_one_of_many(group)
        self.size, self.rank = (get_world_size(group), get_rank(group)) if self.many else (1, 0)

    def _check_count(self, what: str, count: int) -> None:
        """Raise unless the processes can share so many."""
        if count % self.size:
            raise ArgumentError(
                f"[{type(self).__name__}] expected {what} that {self.size} processes can share equally but got {count}"
            )

    def _part(self, whole: Tensor, axis: int) -> Parameter:
        """This process's part along an axis."""
        division = AxisDivision(self.group, axis)
        part = Parameter((division.part(whole.detach()) if self.many else whole.detach()).clone())
        if self.many:
            divide(part, division)
        return part

    def _agreed(self, module: Module) -> None:
        """Let all processes have the first one's weights."""
        if self.many:
            broadcast_all(list(module.parameters()), self.group)


class ColumnParallelLinear(ParallelLayer):
    """A Linear whose outputs are divided: (..., in) -> (..., out / processes), or all of them with `gather_output`.

    >>> pf.distributed.ColumnParallelLinear(4, 6)(pf.ones(2, 4)).shape
    (2, 6)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, gather_output: bool = False, group: Any = None
    ) -> None:
        super().__init__(group)
        self._check_count("out_features", out_features)
        whole = Linear(in_features, out_features, bias)
        self._agreed(whole)
        self.gather_output = gather_output
        self.weight = self._part(whole.weight, 0)
        self.register_parameter("bias", None if whole.bias is None else self._part(whole.bias, 0))

    def forward(self, input: Tensor) -> Tensor:
        x = _Copied.apply(self.group, input) if self.many else input
        out = F["linear"](x, self.weight, self.bias)
        return _Joined.apply(self.group, out) if self.many and self.gather_output else out


class RowParallelLinear(ParallelLayer):
    """A Linear whose inputs are divided: (..., in / processes) -> (..., out), the sum over all processes.

    >>> pf.distributed.RowParallelLinear(6, 4)(pf.ones(2, 6)).shape
    (2, 4)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, group: Any = None) -> None:
        super().__init__(group)
        self._check_count("in_features", in_features)
        whole = Linear(in_features, out_features, bias)
        self._agreed(whole)
        self.weight = self._part(whole.weight, 1)
        self.register_parameter("bias", whole.bias)

    def forward(self, input: Tensor) -> Tensor:
        out = F["linear"](input, self.weight, None)
        if self.many:
            out = _Summed.apply(self.group, out)
        return out if self.bias is None else out + self.bias


class VocabParallelEmbedding(ParallelLayer):
    """An Embedding whose rows are divided: a process gives zeros for the tokens of others, and all are summed.

    >>> pf.distributed.VocabParallelEmbedding(10, 3)(pf.tensor([1, 7])).shape
    (2, 3)
    """

    weight: Parameter

    def __init__(self, num_embeddings: int, embedding_dim: int, group: Any = None) -> None:
        super().__init__(group)
        self._check_count("num_embeddings", num_embeddings)
        whole = Embedding(num_embeddings, embedding_dim)
        self._agreed(whole)
        self.weight = self._part(whole.weight, 0)
        self.first = self.rank * self.weight.shape[0]

    def forward(self, input: Tensor) -> Tensor:
        if not self.many:
            return F["embedding"](self.weight, input)
        local = input - self.first
        mine = (local >= 0) & (local < self.weight.shape[0])
        local = F["where"](mine, local, 0)
        found = F["embedding"](self.weight, local) * mine.unsqueeze(-1).to(self.weight.dtype)
        out: Tensor = _Summed.apply(self.group, found)
        return out
