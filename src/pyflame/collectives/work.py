"""Work that torch.distributed has begun, and tensors on their way into it and out of it.

What a collective reads goes to torch over the same memory; what it writes is memory of torch's, which the tensor's cell
takes over when the work is done. So other readers of the tensor's old value keep it, as with every in-place op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from pyflame.collectives.world import as_timedelta, guarded, torch_device
from pyflame.core.device import CPU, DeviceId
from pyflame.core.dtype import FLOAT8
from pyflame.core.errors import ArgumentTypeError, DTypeError, type_name
from pyflame.core.optional import optional
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.interop import from_torch

Output = tuple[Tensor, Any]  # a cell, and the torch tensor that it takes over


class Work:
    """What `async_op=True` gives. Tensors have their new values only after `wait()`."""

    def __init__(self, op: str, work: Any, outputs: Sequence[Output] = ()) -> None:
        self._op, self._work, self._outputs = op, work, list(outputs)

    def is_completed(self) -> bool:
        """Whether wait() would return at once."""
        return self._work is None or bool(self._work.is_completed())

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until it is done, and give the tensors their new values."""
        if self._work is not None:
            work, length = self._work, () if timeout is None else (as_timedelta(timeout),)
            guarded(self._op, lambda: work.wait(*length))
            self._work = None
        while self._outputs:
            put(*self._outputs.pop())
        return True


def start(op: str, begin: Callable[[], Any] | None, outputs: Sequence[Output], async_op: bool) -> Work | None:
    """Begin work, and wait for it unless it is to go on beside. Without `begin` there is none: one process."""
    work = Work(op, None if begin is None else guarded(op, begin), outputs)
    if async_op:
        return work
    work.wait()
    return None


def put(cell: Tensor, values: Any) -> None:
    """Let a cell hold what torch has written."""
    with no_grad():
        cell._rebind(received(values, place_of(cell)))


def place_of(tensor: Tensor) -> DeviceId | None:
    """Where a tensor must stay; None: it follows others."""
    meta = tensor._node.meta
    return meta.device if meta.committed else None


def received(values: Any, device: DeviceId | None) -> Tensor:
    """What torch has written, on a device (None: the default one), over the same memory where torch's is there."""
    if values.device.type != "cpu" and (device or state.device) == CPU:
        values = values.cpu()
    value = from_torch(values)
    return value if device is None else value.to(device=device)


def check_tensor(op: str, name: str, tensor: Any) -> Tensor:
    """The tensor, if it is one that can be sent."""
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(f"[{op}] expected a tensor as {name} but got {type_name(tensor)}")
    if tensor.dtype in FLOAT8:
        raise DTypeError(
            f"[{op}] expected a dtype that process groups carry but {name} is {tensor.dtype.name}; cast it first"
        )
    return tensor


def source(tensor: Tensor, group: Any) -> Any:
    """A torch tensor for reading, over the same memory where the group's backend can read that."""
    return tensor.to_torch().contiguous().to(torch_device(group, tensor._node.meta.device))


def target(tensor: Tensor, group: Any) -> Any:
    """A new torch tensor of this shape and dtype, for writing."""
    torch = optional("torch", "torch", "distributed")
    kind = getattr(torch, tensor.dtype.name)
    return torch.empty(tuple(tensor.shape), dtype=kind, device=torch_device(group, tensor._node.meta.device))


def changed(tensor: Tensor, group: Any) -> Any:
    """A copy, for work that reads and writes it."""
    return target(tensor, group).copy_(source(tensor, group))


def _first_of(dist: Any, *names: str) -> Any:
    """The function that torch has under the first of these names: some are being renamed."""
    return next(getattr(dist, name) for name in names if hasattr(dist, name))


def all_gather_whole(dist: Any) -> Any:
    """all_gather into one tensor."""
    return _first_of(dist, "all_gather_single", "all_gather_into_tensor")


def reduce_scatter_whole(dist: Any) -> Any:
    """reduce_scatter of one tensor."""
    return _first_of(dist, "reduce_scatter_single", "reduce_scatter_tensor")
