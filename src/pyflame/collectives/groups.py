"""Groups of processes by rule, and torch.distributed's names for what a group is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyflame.collectives.world import _torch_has, get_rank, get_world_size, new_group
from pyflame.core.errors import ArgumentError

default_pg_timeout = timedelta(minutes=30)  # torch's, of collectives of CPUs


class _ProcessGroupType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        torch = sys.modules.get("torch.distributed")
        kind = getattr(torch, "ProcessGroup", None)
        return kind is not None and isinstance(instance, kind)


class ProcessGroup(metaclass=_ProcessGroupType):
    """For annotations and `isinstance`: groups of several processes are torch's own. `new_group` makes them."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError("[ProcessGroup] expected new_group(ranks): groups are made by all processes together")


class Backend(str):
    """The name of what carries data between processes, in lower case.

    >>> pf.distributed.Backend("GLOO") == pf.distributed.Backend.GLOO
    True
    """

    UNDEFINED, GLOO, NCCL, MPI = "undefined", "gloo", "nccl", "mpi"

    def __new__(cls, name: str) -> Backend:
        return super().__new__(cls, name.lower())


def is_backend_available(backend: str) -> bool:
    """Whether torch has a backend of this name.

    >>> pf.distributed.is_backend_available("carrier pigeons")
    False
    """
    return backend.lower() in (Backend.GLOO, Backend.NCCL, Backend.MPI) and _torch_has(backend.lower())


def get_default_backend_for_device(device: Any) -> str:
    """The backend that carries tensors of a device.

    >>> pf.distributed.get_default_backend_for_device("cuda:0")
    'nccl'
    """
    return Backend.NCCL if str(device).split(":")[0] in ("cuda", "rocm", "hip") else Backend.GLOO


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process.

    >>> pf.distributed.is_torchelastic_launched()
    False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The number of this process on its machine, as the launcher set it in LOCAL_RANK.

    >>> pf.distributed.get_node_local_rank(fallback_rank=0)
    0
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise ArgumentError("[get_node_local_rank] expected LOCAL_RANK, which torchrun sets; or pass fallback_rank")
    return int(fallback_rank)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | float | None = None,
    backend: str | None = None,
) -> tuple[Any, list[Any]]:
    """A group for each list of ranks: that of this process (None if it is in none), and all of them.

    >>> pf.distributed.init_process_group()
    >>> pf.distributed.new_subgroups_by_enumeration([[0]])
    (None, [None])
    >>> pf.distributed.destroy_process_group()
    """
    listed = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not listed:
        raise ArgumentError("[new_subgroups_by_enumeration] expected lists of ranks but got none")
    if len(set(listed)) != len(listed):
        raise ArgumentError(f"[new_subgroups_by_enumeration] expected each rank in one group but got {listed}")
    own, groups = None, []
    for ranks in ranks_per_subgroup_list:
        groups.append(new_group(list(ranks), timeout, backend))
        if get_rank() in ranks:
            own = groups[-1]
    return own, groups


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of `group_size` neighbours: that of this process, and all. By default those of a machine, of which the
    launcher says in LOCAL_WORLD_SIZE how many there are.

    >>> pf.distributed.init_process_group()
    >>> pf.distributed.new_subgroups(1)
    (None, [None])
    >>> pf.distributed.destroy_process_group()
    """
    size = int(os.environ.get("LOCAL_WORLD_SIZE", "0")) if group_size is None else group_size
    world = get_world_size()
    if group is not None:
        raise ArgumentError("[new_subgroups] expected group=None: groups are made of the world's processes")
    if size < 1 or world % size:
        raise ArgumentError(f"[new_subgroups] expected a group_size that divides {world} processes but got {size}")
    return new_subgroups_by_enumeration([range(i, i + size) for i in range(0, world, size)], timeout, backend)
