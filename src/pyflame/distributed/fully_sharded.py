"""FullyShardedDataParallel: each process keeps a part of every parameter, its gradient and optimiser state (ZeRO 3).

A wrapped module's parameters are gathered before its forward pass and let go behind it; the backward pass gathers them
again, computes the forward pass again as pf.checkpoint does, and leaves each process the mean of its part's gradient.
What is wrapped together is whole at the same time: wrap each block, then the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from pyflame.collectives.flat import broadcast_all
from pyflame.collectives.work import all_gather_whole, place_of, received, reduce_scatter_whole, source
from pyflame.collectives.world import get_world_size, guarded, is_initialized, torch_world
from pyflame.core.errors import StateDictError
from pyflame.core.optional import optional
from pyflame.distributed.division import FlatDivision, divide, divisions_of, part_of, whole_of, whole_shape_of
from pyflame.nn.functional_call import functional_call
from pyflame.nn.module import Module
from pyflame.nn.parallel.data_parallel import check_same
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor
from pyflame.tensor.custom import Function
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate
from pyflame.transform.checkpoint import checkpoint


class FullyShardedDataParallel(Module):
    """A model whose parameters are divided among processes. Make the optimiser after wrapping: it sees the parts.

    `parameters()` gives this process's part of each parameter, as a vector; `full_state_dict()` gives whole ones.
    Gradients are averaged. Clip them with `pf.distributed.clip_grad_norm_`, which sees those of all processes. It holds
    collectives, so it cannot be jitted. With one process it is the module.

    >>> model = pf.distributed.FullyShardedDataParallel(nn.Linear(2, 3))
    >>> model(pf.ones(1, 2)).shape
    (1, 3)
    """

    module: Module

    def __init__(self, module: Module, process_group: Any = None) -> None:
        super().__init__()
        self.module, self.process_group = module, process_group
        self.shapes: dict[str, tuple[int, ...]] = {}
        if not is_initialized() or get_world_size(process_group) == 1:
            return
        inner = [prefix for prefix, part in module.named_modules() if isinstance(part, FullyShardedDataParallel)]
        own = {n: p for n, p in module.named_parameters() if not any(n.startswith(f"{prefix}.") for prefix in inner)}
        check_same("FullyShardedDataParallel", module, process_group)
        broadcast_all([*own.values(), *module.buffers()], process_group)
        self.shapes = {name: tuple(p.shape) for name, p in own.items()}
        parts = {id(p): _part(p, process_group) for p in own.values()}
        for holder in module.modules():
            for key, p in holder._parameters.items():
                if id(p) in parts:
                    holder._parameters[key] = parts[id(p)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives, with whole parameters."""
        if not self.shapes:
            return self.module(*args, **kwargs)
        out = checkpoint(self._whole, *args, **kwargs)
        evaluate(out)  # then nothing holds the whole parameters
        return out

    def _whole(self, *args: Any, **kwargs: Any) -> Any:
        whole = _Gathered.apply(self.process_group, list(self.shapes.values()), *self.parts())
        named = dict(zip(self.shapes, [whole] if isinstance(whole, Tensor) else whole, strict=True))
        return functional_call(self.module, named, args, kwargs)

    def parts(self) -> list[Tensor]:
        """This process's part of each parameter that was wrapped here, in the order of `shapes`."""
        named = dict(self.module.named_parameters())
        return [named[name] for name in self.shapes]

    @no_grad()
    def full_state_dict(self) -> dict[str, Tensor]:
        """Whole parameters and buffers, by the names of the model without wrappers. Every process must call this."""
        return whole_state(self)

    @no_grad()
    def load_full_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take this process's parts of a whole state dict, whatever number of processes it comes from.

        >>> model.load_full_state_dict(pf.load("model.safetensors"))    # doctest: +SKIP
        """
        load_whole_state(self, state)


def _part(whole: Parameter, group: Any) -> Parameter:
    """This process's part of a parameter, which may itself be a part of one."""
    division = FlatDivision(group, tuple(whole.shape))
    part = Parameter(division.part(whole.detach()), requires_grad=whole.requires_grad)
    for each in (*divisions_of(whole), division):
        divide(part, each)
    return part


def unwrapped(model: Module) -> dict[str, Tensor]:
    """Parameters and buffers by their names without wrappers."""
    named = dict(model.named_parameters()) | dict(model.named_buffers())
    wrappers = [path for path, unit in model.named_modules() if isinstance(unit, FullyShardedDataParallel)]
    found: dict[str, Tensor] = {}
    for name, cell in named.items():
        for path in sorted(wrappers, key=len, reverse=True):  # inner ones first: outer paths stay what they are
            inside = f"{path}.module." if path else "module."
            if name.startswith(inside):
                name = (f"{path}." if path else "") + name[len(inside) :]
        found[name] = cell
    return found


@no_grad()
def whole_state(model: Module) -> dict[str, Tensor]:
    """Whole parameters and buffers. Every process must call this."""
    return {name: whole_of(cell, cell.detach()) for name, cell in unwrapped(model).items()}


@no_grad()
def load_whole_state(model: Module, state: dict[str, Tensor]) -> None:
    """Take this process's parts of what whole_state gave."""
    cells = unwrapped(model)
    if cells.keys() != state.keys():
        name = min(cells.keys() ^ state.keys())
        raise StateDictError(
            f"[load] expected the model's names but {name!r} is only in the {'model' if name in cells else 'file'}"
        )
    values = {name: as_tensor(value) for name, value in state.items()}
    for name, cell in cells.items():
        if tuple(values[name].shape) != whole_shape_of(cell):
            raise StateDictError(
                f"[load] expected {name!r} of shape {whole_shape_of(cell)} but got {tuple(values[name].shape)}"
            )
    for name, cell in cells.items():
        cell.copy_(part_of(cell, values[name]))


def gather_parts(group: Any, shapes: Sequence[tuple[int, ...]], parts: Sequence[Tensor]) -> list[Tensor]:
    """Whole tensors of these shapes; all parts go in one message for each dtype."""
    dist, torch = torch_world("all_gather"), optional("torch", "torch", "FullyShardedDataParallel")
    evaluate(list(parts))
    size = get_world_size(group)
    out: list[Any] = [None] * len(parts)
    for positions in _by_dtype(parts):
        mine = torch.cat([source(parts[i], group) for i in positions])
        everyone = mine.new_empty(size * len(mine))
        guarded("all_gather", partial(all_gather_whole(dist), everyone, mine, group=group))
        columns = everyone.view(size, -1).split([parts[i].numel() for i in positions], 1)
        for i, column in zip(positions, columns, strict=True):
            out[i] = received(column.reshape(-1)[: prod(shapes[i])].reshape(shapes[i]), place_of(parts[i]))
    return out


def _by_dtype(tensors: Sequence[Tensor]) -> list[list[int]]:
    found: dict[Any, list[int]] = {}
    for position, t in enumerate(tensors):
        found.setdefault(t.dtype, []).append(position)
    return list(found.values())


class _Gathered(Function):
    """Parts to whole parameters; back from gradients of whole ones to the mean, over processes, of the parts'."""

    @staticmethod
    def forward(ctx: Any, group: Any, shapes: list[tuple[int, ...]], *parts: Tensor) -> Any:
        ctx.group, ctx.lengths = group, [p.numel() for p in parts]
        return tuple(gather_parts(group, shapes, parts))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        dist, torch = torch_world("reduce_scatter"), optional("torch", "torch", "FullyShardedDataParallel")
        evaluate(list(gradients))
        size = get_world_size(ctx.group)
        out: list[Any] = [None] * len(gradients)
        for positions in _by_dtype(gradients):
            rows = [_padded(torch, source(gradients[i], ctx.group), size, ctx.lengths[i]) for i in positions]
            whole = torch.cat(rows, 1).contiguous()  # (processes, all parts)
            mine = whole.new_empty(whole.shape[1])
            guarded("reduce_scatter", partial(reduce_scatter_whole(dist), mine, whole.view(-1), group=ctx.group))
            for i, part in zip(positions, mine.div_(size).split([ctx.lengths[i] for i in positions]), strict=True):
                out[i] = received(part, place_of(gradients[i]))
        return (None, None, *out)


def _padded(torch: Any, gradient: Any, size: int, length: int) -> Any:
    """(n,) -> (processes, length), with zeros at the end."""
    flat = gradient.reshape(-1)
    return torch.nn.functional.pad(flat, (0, size * length - len(flat))).view(size, length)
