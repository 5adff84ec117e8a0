"""Data parallel training of many processes beside training of one, on the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim
from pyflame.nn.parallel import DistributedDataParallel as DDP

ROWS = 8  # of a whole batch: 2 and 4 processes divide it
STEPS = 4


def _model(seed: int = 0) -> nn.Module:
    pf.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def _batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [(rng.normal(size=(ROWS, 5)).astype("f"), rng.integers(0, 3, ROWS)) for _ in range(STEPS)]


def _part(batch: tuple[np.ndarray, np.ndarray]) -> tuple[pf.Tensor, pf.Tensor]:
    """This process's rows."""
    size, rank = dist.get_world_size(), dist.get_rank()
    return pf.tensor(batch[0][rank::size]), pf.tensor(batch[1][rank::size])


def _loss(model: Any, x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
    return nn.functional.cross_entropy(model(x), y)


def _mean(loss: pf.Tensor) -> float:
    loss = loss.detach() * 1
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    return float(loss)


def alone(clip: float | None = None) -> tuple[list[float], list[np.ndarray]]:
    """Losses and final parameters of one process that has whole batches."""
    model = _model()
    optimizer, losses = optim.AdamW(model.parameters(), lr=1e-2), []
    for x, y in _batches():
        optimizer.zero_grad()
        loss = _loss(model, pf.tensor(x), pf.tensor(y))
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(float(loss))
    return losses, [p.detach().numpy() for p in model.parameters()]


def _same(found: tuple[list[float], Any], wanted: tuple[list[float], list[np.ndarray]]) -> None:
    np.testing.assert_allclose(found[0], wanted[0], rtol=2e-5)
    for got, want in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=2e-3, atol=2e-5)


def _trained(step: Callable[[Any, Any, pf.Tensor, pf.Tensor], pf.Tensor], **options: Any) -> tuple[list[float], Any]:
    model = DDP(_model(seed=dist.get_rank()), **options)  # other parameters on each process: the first one's win
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    losses = [_mean(step(model, optimizer, *_part(batch))) for batch in _batches()]
    return losses, list(model.parameters())


def _plain(model: Any, optimizer: Any, x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
    optimizer.zero_grad()
    loss = _loss(model, x, y)
    loss.backward()
    optimizer.step()
    return loss


def check_plain_steps() -> None:
    _same(_trained(_plain), alone())


def check_gradients_of_named_inputs() -> None:
    """backward(inputs=...) averages too; autograd.grad leaves .grad, and what comes after it, alone."""

    def step(model: Any, optimizer: Any, x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        pf.autograd.grad(_loss(model, x, y), list(model.parameters()))
        loss = _loss(model, x, y)
        loss.backward(inputs=list(model.parameters()))
        optimizer.step()
        return loss

    _same(_trained(step), alone())


def check_small_buckets() -> None:
    found = _trained(_plain, bucket_cap_mb=0.0005)
    _same(found, alone())


def check_eager_ops() -> None:
    with pf.eager():
        found = _trained(_plain)
    _same(found, alone())


def check_clipping_by_the_global_norm() -> None:
    def step(model: Any, optimizer: Any, x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = _loss(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    _same(_trained(step), alone(clip=0.1))


def check_accumulation_without_sync() -> None:
    def step(model: Any, optimizer: Any, x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        half = len(x) // 2
        with model.no_sync():
            first = _loss(model, x[:half], y[:half]) / 2
            first.backward()
        own = [p.grad.numpy().copy() for p in model.parameters()]
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, own[0])
        assert not np.array_equal(gathered[0], gathered[1])  # not averaged yet
        second = _loss(model, x[half:], y[half:]) / 2
        second.backward()
        optimizer.step()
        return first + second

    _same(_trained(step), alone())


def check_jitted_steps() -> None:
    for clip, unused in ((None, False), (0.1, False), (0.1, True)):
        model = DDP(_model(seed=dist.get_rank()), find_unused_parameters=unused)
        step = dist.data_parallel_step(model, _loss, optim.AdamW(model.parameters(), lr=1e-2), max_norm=clip)
        losses = [_mean(step(*_part(batch))) for batch in _batches()]
        _same((losses, list(model.parameters())), alone(clip))
        counts = (step._whole.traces, step._gradients.traces, step._update.traces)
        assert counts == ((0, 1, 1) if unused else (1, 0, 0))


def check_jitted_accumulation() -> None:
    model = DDP(_model())

    def half_loss(model: Any, x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        return _loss(model, x, y) / 2

    step = dist.data_parallel_step(model, half_loss, optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    for x, y in map(_part, _batches()):
        half = len(x) // 2
        losses.append(_mean(step.accumulate(x[:half], y[:half]) + step(x[half:], y[half:])))
    _same((losses, list(model.parameters())), alone())


class _Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(3)])

    def forward(self, x: pf.Tensor, which: int) -> pf.Tensor:
        return self.parts[which](x)


def check_unused_parameters() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DDP(_Branches(), find_unused_parameters=True)
    model(pf.ones(1, 2), min(rank, 1)).sum().backward()
    shares = [1 / size, 1 - 1 / size]
    grads = [p.grad for p in model.parameters()]
    assert grads[2] is None
    for grad, share in zip(grads, shares, strict=False):
        np.testing.assert_allclose(grad.numpy(), share, rtol=1e-6)
    strict = DDP(_Branches())
    with pytest.raises(pf.GradientError, match=r"'parts\.2\.weight' has none; pass find_unused_parameters"):
        strict(pf.ones(1, 2), 0).sum().backward()


def check_buffers_are_the_first_ones() -> None:
    rank = dist.get_rank()
    model = DDP(nn.BatchNorm1d(2))
    model(pf.full((4, 2), float(rank))).sum().backward()
    model(pf.full((4, 2), float(rank)))
    model.sync_buffers()
    np.testing.assert_allclose(model.module.running_mean.numpy(), 0)  # rank 0 has seen zeros only


def check_gradients_of_torch_ddp_are_the_same() -> None:
    import torch

    ours, theirs = nn.Linear(5, 3), torch.nn.Linear(5, 3)
    weights = np.random.default_rng(0).normal(size=(3, 5)).astype("f")
    with pf.no_grad(), torch.no_grad():
        ours.weight.copy_(pf.tensor(weights))
        theirs.weight.copy_(torch.tensor(weights))
    x = np.random.default_rng(dist.get_rank()).normal(size=(4, 5)).astype("f")
    (DDP(ours)(pf.tensor(x)) ** 2).sum().backward()
    theirs.bias.data.copy_(torch.tensor(ours.bias.detach().numpy()))
    wrapped = torch.nn.parallel.DistributedDataParallel(theirs)  # averages nothing once it is forgotten
    (wrapped(torch.tensor(x)) ** 2).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-4, atol=1e-5)


def check_models_that_differ_are_refused() -> None:
    rank = dist.get_rank()
    with pytest.raises(
        pf.ArgumentError, match=r"'weight' is \(3, 2\) float32 on rank 0 and \(4, 2\) float32 on rank 1"
    ):
        DDP(nn.Linear(2, 3 + min(rank, 1)))
    with pytest.raises(pf.ArgumentError, match=r"'bias' is \(3,\) float32 on rank 0 and missing on rank 1"):
        DDP(nn.Linear(2, 3, bias=rank == 0))


def check_sampler_and_loader() -> None:
    data = pf.utils.data.TensorDataset(pf.arange(10.0))
    sampler = pf.utils.data.DistributedSampler(data, shuffle=False)
    assert (sampler.rank, sampler.num_replicas) == (dist.get_rank(), dist.get_world_size())
    loader = pf.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
    seen = [v for (batch,) in loader for v in batch.tolist()]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, seen)
    assert {v for part in everyone for v in part} == set(range(10)) and len({len(p) for p in everyone}) == 1
