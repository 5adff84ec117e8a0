"""Collectives beside torch's own, on the same random data, in every process of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as theirs
import torch.distributed.nn

import pyflame as pf
import pyflame.distributed as ours
from pyflame.collectives.world import _world

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8")


def _data(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> torch.Tensor:
    """Numbers that differ by rank."""
    generator = torch.Generator().manual_seed(100 * seed + ours.get_rank())
    return torch.randint(-9, 10, shape, generator=generator).abs().to(getattr(torch, dtype))


def _same(got: pf.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.to_torch(), want, rtol=0, atol=0)


def _beside(call: Callable[[Any, list[Any]], Any], tensors: list[torch.Tensor]) -> None:
    """Call ours and theirs with copies of these; all must be the same afterwards."""
    mine, other = [pf.tensor(t) for t in tensors], [t.clone() for t in tensors]
    call(ours, mine)
    call(theirs, other)
    for got, want in zip(mine, other, strict=True):
        _same(got, want)


def check_who_we_are() -> None:
    assert ours.get_rank() == theirs.get_rank() and ours.get_world_size() == theirs.get_world_size()
    assert ours.get_backend() == "gloo" and ours.is_initialized() and ours.is_gloo_available()
    assert ours.get_process_group_ranks() == list(range(ours.get_world_size()))
    assert ours.get_global_rank(None, 1) == ours.get_group_rank(None, 1) == 1
    with pytest.raises(pf.ArgumentError, match="expected to be called once"):
        ours.init_process_group("gloo")


def check_reductions() -> None:
    for dtype in DTYPES:
        for op in ("SUM", "PRODUCT", "MIN", "MAX", *(["AVG"] if "float" in dtype else [])):
            _beside(lambda d, t, op=op: d.all_reduce(t[0], op=getattr(d.ReduceOp, op)), [_data((5, 3), dtype)])
    last = ours.get_world_size() - 1
    x, want = pf.tensor(_data((7,))), _data((7,))
    theirs.all_reduce(want)
    ours.reduce(x, dst=last)
    _same(x, want if ours.get_rank() == last else _data((7,)))  # others keep theirs


def check_gathering_and_spreading() -> None:
    size, rank = ours.get_world_size(), ours.get_rank()
    mine = rank == 1
    for shape in ((4, 3), (), (0, 2)):
        spare = [torch.zeros(shape) for _ in range(size)]
        _beside(lambda d, t: d.all_gather(t[1:], t[0]), [_data(shape), *spare])
        _beside(lambda d, t: d.broadcast(t[0], src=1), [_data(shape)])
        _beside(lambda d, t: d.gather(t[0], t[1:] if mine else None, dst=1), [_data(shape), *spare])
        parts = [_data(shape, seed=s) for s in range(size)]
        _beside(lambda d, t: d.scatter(t[0], t[1:] if mine else None, src=1), [torch.zeros(shape), *parts])
    _beside(lambda d, t: d.all_gather_into_tensor(t[1], t[0]), [_data((4, 3)), torch.zeros(4 * size, 3)])
    joined, stacked = pf.zeros(4 * size, 3, dtype=pf.bfloat16), pf.zeros(size, 4, 3, dtype=pf.bfloat16)
    for out in (joined, stacked):  # gloo alone refuses the second
        ours.all_gather_into_tensor(out, pf.tensor(_data((4, 3), "bfloat16")))
    _same(stacked, joined.reshape(size, 4, 3).to_torch())
    _beside(lambda d, t: d.reduce_scatter_tensor(t[1], t[0]), [_data((4 * size, 3)), torch.zeros(4, 3)])
    _beside(lambda d, t: d.reduce_scatter(t[0], t[1:]), [torch.zeros(2), *[_data((2,), seed=s) for s in range(size)]])
    sent, taken = [_data((2,), seed=to) for to in range(size)], [torch.zeros(2) for _ in range(size)]
    _beside(lambda d, t: d.all_to_all(t[:size], t[size:]), [*taken, *sent])
    _beside(lambda d, t: d.all_to_all_single(t[0], t[1]), [torch.zeros(3 * size, 2), _data((3 * size, 2))])


def check_tensors_as_they_come() -> None:
    """Lazy, strided and shared ones; gradients stay where they are; readers of the old value keep it."""
    rank = ours.get_rank()
    x = (pf.arange(6.0).reshape(2, 3).T + rank)[1:]
    before, array = x * 1, x.numpy().copy()
    want = torch.tensor(array)
    ours.all_reduce(x)
    theirs.all_reduce(want)
    _same(x, want)
    np.testing.assert_array_equal(before.numpy(), array)
    leaf = pf.ones(2, requires_grad=True)
    ours.all_reduce(leaf)
    assert leaf.requires_grad and leaf.is_leaf and leaf.tolist() == [ours.get_world_size()] * 2
    base = pf.zeros(4)
    ours.broadcast(base[2:].copy_(pf.full((2,), float(rank + 1))), src=1)
    assert base.tolist() == [0, 0, 2, 2]  # a view: what it shows is written


def check_async() -> None:
    x, y = pf.tensor(_data((3,))), pf.tensor(_data((3,), seed=1))
    works = [ours.all_reduce(x, async_op=True), ours.broadcast(y, 0, async_op=True), ours.barrier(async_op=True)]
    assert all(work.wait() for work in works if work is not None) and all(w.is_completed() for w in works if w)
    want = _data((3,))
    theirs.all_reduce(want)
    _same(x, want)


def check_point_to_point() -> None:
    size, rank = ours.get_world_size(), ours.get_rank()
    x, got = pf.tensor(_data((2, 2), "bfloat16")), pf.zeros(2, 2, dtype=pf.bfloat16)
    sending = ours.isend(x, (rank + 1) % size)
    ours.irecv(got, (rank - 1) % size).wait()
    sending.wait()
    want = [torch.empty(2, 2, dtype=torch.bfloat16) for _ in range(size)]
    theirs.all_gather(want, _data((2, 2), "bfloat16"))
    _same(got, want[(rank - 1) % size])
    if rank == 0:
        ours.send(pf.arange(3), 1)
    elif rank == 1:
        y = pf.zeros(3, dtype=pf.int64)
        assert ours.recv(y, 0) == 0 and y.tolist() == [0, 1, 2]
    with pytest.raises(pf.ArgumentError, match=r"\[isend\] expected dst to be another process"):
        ours.isend(x, rank)


def check_objects() -> None:
    size, rank = ours.get_world_size(), ours.get_rank()
    found: list[Any] = [None] * size
    ours.all_gather_object(found, {"rank": rank, "x": pf.full((2,), rank)})
    assert [(o["rank"], o["x"].tolist()) for o in found] == [(r, [r, r]) for r in range(size)]
    sent: list[Any] = ["a", 1] if rank == 0 else [None, None]
    ours.broadcast_object_list(sent, src=0)
    assert sent == ["a", 1]
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    ours.gather_object(rank, gathered, dst=0)
    assert gathered == (list(range(size)) if rank == 0 else None)
    out: list[Any] = [None]
    ours.scatter_object_list(out, [10 * r for r in range(size)] if rank == 0 else None, src=0)
    assert out == [10 * rank]


def check_groups() -> None:
    size, rank = ours.get_world_size(), ours.get_rank()
    last = ours.new_group([size - 1], timeout=60)
    some = ours.new_group([0, size - 1], timeout=60.0)
    x = pf.full((2,), float(rank))
    if rank in (0, size - 1):
        ours.all_reduce(x, group=some)
        assert x.tolist() == [size - 1.0] * 2 and ours.get_world_size(some) == 2
    if rank == size - 1:
        ours.all_reduce(x, group=last)
        assert ours.get_rank(last) == 0 and x.tolist() == [size - 1.0] * 2
    assert ours.get_rank(last) == (0 if rank == size - 1 else -1)
    with pytest.raises(pf.ArgumentError, match=r"\[new_group\] expected ranks from 0"):
        ours.new_group([size])
    ours.barrier()
    ours.monitored_barrier(timeout=60)


def check_what_is_refused() -> None:
    size, rank = ours.get_world_size(), ours.get_rank()
    with pytest.raises(pf.ShapeError, match=r"same shape of tensor .* \(2,\) on rank 0 and \(3,\) on rank 1"):
        ours.all_reduce(pf.zeros(2 + min(rank, 1)))
    with pytest.raises(pf.DTypeError, match=r"same dtype of tensor .* float32 on rank 0 and float64 on rank 1"):
        ours.broadcast(pf.zeros(2, dtype=pf.float64 if rank == 1 else pf.float32))
    with pytest.raises(pf.CollectiveError, match=r"same call .* all_reduce on rank 0 and broadcast on rank 1"):
        ours.broadcast(pf.zeros(2)) if rank == 1 else ours.all_reduce(pf.zeros(2))
    with pytest.raises(pf.CollectiveError, match="same options"):
        ours.all_reduce(pf.zeros(2), op=ours.ReduceOp.MAX if rank == 1 else ours.ReduceOp.SUM)
    x = pf.zeros(2)
    with pytest.raises(pf.ShapeError, match=r"expected tensor_list\[0\] of shape \(2,\) but got \(3,\)"):
        ours.all_gather([pf.zeros(3)] * size, x)
    with pytest.raises(pf.DTypeError, match=r"expected tensor_list\[0\] of dtype float32 but got int32"):
        ours.all_gather([pf.zeros(2, dtype=pf.int32)] * size, x)
    with pytest.raises(pf.ArgumentError, match=rf"one tensor for each process \({size}\) but got 1"):
        ours.all_gather([x], x)
    with pytest.raises(pf.ShapeError, match=r"expected output_tensor of shape"):
        ours.all_gather_into_tensor(pf.zeros(3), x)
    with pytest.raises(pf.ArgumentError, match=r"expected process src from 0 to"):
        ours.broadcast(x, src=size)
    with pytest.raises(pf.ArgumentTypeError, match="expected a tensor as tensor but got list"):
        ours.all_reduce([1.0])  # type: ignore[arg-type]
    with pytest.raises(pf.DTypeError, match="float8"):
        ours.all_reduce(x.to(pf.float8_e4m3fn))
    with pytest.raises(pf.TraceError, match=r"distributed\.reduce"):
        pf.jit(lambda t: ours.reduce(t))(x)


def check_batches_of_messages() -> None:
    rank, size = ours.get_rank(), ours.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size

    def call(dist: Any, tensors: list[Any]) -> None:
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, tensors[0], right), dist.P2POp(dist.irecv, tensors[1], group_peer=left)]
        )
        for work in works:
            work.wait()

    _beside(call, [_data((3,)), torch.zeros(3)])
    with pytest.raises(pf.ArgumentError, match="expected a list of P2POp"):
        ours.batch_isend_irecv([])
    with pytest.raises(pf.ArgumentError, match="expected peer or group_peer"):
        ours.P2POp(ours.isend, pf.ones(1))
    with pytest.raises(pf.ArgumentError, match="isend or irecv as op"):
        ours.P2POp(print, pf.ones(1), 0)  # type: ignore[arg-type]
    with pytest.raises(pf.ArgumentError, match="another process"):
        ours.batch_isend_irecv([ours.P2POp(ours.isend, pf.ones(1), rank)])
    if rank == 0:
        ours.send_object_list([{"a": 1}, "b"], dst=1)
    elif rank == 1:
        found: list[Any] = [None, None]
        assert ours.recv_object_list(found, src=0) == 0 and found == [{"a": 1}, "b"]


def check_subgroups_and_meshes() -> None:
    rank, size = ours.get_rank(), ours.get_world_size()
    own, groups = ours.new_subgroups(1)
    assert len(groups) == size and ours.get_process_group_ranks(own) == [rank] and isinstance(own, ours.ProcessGroup)
    half = size // 2
    own, groups = ours.new_subgroups_by_enumeration([range(half), range(half, size)])
    assert len(groups) == 2 and ours.get_process_group_ranks(own) == list(range(size))[(rank // half) * half :][:half]
    with pytest.raises(pf.ArgumentError, match="that divides"):
        ours.new_subgroups(size + 1)
    with pytest.raises(pf.ArgumentError, match="each rank in one group"):
        ours.new_subgroups_by_enumeration([[0, 1], [1]])
    names = ("data", "model")
    mesh, other = (d.init_device_mesh("cpu", (half, 2), mesh_dim_names=names) for d in (ours, theirs))
    assert mesh.mesh.tolist() == other.mesh.tolist() and mesh.shape == tuple(other.shape)
    assert mesh.get_coordinate() == list(other.get_coordinate()) and mesh.ndim == other.ndim == 2
    for axis, name in enumerate(names):
        assert mesh.size(axis) == other.size(axis) and mesh.get_local_rank(name) == other.get_local_rank(name)
        for found in (mesh.get_group(axis), mesh.get_group(name), mesh[name].get_group()):
            assert ours.get_process_group_ranks(found) == theirs.get_process_group_ranks(other.get_group(axis))
        assert mesh[name].mesh.tolist() == other[name].mesh.tolist() and len(mesh.get_all_groups()) == 2
    x = pf.ones(2)
    ours.all_reduce(x, group=mesh.get_group("model"))
    assert x.tolist() == [2.0, 2.0]
    assert mesh["data", "model"].size() == size
    for call, text in (
        (lambda: mesh.get_group(), "expected an axis of 2 but got none"),
        (lambda: mesh.get_group("modle"), "did you mean 'model'"),
        (lambda: mesh["model", "data"], "in the order of"),
        (lambda: ours.init_device_mesh("cpu", (size + 1,)), "expected a shape for"),
        (lambda: ours.DeviceMesh("cpu", [0, 0]), "each rank once"),
        (lambda: ours.DeviceMesh("cpu", [0, 1], mesh_dim_names=names), "a name of its own"),
    ):
        with pytest.raises(pf.ArgumentError, match=text):
            call()


def check_gradients() -> None:
    """Through the collectives of torch.distributed.nn."""
    size = ours.get_world_size()

    def beside(call: Callable[[Any, list[Any]], Any], count: int = 1) -> None:
        inputs = [_data((2 * size, 3), seed=s) for s in range(count)]
        weights = [_data((2 * size, 3), seed=9 + s) for s in range(size)]
        mine, other = [pf.tensor(t, requires_grad=True) for t in inputs], [t.clone().requires_grad_() for t in inputs]
        for library, tensors, factors in ((ours, mine, [pf.tensor(w) for w in weights]), (theirs, other, weights)):
            out = call(library.nn, tensors)
            outs = out if isinstance(out, (tuple, list)) else (out,)
            sum((o * w).sum() for o, w in zip(outs, factors, strict=False)).backward()
            library.barrier()
        for got, want in zip(mine, other, strict=True):
            _same(got.grad, want.grad)

    beside(lambda nn, t: nn.all_reduce(t[0]))
    beside(lambda nn, t: nn.broadcast(t[0], 1))
    beside(lambda nn, t: nn.reduce(t[0], 1))
    beside(lambda nn, t: nn.all_gather(t[0]))
    beside(lambda nn, t: nn.reduce_scatter(t[0].detach() * 0, t), size)
    beside(lambda nn, t: nn.gather(t[0], 1))
    beside(lambda nn, t: nn.scatter(t, 1), size)
    beside(lambda nn, t: nn.all_to_all([x.detach() * 0 for x in t], t), size)
    beside(lambda nn, t: nn.all_to_all_single(t[0].detach() * 0, t[0]))


def check_a_group_of_torchs_own_is_used() -> None:
    """As in a worker of Ray Train, where torch's group exists before the program begins."""
    rank, size = ours.get_rank(), ours.get_world_size()
    _world.backend = _world.torch = None  # as if ours had not been made
    with pytest.raises(
        pf.ArgumentError, match=rf"expected rank 0 of 9 but torch.distributed was started as rank {rank}"
    ):
        ours.init_process_group(rank=0, world_size=9)
    ours.init_process_group()
    assert (ours.get_rank(), ours.get_world_size()) == (rank, size)
    ours.destroy_process_group()
    assert theirs.is_initialized() and not ours.is_initialized()  # whoever made it ends it
    ours.init_process_group()


def check_a_process_that_does_not_come() -> None:
    """The others get an error after the timeout, not a hang. The last check: the group is of no use afterwards."""
    patient = ours.new_group(timeout=1.0)
    if ours.get_rank() == 0:
        with pytest.raises(pf.CollectiveError, match=r"\[all_reduce\] expected all processes .* rank 0 got"):
            ours.all_reduce(pf.zeros(2), group=patient)
    ours.barrier()
