"""torch.distributed for one process: what a program that can run on many asks for, on one.

A group of more than one process is refused. Collectives over one process leave tensors as they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import Any

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
    "is_nccl_available",
    "new_group",
    "reduce",
    "reduce_scatter_tensor",
    "scatter",
]


class ReduceOp(Enum):
    """How all_reduce combines values; those of one process stay what they are."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4


class group:
    """Groups by name."""

    WORLD: Any = None


class _Done:
    """What `async_op=True` gives: work that is finished."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _World:
    """The one process, if init_process_group was called: its backend's name."""

    def __init__(self) -> None:
        self.backend: str | None = None


_world = _World()


def is_available() -> bool:
    """Whether groups can be made: of one process.

    >>> pf.distributed.is_available(), pf.distributed.is_initialized()
    (True, False)
    """
    return True


def is_nccl_available() -> bool:
    """Whether GPUs can talk to each other across processes: they cannot."""
    return False


def is_initialized() -> bool:
    """Whether init_process_group was called."""
    return _world.backend is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of this one process. Sizes that are not given are those of WORLD_SIZE and RANK, else 1 and 0.

    >>> pf.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> pf.distributed.get_world_size()
    1
    >>> pf.distributed.destroy_process_group()
    """
    if is_initialized():
        raise ArgumentError("[init_process_group] expected to be called once; call destroy_process_group first")
    size = int(os.environ.get("WORLD_SIZE", "1")) if world_size == -1 else world_size
    place = int(os.environ.get("RANK", "0")) if rank == -1 else rank
    if size != 1:
        raise NotSupportedError(
            f"[init_process_group] expected a world_size of 1 but got {size}; PyFlame does not train across processes "
            "yet: start one process, which may use all devices of its machine"
        )
    if place != 0:
        raise ArgumentError(f"[init_process_group] expected rank 0 in a world of one process but got {place}")
    _world.backend = backend or "gloo"


def destroy_process_group(group: Any = None) -> None:
    """Forget the group."""
    _check("destroy_process_group")
    _world.backend = None


def _check(op: str) -> None:
    if not is_initialized():
        raise ArgumentError(f"[{op}] expected a process group but there is none; call init_process_group first")


def get_rank(group: Any = None) -> int:
    """The number of this process: 0."""
    _check("get_rank")
    return 0


def get_world_size(group: Any = None) -> int:
    """How many processes there are: 1."""
    _check("get_world_size")
    return 1


def get_backend(group: Any = None) -> str:
    """The name that init_process_group was given."""
    _check("get_backend")
    return str(_world.backend)


def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> None:
    """The group of this one process."""
    _check("new_group")


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> _Done | None:
    """Wait for all processes: there are no others."""
    _check("barrier")
    return _Done() if async_op else None


def _alone(op: str, process: int | None, async_op: bool) -> _Done | None:
    _check(op)
    if process not in (0, None):
        raise ArgumentError(f"[{op}] expected process 0 of 1 but got {process}")
    return _Done() if async_op else None


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """The sum over all processes, in place: the tensor as it is."""
    return _alone("all_reduce", None, async_op)


def reduce(tensor: Tensor, dst: int = 0, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """The sum over all processes, on one of them."""
    return _alone("reduce", dst, async_op)


def broadcast(tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> Any:
    """One process's values on all of them."""
    return _alone("broadcast", src, async_op)


def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    """One process's objects on all of them."""
    _alone("broadcast_object_list", src, False)


def _copy(op: str, target: Tensor, source: Tensor, async_op: bool) -> _Done | None:
    done = _alone(op, None, async_op)
    with no_grad():
        target.copy_(source.reshape(target.shape))
    return done


def _only(op: str, tensors: Sequence[Any] | None) -> Any:
    if tensors is None or len(tensors) != 1:
        raise ArgumentError(f"[{op}] expected a list of one tensor, for one process, but got {tensors!r}")
    return tensors[0]


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """The values of all processes, into a list of one tensor each."""
    return _copy("all_gather", _only("all_gather", tensor_list), tensor, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Any:
    """The values of all processes, in one tensor."""
    return _copy("all_gather_into_tensor", output_tensor, input_tensor, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Each process's part of the sum over all processes."""
    return _copy("reduce_scatter_tensor", output, input, async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """The objects of all processes."""
    _check("all_gather_object")
    _only("all_gather_object", object_list)
    object_list[0] = obj


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: Any = None, async_op: bool = False
) -> Any:
    """The values of all processes, on one of them."""
    return _copy("gather", _only("gather", gather_list), tensor, async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0, group: Any = None, async_op: bool = False
) -> Any:
    """Each process's part of a list that one has."""
    return _copy("scatter", tensor, _only("scatter", scatter_list), async_op)
