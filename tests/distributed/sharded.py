"""ZeRO 1 to 3 beside training of one process."""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim
from pyflame.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.data_parallel import _batches, _loss, _mean, _model, _part, _same, alone


def _trained(model: Any, optimizer: Any, clip: Any = None, batches: Any = None) -> list[float]:
    losses = []
    for x, y in map(_part, batches or _batches()):
        optimizer.zero_grad()
        loss = _loss(model, x, y)
        loss.backward()
        if clip is not None:
            clip(model.parameters())
        optimizer.step()
        losses.append(_mean(loss))
    return losses


def check_stage_1() -> None:
    model = DDP(_model(dist.get_rank()))
    optimizer = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1e-2)
    losses = _trained(model, optimizer, lambda params: nn.utils.clip_grad_norm_(params, 0.1))
    _same((losses, list(model.parameters())), alone(clip=0.1))
    owned = [p for p in model.parameters() if optimizer.state.get(p)]
    counts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(counts, len(owned))
    assert sum(counts) == len(list(model.parameters())) and max(counts) < sum(counts)  # each state once


def check_stage_2() -> None:
    for clip in (None, 0.1):
        model = _model()
        optimizer = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, stage=2, lr=1e-2)
        clipped = None if clip is None else lambda params: dist.clip_grad_norm_(params, 0.1)
        _same((_trained(model, optimizer, clipped), list(model.parameters())), alone(clip))
        for p in model.parameters():  # a gradient is kept where the state is
            assert (p.grad is not None) == bool(optimizer.state.get(p))
    with pytest.raises(pf.ArgumentError, match="FullyShardedDataParallel"):
        dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, stage=3)


def check_clipping_at_stage_2_averages_once() -> None:
    """Clipping twice is clipping once; a skipped step leaves nothing behind; what one process alone has counts."""
    size, rank = dist.get_world_size(), dist.get_rank()
    params = [nn.Parameter(pf.zeros(2)) for _ in range(3)]
    optimizer = dist.ZeroRedundancyOptimizer(params, optim.SGD, stage=2, lr=1.0)
    for _ in range(2):
        for p in params[:2]:
            p.grad = pf.full((2,), rank + 1.0)
        if rank == 1:
            params[2].grad = pf.full((2,), 1.0 * size)
        mean = (size + 1) / 2
        want = np.sqrt(4 * mean**2 + 2)
        np.testing.assert_allclose(float(dist.clip_grad_norm_(params, 1.0)), want, rtol=1e-6)
        np.testing.assert_allclose(float(dist.clip_grad_norm_(params, 1.0)), 1.0, rtol=1e-5)
        nn.Module.zero_grad(nn.ParameterList(params))
    for p in params:
        p.grad = pf.full((2,), rank + 1.0)
    dist.clip_grad_norm_(params, 1.0)
    optimizer.step()
    for p in params:
        np.testing.assert_allclose(p.detach().numpy(), -1 / np.sqrt(6), rtol=1e-5)


def _sharded(seed: int = 0) -> Any:
    model: Any = _model(seed)
    model[2] = dist.FullyShardedDataParallel(model[2])
    return dist.FullyShardedDataParallel(model)


def check_stage_3() -> None:
    for clip in (None, 0.1):
        model = _sharded(dist.get_rank())  # the first process's parameters win
        whole = sum(p.numel() for p in _model().parameters())
        assert sum(p.numel() for p in model.parameters()) < 0.6 * whole
        clipped = None if clip is None else lambda params: dist.clip_grad_norm_(params, 0.1)
        losses = _trained(model, optim.AdamW(model.parameters(), lr=1e-2), clipped)
        _same((losses, list(model.full_state_dict().values())), alone(clip))


def check_whole_state_goes_into_another_division() -> None:
    model, plain = _sharded(), _model(5)
    plain.load_state_dict(model.full_state_dict())
    x = pf.tensor(_batches()[0][0])
    np.testing.assert_allclose(plain(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)
    other = dist.FullyShardedDataParallel(_model(7))
    other.load_full_state_dict(plain.state_dict())
    np.testing.assert_allclose(other(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)


def check_state_of_stage_1_goes_on_in_one_process_and_back() -> None:
    model = DDP(_model())
    zero = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1e-2)
    _trained(model, zero)
    saved = zero.state_dict()
    twin = _model()
    twin.load_state_dict(model.module.state_dict())
    plain = optim.AdamW(twin.parameters(), lr=1e-2)
    plain.load_state_dict(saved)
    again = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=5.0)
    again.load_state_dict(saved)
    for m, o in ((model.module, again), (twin, plain)):
        for p in m.parameters():
            p.grad = pf.ones_like(p.detach())
        o.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-6)


def _wrapped(kind: str) -> tuple[Any, Any]:
    """A model and its optimiser, divided in one of all ways."""
    if kind == "fully sharded":
        model: Any = _sharded(1)
    elif kind == "plain":
        model = _model(2)
    else:
        model = DDP(_model(3))
    if kind == "stage 1":
        return model, dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1e-2)
    return model, optim.AdamW(model.parameters(), lr=1e-2)


def check_checkpoints_go_from_every_division_to_every_other() -> None:
    """Two steps, a checkpoint, two more with another division: as four steps of one process."""
    folder: list[Any] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    kinds = ["fully sharded", "stage 1", "data parallel", "fully sharded"]
    for before, after in pairwise(kinds):
        model, optimizer = _wrapped(before)
        start = _model(0)
        dist.save_checkpoint(f"{folder[0]}/start", start)
        dist.load_checkpoint(f"{folder[0]}/start", model)
        losses = _trained(model, optimizer, batches=_batches()[:2])
        dist.save_checkpoint(f"{folder[0]}/half", model, optimizer, step=2)
        other, resumed = _wrapped(after)
        assert dist.load_checkpoint(f"{folder[0]}/half", other, resumed) == {"step": 2}
        losses += _trained(other, resumed, batches=_batches()[2:])
        parameters = other.full_state_dict().values() if after == "fully sharded" else other.parameters()
        _same((losses, list(parameters)), alone())
    twin, plain = _wrapped("plain")  # as in one process
    dist.load_checkpoint(f"{folder[0]}/half", twin, plain)
    for x, y in _batches()[2:]:
        plain.zero_grad()
        _loss(twin, pf.tensor(x), pf.tensor(y)).backward()
        plain.step()
    _same(([], list(twin.parameters())), ([], alone()[1]))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])


def check_checkpoints_of_other_models_are_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pf.save({"model": {"weight": pf.zeros(2)}, "extra": {}}, f"{folder}/other")
        with pytest.raises(pf.StateDictError, match=r"'bias' is only in the model"):
            dist.load_checkpoint(f"{folder}/other", nn.Linear(1, 2))
        pf.save({"model": {"weight": pf.zeros(1, 1), "bias": pf.zeros(2)}, "extra": {}}, f"{folder}/small")
        with pytest.raises(pf.StateDictError, match=r"'weight' of shape \(2, 1\) but got \(1, 1\)"):
            dist.load_checkpoint(f"{folder}/small", nn.Linear(1, 2))
    layer = nn.Linear(4, 4)
    dist.mark_divided(layer.parameters())
    with pytest.raises(pf.NotSupportedError, match="those of a stage"):
        dist.save_checkpoint("nowhere", layer)
    layer = dist.ColumnParallelLinear(4, 4)
    optimizer = optim.LBFGS(layer.parameters())
    layer(pf.ones(2, 4)).sum().backward()
    optimizer.step(lambda: pf.tensor(1.0))
    with pytest.raises(pf.NotSupportedError, match="expected optimiser state 'old_dirs' of one value, or"):
        dist.save_checkpoint("nowhere", layer, optimizer)
