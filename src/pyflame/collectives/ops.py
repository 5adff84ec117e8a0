"""Collectives over tensors: torch.distributed's names, arguments and results.

Results go into tensors that are given, as in PyTorch. With one process they are what the one process has.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

from pyflame.collectives.agreement import agree
from pyflame.collectives.traced import traced
from pyflame.collectives.work import (
    Work,
    all_gather_whole,
    changed,
    check_tensor,
    reduce_scatter_whole,
    source,
    start,
    target,
)
from pyflame.collectives.world import as_timedelta, get_rank, get_world_size, guarded, known_world, torch_world
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad


class ReduceOp(Enum):
    """How values of several processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # by which libraries annotate it


def _torch_op(dist: Any, op: Any) -> Any:
    return getattr(dist.ReduceOp, op.name) if isinstance(op, ReduceOp) else op


def check_rank(op: str, name: str, rank: int | None) -> None:
    size = get_world_size()
    if rank is not None and not 0 <= rank < size:
        raise ArgumentError(f"[{op}] expected process {name} from 0 to {size - 1} of {size} but got {rank}")


def _check_like(op: str, name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """Raise unless a tensor has this shape, and the dtype of another one."""
    check_tensor(op, name, tensor)
    if tuple(tensor.shape) != tuple(shape):
        raise ShapeError(f"[{op}] expected {name} of shape {tuple(shape)} but got {tuple(tensor.shape)}")
    if tensor.dtype is not like.dtype:
        raise DTypeError(f"[{op}] expected {name} of dtype {like.dtype.name} but got {tensor.dtype.name}")


def check_count(op: str, name: str, given: Sequence[Any] | None, group: Any, what: str) -> None:
    """Raise unless a list has one of these for each process."""
    size = get_world_size(group)
    if given is None or len(given) != size:
        got = "none" if given is None else len(given)
        raise ArgumentError(f"[{op}] expected {name} with one {what} for each process ({size}) but got {got}")


def _check_list(op: str, name: str, tensors: Sequence[Tensor] | None, like: Tensor, group: Any) -> Sequence[Tensor]:
    """A list of one tensor for each process, all like one."""
    check_count(op, name, tensors, group, "tensor")
    assert tensors is not None
    for number, tensor in enumerate(tensors):
        _check_like(op, f"{name}[{number}]", tensor, tuple(like.shape), like)
    return tensors


def _one_process(op: str, target: Tensor, source: Tensor, async_op: bool) -> Work | None:
    """What a collective of one process does: the values stay what they are."""
    if target is not source:
        with no_grad():
            target.copy_(source.detach().reshape(target.shape))
    return start(op, None, (), async_op)


def _parts(op: str, name: str, whole: Tensor, part: Tensor, size: int) -> None:
    """Raise unless `whole` has room for one `part` of each process, along its first axis or a new one."""
    joined = (size * part.shape[0], *part.shape[1:]) if part.ndim else (size,)
    stacked = (size, *part.shape)
    shape = stacked if tuple(whole.shape) == stacked else joined
    _check_like(op, name, whole, shape, part)


def _traced(tensor: Tensor, name: str, how: Any, group: Any, async_op: bool) -> Work | None:
    """A collective in place, as an op of the function that is being traced: who reads the tensor waits for it."""
    with no_grad():
        tensor._rebind(traced(tensor, name, how, group))
    return start(name, None, (), async_op)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The sum over all processes (or product, average, smallest, largest), in place on each of them.

    Within a jitted function it is an op like others, which starts when its input is there.
    """
    dist = known_world("all_reduce")
    check_tensor("all_reduce", "tensor", tensor)
    if dist is None:
        return start("all_reduce", None, (), async_op)
    if state.tracer is not None:
        return _traced(tensor, "all_reduce", _torch_op(dist, op), group, async_op)
    agree(dist, group, "all_reduce", "tensor", tensor, op)
    values = changed(tensor, group)
    return start(
        "all_reduce", lambda: dist.all_reduce(values, _torch_op(dist, op), group, True), [(tensor, values)], async_op
    )


def reduce(
    tensor: Tensor, dst: int = 0, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The sum over all processes, in place on process `dst` alone."""
    dist = torch_world("reduce")
    check_tensor("reduce", "tensor", tensor)
    check_rank("reduce", "dst", dst)
    if dist is None:
        return start("reduce", None, (), async_op)
    agree(dist, group, "reduce", "tensor", tensor, op, dst)
    values = changed(tensor, group)
    outputs = [(tensor, values)] if get_rank() == dst else []
    return start("reduce", lambda: dist.reduce(values, dst, _torch_op(dist, op), group, True), outputs, async_op)


def broadcast(tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> Work | None:
    """The values of process `src`, on all of them. Within a jitted function it is an op, as all_reduce."""
    dist = known_world("broadcast")
    check_tensor("broadcast", "tensor", tensor)
    check_rank("broadcast", "src", src)
    if dist is None:
        return start("broadcast", None, (), async_op)
    if state.tracer is not None:
        return _traced(tensor, "broadcast", src, group, async_op)
    agree(dist, group, "broadcast", "tensor", tensor, src)
    mine = get_rank() == src
    values = source(tensor, group) if mine else target(tensor, group)
    outputs = [] if mine else [(tensor, values)]
    return start("broadcast", lambda: dist.broadcast(values, src, group, True), outputs, async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """The values of all processes, into a list of one tensor for each."""
    dist = torch_world("all_gather")
    check_tensor("all_gather", "tensor", tensor)
    outs = _check_list("all_gather", "tensor_list", tensor_list, tensor, group)
    if dist is None:
        return _one_process("all_gather", outs[0], tensor, async_op)
    agree(dist, group, "all_gather", "tensor", tensor)
    values = [target(out, group) for out in outs]
    mine = source(tensor, group)
    return start(
        "all_gather", lambda: dist.all_gather(values, mine, group, True), list(zip(outs, values, strict=True)), async_op
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """The values of all processes in one tensor: one behind the other, or stacked along a new first axis."""
    op = "all_gather_into_tensor"
    dist = torch_world(op)
    check_tensor(op, "input_tensor", input_tensor)
    _parts(op, "output_tensor", output_tensor, input_tensor, get_world_size(group))
    if dist is None:
        return _one_process(op, output_tensor, input_tensor, async_op)
    agree(dist, group, op, "input_tensor", input_tensor)
    values, mine = target(output_tensor, group), source(input_tensor, group)
    return start(
        op,
        lambda: all_gather_whole(dist)(values.view(-1), mine.view(-1), group, True),
        [(output_tensor, values)],
        async_op,
    )


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """The sum over all processes of their tensors for this one."""
    name = "reduce_scatter"
    dist = torch_world(name)
    check_tensor(name, "output", output)
    inputs = _check_list(name, "input_list", input_list, output, group)
    if dist is None:
        return _one_process(name, output, inputs[0], async_op)
    agree(dist, group, name, "output", output, op)
    values, parts = target(output, group), [source(part, group) for part in inputs]
    return start(
        name, lambda: dist.reduce_scatter(values, parts, _torch_op(dist, op), group, True), [(output, values)], async_op
    )


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Each process's part, along the first axis, of the sum over all processes."""
    name = "reduce_scatter_tensor"
    dist = torch_world(name)
    check_tensor(name, "output", output)
    _parts(name, "input", input, output, get_world_size(group))
    if dist is None:
        return _one_process(name, output, input, async_op)
    agree(dist, group, name, "output", output, op)
    values, whole = target(output, group), source(input, group)
    return start(
        name,
        lambda: reduce_scatter_whole(dist)(values.view(-1), whole.view(-1), _torch_op(dist, op), group, True),
        [(output, values)],
        async_op,
    )


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: Any = None, async_op: bool = False
) -> Work | None:
    """The values of all processes, into a list that process `dst` gives; the others give none."""
    dist = torch_world("gather")
    check_tensor("gather", "tensor", tensor)
    check_rank("gather", "dst", dst)
    mine = get_rank() == dst
    outs = _check_list("gather", "gather_list", gather_list, tensor, group) if mine else ()
    if dist is None:
        return _one_process("gather", outs[0], tensor, async_op)
    agree(dist, group, "gather", "tensor", tensor, dst)
    values = [target(out, group) for out in outs]
    given = source(tensor, group)
    return start(
        "gather",
        lambda: dist.gather(given, values if mine else None, dst, group, True),
        list(zip(outs, values, strict=True)),
        async_op,
    )


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0, group: Any = None, async_op: bool = False
) -> Work | None:
    """This process's tensor of a list that process `src` gives; the others give none."""
    dist = torch_world("scatter")
    check_tensor("scatter", "tensor", tensor)
    check_rank("scatter", "src", src)
    mine = get_rank() == src
    parts = _check_list("scatter", "scatter_list", scatter_list, tensor, group) if mine else ()
    if dist is None:
        return _one_process("scatter", tensor, parts[0], async_op)
    agree(dist, group, "scatter", "tensor", tensor, src)
    values, given = target(tensor, group), [source(part, group) for part in parts]
    return start(
        "scatter", lambda: dist.scatter(values, given if mine else None, src, group, True), [(tensor, values)], async_op
    )


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Process i's tensor for this one, into place i of the list. On gloo all have one shape."""
    op = "all_to_all"
    dist = torch_world(op)
    for name, given in (("output_tensor_list", output_tensor_list), ("input_tensor_list", input_tensor_list)):
        check_count(op, name, given, group, "tensor")
        for number, tensor in enumerate(given):
            _check_like(op, f"{name}[{number}]", tensor, tuple(tensor.shape), input_tensor_list[0])
    if dist is None:
        return _one_process(op, output_tensor_list[0], input_tensor_list[0], async_op)
    values = [target(out, group) for out in output_tensor_list]
    given = [source(part, group) for part in input_tensor_list]
    pairs = list(zip(output_tensor_list, values, strict=True))
    return start(op, lambda: dist.all_to_all(values, given, group, True), pairs, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """As all_to_all, with parts of one tensor along its first axis: equal ones, or of these sizes."""
    op = "all_to_all_single"
    dist = torch_world(op)
    size = get_world_size(group)
    check_tensor(op, "input", input)
    _check_like(op, "output", output, tuple(output.shape), input)
    for name, tensor, sizes in (("output", output, output_split_sizes), ("input", input, input_split_sizes)):
        rows = tensor.shape[0] if tensor.ndim else 0
        if rows % size if sizes is None else (len(sizes), sum(sizes)) != (size, rows):
            raise ShapeError(
                f"[{op}] expected {name} in {size} parts along its first axis but got {rows} rows and sizes {sizes}"
            )
    if dist is None:
        return _one_process(op, output, input, async_op)
    values, given = target(output, group), source(input, group)
    return start(
        op,
        lambda: dist.all_to_all_single(values, given, output_split_sizes, input_split_sizes, group, True),
        [(output, values)],
        async_op,
    )


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes are here."""
    dist = torch_world("barrier")
    return start("barrier", None if dist is None else lambda: dist.barrier(group, async_op=True), (), async_op)


def monitored_barrier(
    group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
) -> None:
    """As barrier, on gloo; the error of one that takes too long names the ranks that did not come."""
    dist = torch_world("monitored_barrier")
    if dist is not None:
        length = None if timeout is None else as_timedelta(timeout)
        guarded("monitored_barrier", lambda: dist.monitored_barrier(group, length, wait_all_ranks))
