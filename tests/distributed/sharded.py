"""ZeRO 1 to 3 beside training of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim
from pyflame.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.data_parallel import _batches, _loss, _mean, _model, _part, _same, alone


def _trained(model: Any, optimizer: Any, clip: Any = None) -> list[float]:
    losses = []
    for x, y in map(_part, _batches()):
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
    model = _model()
    optimizer = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, stage=2, lr=1e-2)
    _same((_trained(model, optimizer), list(model.parameters())), alone())
    for p in model.parameters():  # a gradient is kept where the state is
        assert (p.grad is not None) == bool(optimizer.state.get(p))
    with pytest.raises(pf.ArgumentError, match="FullyShardedDataParallel"):
        dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, stage=3)


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
