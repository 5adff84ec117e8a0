"""Tensor and pipeline parallel training beside training of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim

STEPS, ROWS, WORDS = 4, 8, 8


def _batches() -> list[tuple[pf.Tensor, pf.Tensor]]:
    rng = np.random.default_rng(3)
    draw = lambda: pf.tensor(rng.integers(0, WORDS, ROWS))  # noqa: E731
    return [(draw(), draw()) for _ in range(STEPS)]


class _Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(WORDS, 6), nn.Linear(6, 16), nn.Linear(16, 6)
        self.head = nn.Linear(6, WORDS, bias=False)

    def forward(self, tokens: pf.Tensor) -> pf.Tensor:
        x = self.embed(tokens)
        return self.head(x + self.down(nn.functional.gelu(self.up(x))))


class _Divided(_Whole):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.embed = dist.VocabParallelEmbedding(WORDS, 6)
        self.up, self.down = dist.ColumnParallelLinear(6, 16), dist.RowParallelLinear(16, 6)
        self.head = dist.ColumnParallelLinear(6, WORDS, bias=False, gather_output=True)


def _losses(model: Any, clip: Any = None) -> list[float]:
    optimizer, losses = optim.AdamW(model.parameters(), lr=1e-2), []
    for x, y in _batches():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def check_tensor_parallel() -> None:
    pf.manual_seed(0)
    whole = _losses(_Whole())
    pf.manual_seed(0)  # the same weights, drawn whole and cut
    model = _Divided()
    assert model.up.weight.shape == (16 // dist.get_world_size(), 6)
    np.testing.assert_allclose(_losses(model), whole, rtol=2e-5)
    with pytest.raises(pf.ArgumentError, match=r"\[ColumnParallelLinear\] expected out_features that"):
        dist.ColumnParallelLinear(4, 7)


def _layers() -> list[nn.Module]:
    pf.manual_seed(0)
    middle = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2)]
    return [nn.Embedding(WORDS, 6), *middle, nn.Linear(6, WORDS)]


def check_pipeline() -> None:
    size, place = dist.get_world_size(), dist.get_rank()
    each = 4 // size
    for count in (1, 4):
        wanted = _losses(nn.Sequential(*_layers()))
        stage = nn.Sequential(*_layers()[place * each : (place + 1) * each])
        schedule = dist.Schedule1F1B(stage, count, nn.functional.cross_entropy)
        optimizer = optim.AdamW(stage.parameters(), lr=1e-2)
        for (x, y), want in zip(_batches(), wanted, strict=True):
            optimizer.zero_grad()
            loss = schedule.step(x, target=y)
            optimizer.step()
            assert (loss is not None) == schedule.is_last
            if loss is not None:
                np.testing.assert_allclose(float(loss), want, rtol=2e-5)


def check_clipping_over_stages() -> None:
    size, place = dist.get_world_size(), dist.get_rank()
    p = pf.zeros(2, requires_grad=True)
    p.grad = pf.full((2,), place + 1.0)
    want = np.sqrt(2 * sum((r + 1) ** 2 for r in range(size)))
    np.testing.assert_allclose(float(dist.clip_grad_norm_([p], 0.5)), want, rtol=1e-6)
    np.testing.assert_allclose(p.grad.numpy(), 0.5 * (place + 1) / want, rtol=1e-4)


def check_batches_that_cannot_be_cut() -> None:
    schedule = dist.Schedule1F1B(nn.Linear(2, 2), 3, nn.functional.mse_loss)
    if schedule.is_first or schedule.is_last:
        with pytest.raises(pf.ArgumentError, match=r"\[Schedule1F1B\] expected (input|target) in 3 equal parts"):
            schedule.step(pf.ones(4, 2), target=pf.ones(4, 2))
    with pytest.raises(pf.ArgumentError, match="expected at least one microbatch but got 0"):
        dist.Schedule1F1B(nn.Linear(2, 2), 0, nn.functional.mse_loss)
