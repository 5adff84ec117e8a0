"""Tensors from one process to another."""

from __future__ import annotations

from typing import Any

from pyflame.collectives.ops import check_rank
from pyflame.collectives.work import Work, check_tensor, put, source, start, target
from pyflame.collectives.world import get_rank, guarded, torch_world
from pyflame.core.errors import ArgumentError
from pyflame.tensor import Tensor


def _dist(op: str, name: str, tensor: Tensor, other: int | None) -> Any:
    dist = torch_world(op)
    check_tensor(op, "tensor", tensor)
    check_rank(op, name, other)
    if dist is None or other == get_rank():
        raise ArgumentError(f"[{op}] expected {name} to be another process but got {other}, which is this one")
    return dist


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work:
    """Send a tensor without waiting until it is taken."""
    dist = _dist("isend", "dst", tensor, dst)
    values = source(tensor, group)
    found = start("isend", lambda: dist.isend(values, dst, group, tag), [], True)
    assert found is not None
    return found


def irecv(tensor: Tensor, src: int, group: Any = None, tag: int = 0) -> Work:
    """Take a tensor that process `src` sends; it is there after `wait()`. Shape and dtype must be the sender's."""
    dist = _dist("irecv", "src", tensor, src)
    values = target(tensor, group)
    found = start("irecv", lambda: dist.irecv(values, src, group, tag), [(tensor, values)], True)
    assert found is not None
    return found


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Send a tensor, and wait until it may be changed."""
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Take a tensor that process `src`, or any, sends. Gives the rank of the sender."""
    dist = _dist("recv", "src", tensor, src)
    values = target(tensor, group)
    sender = guarded("recv", lambda: dist.recv(values, src, group, tag))
    put(tensor, values)
    return int(sender)
