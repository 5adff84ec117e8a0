"""The world of processes: making it, leaving it, groups within it, and who one is.

One process needs no torch. More are a process group of torch.distributed, which every call below is passed on to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, TypeVar

from pyflame.collectives.launch import Launch, launch_of
from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError, CollectiveError
from pyflame.core.optional import optional, stands_in
from pyflame.core.state import state

T = TypeVar("T")
_GPUS = ("cuda", "rocm")


class group:
    """Groups by name. None is the group of all processes, as everywhere in torch.distributed."""

    WORLD: Any = None


class _World:
    """What init_process_group made: the backend's name, and torch.distributed unless this process is the only one."""

    def __init__(self) -> None:
        self.backend: str | None = None
        self.torch: Any = None
        self.adopted = False  # torch's group was there before: whoever made it ends it
        self.generation = 0  # counts worlds: what was traced in one is not for another


_world = _World()


def is_available() -> bool:
    """Whether process groups can be made.

    >>> pf.distributed.is_available(), pf.distributed.is_initialized()
    (True, False)
    """
    return True


def _torch_has(backend: str) -> bool:
    if stands_in("torch") or find_spec("torch") is None:
        return False
    dist = optional("torch.distributed", "torch", f"is_{backend}_available")
    return bool(dist.is_available() and getattr(dist, f"is_{backend}_available")())


def is_nccl_available() -> bool:
    """Whether torch can talk between GPUs: by NCCL, or by RCCL, which has its name in torch."""
    return _torch_has("nccl")


def is_gloo_available() -> bool:
    """Whether torch can talk between CPUs."""
    return _torch_has("gloo")


def is_mpi_available() -> bool:
    """Whether torch was built with MPI."""
    return _torch_has("mpi")


def is_initialized() -> bool:
    """Whether init_process_group was called."""
    return _world.backend is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Meet the other processes. What is not given comes from the variables that torchrun, Slurm or Ray Train set. With
    "nccl" torch gets the current device: choose this process's GPU before, by `pf.set_device`.

    A collective that takes longer than `timeout` (seconds, or a timedelta) raises; torch's default is 30 minutes.
    Where torch's own group exists already, as in a worker of Ray Train, it is used.

    >>> pf.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> pf.distributed.get_world_size()
    1
    >>> pf.distributed.destroy_process_group()
    """
    if is_initialized():
        raise ArgumentError("[init_process_group] expected to be called once; call destroy_process_group first")
    _world.generation += 1
    made = sys.modules.get("torch.distributed")
    if made is not None and made.is_available() and made.is_initialized():
        _adopt(made, rank, world_size)
        return
    found = launch_of(rank, world_size, "store" if store is not None else init_method)
    if found.world_size == 1:
        _world.backend = backend or "gloo"
        return
    dist = optional("torch.distributed", "torch", "init_process_group")
    options = {"group_name": group_name, "pg_options": pg_options, "device_id": device_id, "store": store}
    if timeout is not None:
        options["timeout"] = as_timedelta(timeout)
    guarded("init_process_group", lambda: _meet(dist, backend or "gloo", found, options))
    _world.torch, _world.backend = dist, str(dist.get_backend())


def _adopt(dist: Any, rank: int, world_size: int) -> None:
    """Use the group that torch has."""
    have = (dist.get_rank(), dist.get_world_size())
    if rank not in (-1, have[0]) or world_size not in (-1, have[1]):
        raise ArgumentError(
            f"[init_process_group] expected rank {rank} of {world_size} but torch.distributed was started as rank "
            f"{have[0]} of {have[1]}"
        )
    _world.torch, _world.backend, _world.adopted = dist, str(dist.get_backend()), True


def _meet(dist: Any, backend: str, found: Launch, options: dict[str, Any]) -> None:
    if options["store"] is None and found.restart:
        store, _, _ = next(iter(dist.rendezvous("env://", found.rank, found.world_size)))
        options = {**options, "store": dist.PrefixStore(f"restart {found.restart}", store)}
    if backend == "nccl" and state.device.kind in _GPUS:
        optional("torch", "torch", "init_process_group").cuda.set_device(state.device.index)
    method = found.init_method if options["store"] is None else None
    dist.init_process_group(backend, method, rank=found.rank, world_size=found.world_size, **options)


def as_timedelta(seconds: timedelta | float) -> timedelta:
    return seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)


def guarded(op: str, call: Callable[[], T]) -> T:
    """What the call gives. What torch raises becomes an error of ours that says which process met it."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        who = f"rank {_world.torch.get_rank()} " if _world.torch is not None else ""
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CollectiveError(
            f"[{op}] expected all processes of the group to take part but {who}got: {first}; another process may have "
            "ended, hung beyond the timeout, or called something else: see its output"
        ) from error


def known_world(op: str) -> Any:
    """torch.distributed, or None where this process is the only one. Raises without a group. What a trace learns from
    it holds for this world only."""
    if _world.backend is None:
        raise ArgumentError(f"[{op}] expected a process group but there is none; call init_process_group first")
    if state.tracer is not None:
        state.tracer.guard(_world, "generation")
    return _world.torch


def torch_world(op: str) -> Any:
    """As known_world, for what asks for values: it raises within a trace."""
    dist = known_world(op)
    if dist is not None and state.tracer is not None:
        state.tracer.escaped(f"distributed.{op}")
    return dist


def destroy_process_group(group: Any = None) -> None:
    """Leave a group; without one, the world."""
    dist = torch_world("destroy_process_group")
    if dist is not None and not (_world.adopted and group is None):
        dist.destroy_process_group(group)
    if group is None:
        _world.backend, _world.torch, _world.adopted = None, None, False


def get_rank(group: Any = None) -> int:
    """The number of this process; -1 in a group that it is no part of."""
    dist = known_world("get_rank")
    return 0 if dist is None else int(dist.get_rank(group))


def get_world_size(group: Any = None) -> int:
    """How many processes there are; -1 for a group that this process is no part of."""
    dist = known_world("get_world_size")
    return 1 if dist is None else int(dist.get_world_size(group))


def is_one_of_many(group: Any = None) -> bool:
    """Whether there is a group, and it has other processes than this one."""
    return is_initialized() and get_world_size(group) > 1


def torch_device(group: Any, device: DeviceId | None = None) -> str:
    """Where torch's tensors must be for a group to carry them: on GPUs at a tensor's own `device`, else at the current
    one, by torch's name of it."""
    if get_backend(group) != "nccl":
        return "cpu"
    found = next((d for d in (device, state.device) if d is not None and d.kind in _GPUS), None)
    return "cuda" if found is None else f"cuda:{found.index}"


def get_backend(group: Any = None) -> str:
    """The name of what carries the data."""
    dist = known_world("get_backend")
    return str(_world.backend if dist is None else dist.get_backend(group))


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks in the world of a group's processes.

    >>> pf.distributed.init_process_group()
    >>> pf.distributed.get_process_group_ranks()
    [0]
    >>> pf.distributed.destroy_process_group()
    """
    dist = known_world("get_process_group_ranks")
    return [0] if dist is None else list(dist.get_process_group_ranks(group))


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the world of a group's process."""
    dist = known_world("get_global_rank")
    if dist is None or group is None:
        return group_rank
    return int(dist.get_global_rank(group, group_rank))


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in a group of a process of the world."""
    dist = known_world("get_group_rank")
    if dist is None or group is None:
        return global_rank
    return int(dist.get_group_rank(group, global_rank))


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    **options: Any,
) -> Any:
    """A group of some processes. Every process of the world must call this, with the same ranks."""
    dist = torch_world("new_group")
    size = get_world_size()
    wrong = [r for r in ranks or () if not 0 <= r < size]
    if wrong:
        raise ArgumentError(f"[new_group] expected ranks from 0 to {size - 1} but got {wrong[0]}")
    if dist is None:
        return None
    length = {} if timeout is None else {"timeout": as_timedelta(timeout)}
    listed = None if ranks is None else list(ranks)
    return guarded("new_group", lambda: dist.new_group(listed, backend=backend, **length, **options))
