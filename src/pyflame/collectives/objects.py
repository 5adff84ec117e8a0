"""Collectives over objects that can be pickled. Unpickling runs code of the sender: all processes must be yours."""

from __future__ import annotations

from typing import Any

from pyflame.collectives.ops import check_count, check_rank
from pyflame.collectives.world import get_rank, guarded, torch_world
from pyflame.core.errors import ArgumentError


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """The objects of all processes, into a list with a place for each."""
    dist = torch_world("all_gather_object")
    check_count("all_gather_object", "object_list", object_list, group, "place")
    if dist is None:
        object_list[0] = obj
    else:
        guarded("all_gather_object", lambda: dist.all_gather_object(object_list, obj, group))


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None) -> None:
    """The objects of all processes, into a list that process `dst` gives; the others give none."""
    dist = torch_world("gather_object")
    check_rank("gather_object", "dst", dst)
    if get_rank() == dst:
        check_count("gather_object", "object_gather_list", object_gather_list, group, "place")
    if dist is not None:
        guarded("gather_object", lambda: dist.gather_object(obj, object_gather_list, dst, group))
    elif object_gather_list is not None:
        object_gather_list[0] = obj


def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    """The objects of process `src`, on all of them."""
    dist = torch_world("broadcast_object_list")
    check_rank("broadcast_object_list", "src", src)
    if dist is not None:
        guarded("broadcast_object_list", lambda: dist.broadcast_object_list(object_list, src, group, device))


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int = 0,
    group: Any = None,
) -> None:
    """This process's object of a list that process `src` gives, into the first place of a list."""
    dist = torch_world("scatter_object_list")
    check_rank("scatter_object_list", "src", src)
    if get_rank() == src:
        check_count("scatter_object_list", "scatter_object_input_list", scatter_object_input_list, group, "place")
    if dist is None:
        scatter_object_output_list[0] = (scatter_object_input_list or [None])[0]
    else:
        guarded("scatter_object_list", lambda: dist.scatter_object_list(
            scatter_object_output_list, scatter_object_input_list, src, group,
        ))  # fmt: skip


def _other(op: str, name: str, rank: int | None) -> Any:
    dist = torch_world(op)
    check_rank(op, name, rank)
    if dist is None or rank == get_rank():
        raise ArgumentError(f"[{op}] expected {name} to be another process but got {rank}, which is this one")
    return dist


def send_object_list(object_list: list[Any], dst: int, group: Any = None, device: Any = None) -> None:
    """Send objects to process `dst`, which takes as many by `recv_object_list`."""
    dist = _other("send_object_list", "dst", dst)
    guarded("send_object_list", lambda: dist.send_object_list(object_list, dst, group, device))


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None) -> int:
    """Take objects that process `src`, or any, sends, into the places of a list. Gives the rank of the sender."""
    dist = _other("recv_object_list", "src", src)
    return int(guarded("recv_object_list", lambda: dist.recv_object_list(object_list, src, group, device)))
