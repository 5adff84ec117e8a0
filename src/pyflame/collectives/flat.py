"""Many tensors in few messages: those of one dtype lie one behind the other in buckets.

Only data parallel wrappers call this, with tensors that they have compared between processes; so nothing is compared
again here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyflame.collectives.ops import ReduceOp, all_reduce
from pyflame.collectives.traced import traced
from pyflame.collectives.work import put, source
from pyflame.collectives.world import (
    get_process_group_ranks,
    get_rank,
    get_world_size,
    guarded,
    known_world,
    torch_world,
)
from pyflame.core.optional import optional
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor, zeros_like
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval as evaluate

MEGABYTES = 25.0  # of a bucket, as in PyTorch


def buckets_of(tensors: Sequence[Tensor], megabytes: float = MEGABYTES) -> list[list[int]]:
    """Positions of tensors that share a message: of one dtype, and no larger together unless one alone is.

    >>> buckets_of([pf.zeros(3), pf.zeros(2, dtype=pf.int32), pf.zeros(1)])
    [[0, 2], [1]]
    """
    done: list[list[int]] = []
    filling: dict[Any, tuple[list[int], int]] = {}
    for position, t in enumerate(tensors):
        kind = (t.dtype, t.device)
        bucket, size = filling.get(kind, ([], 0))
        if bucket and size + t.nbytes > megabytes * 2**20:
            done.append(bucket)
            bucket, size = [], 0
        bucket.append(position)
        filling[kind] = (bucket, size + t.nbytes)
    return done + [bucket for bucket, _ in filling.values()]


def flattened(tensors: Sequence[Tensor], group: Any) -> Any:
    """A new torch tensor with the values of all of them."""
    torch = optional("torch", "torch", "distributed")
    return torch.cat([source(t, group).reshape(-1) for t in tensors])


def put_flat(cells: Sequence[Tensor], flat: Any) -> None:
    """Let cells hold what lies one behind the other."""
    sizes = [cell.numel() for cell in cells]
    for cell, part in zip(cells, flat.split(sizes), strict=True):
        put(cell, part.view(tuple(cell.shape)))


@no_grad()
def _traced(tensors: Sequence[Tensor], buckets: Sequence[Sequence[int]], change: Callable[[Tensor], Tensor]) -> None:
    """Let cells hold what a collective makes of each bucket, in the function that is being traced."""
    for bucket in buckets:
        cells = [tensors[i] for i in bucket]
        parts = change(FUNCTIONS["cat"]([cell.reshape(-1) for cell in cells])).split([cell.numel() for cell in cells])
        for cell, part in zip(cells, parts, strict=True):
            cell._rebind(part.reshape(cell.shape))


def broadcast_all(tensors: Sequence[Tensor], group: Any = None, src: int | None = None) -> None:
    """The values of process `src`, by its rank in the world, or of the group's first one, on all of them."""
    dist = known_world("broadcast")
    if dist is None or not tensors:
        return
    src = get_process_group_ranks(group)[0] if src is None else src
    if state.tracer is not None:
        _traced(tensors, buckets_of(tensors), lambda flat: traced(flat, "broadcast", src, group))
        return
    evaluate(list(tensors))
    for bucket in buckets_of(tensors):
        cells = [tensors[i] for i in bucket]
        flat = flattened(cells, group)
        guarded("broadcast", partial(dist.broadcast, flat, src, group))
        if get_rank() != src:
            put_flat(cells, flat)


def fill_missing(params: Sequence[Tensor], group: Any = None) -> None:
    """Zeros for gradients that this process does not have and another one does."""
    used = tensor([p.grad is not None for p in params]).to("int32")
    all_reduce(used, ReduceOp.MAX, group)
    for p, wanted in zip(params, used.tolist(), strict=True):
        if wanted and p.grad is None:
            p.grad = zeros_like(p.detach())


def average_at(owned: Sequence[Sequence[Tensor]], group: Any = None) -> None:
    """The mean over all processes of list i of tensors, on process i of the group alone."""
    dist = torch_world("reduce")
    if dist is None:
        return
    evaluate([list(part) for part in owned])
    ranks, size, sent = get_process_group_ranks(group), get_world_size(group), []
    for rank, tensors in zip(ranks, owned, strict=True):
        for bucket in buckets_of(tensors):
            cells = [tensors[i] for i in bucket]
            flat = flattened(cells, group)
            work = guarded("reduce", partial(dist.reduce, flat, rank, group=group, async_op=True))
            sent.append((cells if rank == get_rank() else [], flat, work))
    for cells, flat, work in sent:
        guarded("reduce", work.wait)
        if cells:
            put_flat(cells, flat.div_(size))


def average_all(tensors: Sequence[Tensor], buckets: Sequence[Sequence[int]], group: Any = None) -> None:
    """The mean over all processes. All buckets are on their way at once: one is packed while others are being sent."""
    dist = known_world("all_reduce")
    if dist is None or not tensors:
        return
    if state.tracer is not None:
        how, size = dist.ReduceOp.SUM, get_world_size(group)
        _traced(tensors, buckets, lambda flat: traced(flat, "all_reduce", how, group) / size)
        return
    evaluate(list(tensors))  # one plan
    size, sent = get_world_size(group), []
    for bucket in buckets:
        cells = [tensors[i] for i in bucket]
        flat = flattened(cells, group)
        work = guarded("all_reduce", partial(dist.all_reduce, flat, group=group, async_op=True))
        sent.append((cells, flat, work))
    for cells, flat, work in sent:
        guarded("all_reduce", work.wait)
        put_flat(cells, flat.div_(size))
