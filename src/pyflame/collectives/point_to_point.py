"""Tensors from one process to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyflame.collectives.ops import check_rank
from pyflame.collectives.work import Output, Work, check_tensor, put, source, start, target
from pyflame.collectives.world import get_global_rank, get_rank, guarded, torch_world
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


@dataclass
class P2POp:
    """One sending (`isend`) or taking (`irecv`) of a batch: to or from a process of the world, `peer`, or of the group,
    `group_peer`.

    >>> pf.distributed.P2POp(pf.distributed.isend, pf.ones(2), 1).peer
    1
    """

    op: Callable[..., Work]
    tensor: Tensor
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None

    def __post_init__(self) -> None:
        if self.op not in (isend, irecv):
            raise ArgumentError("[P2POp] expected pf.distributed.isend or irecv as op")
        if (self.peer is None) == (self.group_peer is None):
            raise ArgumentError("[P2POp] expected peer or group_peer, one of them")
        if self.group_peer is not None:
            self.peer = get_global_rank(self.group, self.group_peer)


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin all of these at once, so that processes which send to each other do not wait for each other. Wait for each
    work that it gives.

    >>> works = pf.distributed.batch_isend_irecv([P2POp(isend, x, right), P2POp(irecv, y, left)])  # doctest: +SKIP
    """
    ops = list(p2p_op_list)
    if not ops or not all(isinstance(p, P2POp) for p in ops):
        raise ArgumentError("[batch_isend_irecv] expected a list of P2POp but got something else, or none")
    given: list[Any] = []
    outputs: list[list[Output]] = []
    for p in ops:
        name = p.op.__name__
        dist = _dist(name, "peer", p.tensor, p.peer)
        values = source(p.tensor, p.group) if p.op is isend else target(p.tensor, p.group)
        given.append(dist.P2POp(getattr(dist, name), values, p.peer, p.group, p.tag))
        outputs.append([] if p.op is isend else [(p.tensor, values)])
    works = guarded("batch_isend_irecv", lambda: dist.batch_isend_irecv(given))
    if len(works) != len(ops):  # one work for all, as NCCL gives
        outputs = [[o for part in outputs for o in part], *[[] for _ in works[1:]]]
    return [Work("batch_isend_irecv", w, part) for w, part in zip(works, outputs, strict=True)]
