"""Tensor and pipeline parallel training beside training of one process."""

from __future__ import annotations

import math
import shutil
import tempfile
from itertools import permutations
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
    def __init__(self, group: Any = None) -> None:
        nn.Module.__init__(self)
        self.embed = dist.VocabParallelEmbedding(WORDS, 6, group=group)
        self.up = dist.ColumnParallelLinear(6, 16, group=group)
        self.down = dist.RowParallelLinear(16, 6, group=group)
        self.head = dist.ColumnParallelLinear(6, WORDS, bias=False, gather_output=True, group=group)


def _losses(
    model: Any, clip: Any = None, *, optimizer: Any = None, steps: slice = slice(STEPS), group: Any = None
) -> list[float]:
    """Losses of a few steps; with a group, each of its processes has its part of the batch."""
    optimizer, losses = optimizer or optim.AdamW(model.parameters(), lr=1e-2), []
    size, place = (dist.get_world_size(group), dist.get_rank(group)) if group else (1, 0)
    for x, y in _batches()[steps]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[place::size]), y[place::size])
        loss.backward()
        if clip is not None:
            losses.append(float(clip(model.parameters())))
        optimizer.step()
        loss = loss.detach() / size
        if size > 1:
            dist.all_reduce(loss, group=group)
        losses.append(float(loss))
    return losses


_groups: dict[bool, dict[int, Any]] = {}


def _group(size: int, apart: bool = False) -> Any:
    """This process's group of so many neighbours, or of so many that are as far apart as possible."""
    everyone = range(dist.get_world_size())
    count = len(everyone) // size
    if size not in _groups.setdefault(apart, {}):
        for first in range(count):
            ranks = everyone[first::count] if apart else everyone[first * size : (first + 1) * size]
            made = dist.new_group(list(ranks))
            if dist.get_rank() in ranks:
                _groups[apart][size] = made
    return _groups[apart][size]


def _sizes() -> list[int]:
    return [size for size in (1, 2, 4) if size <= dist.get_world_size()]


def check_tensor_parallel() -> None:
    pf.manual_seed(0)
    whole = _losses(_Whole())
    pf.manual_seed(0)  # the same weights, drawn whole and cut
    model = _Divided()
    assert model.up.weight.shape == (16 // dist.get_world_size(), 6)
    np.testing.assert_allclose(_losses(model), whole, rtol=2e-5)
    with pytest.raises(pf.ArgumentError, match=r"\[ColumnParallelLinear\] expected out_features that"):
        dist.ColumnParallelLinear(4, 7)


def _clip(order: float, function: Any) -> Any:
    return lambda params: function(params, 0.1, order)


def check_clipping_of_divided_layers() -> None:
    """Alone, within data parallel, ZeRO 2 and ZeRO 3: norms and losses as in one process."""
    for order in (2.0, 1.0, math.inf):
        pf.manual_seed(0)
        want = _losses(_Whole(), _clip(order, nn.utils.clip_grad_norm_))
        for size in _sizes():
            tensors, rows = _group(size), _group(dist.get_world_size() // size, apart=True)
            for kind in ("data parallel", "stage 2", "stage 3"):
                pf.manual_seed(0)
                model: Any = _Divided(tensors)
                if kind == "stage 3":
                    model.up = dist.FullyShardedDataParallel(model.up, rows)
                    model = dist.FullyShardedDataParallel(model, rows)
                elif kind == "data parallel":
                    model = nn.parallel.DistributedDataParallel(model, process_group=rows)
                optimizer = None
                if kind == "stage 2":
                    optimizer = dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, rows, stage=2, lr=1e-2)
                found = _losses(model, _clip(order, dist.clip_grad_norm_), optimizer=optimizer, group=rows)
                np.testing.assert_allclose(found, want, rtol=3e-5, err_msg=f"{order} {size} {kind}")


def check_a_plain_norm_of_divided_layers_is_refused() -> None:
    layer = dist.RowParallelLinear(4, 4)
    with pytest.raises(pf.ArgumentError, match=r"use pf\.distributed.clip_grad_norm_"):
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    nn.utils.clip_grad_norm_([layer.bias], 1.0)  # all processes have the whole of it


def check_norms_that_are_not_finite() -> None:
    for order in (2.0, math.inf):
        p = nn.Parameter(pf.zeros(2))
        dist.mark_divided([p])
        p.grad = pf.full((2,), math.nan if dist.get_rank() == 1 else 1.0)
        assert math.isnan(float(dist.clip_grad_norm_([p], 1.0, order)))
        with pytest.raises(pf.GradientError, match="expected finite gradients"):
            dist.clip_grad_norm_([p], 1.0, order, error_if_nonfinite=True)
    both = nn.Parameter(pf.zeros(1, dtype=pf.float64))
    both.grad = pf.ones(1, dtype=pf.float64)
    assert dist.clip_grad_norm_(both, 1.0).dtype is pf.float64


def check_checkpoints_of_divided_layers() -> None:
    """Two steps with one division, a checkpoint, two more with another one: as four steps of one process."""
    folder: list[Any] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    pf.manual_seed(0)
    whole = _Whole()
    want = _losses(whole)
    for before, after in permutations(_sizes(), 2):
        pf.manual_seed(0)
        model: Any = _Divided(_group(before))
        optimizer = optim.AdamW(model.parameters(), lr=1e-2)
        losses = _losses(model, optimizer=optimizer, steps=slice(2))
        dist.save_checkpoint(f"{folder[0]}/half", model, optimizer, step=2)
        pf.manual_seed(after)
        other = _Divided(_group(after))
        resumed = optim.AdamW(other.parameters(), lr=1e-2)
        assert dist.load_checkpoint(f"{folder[0]}/half", other, resumed) == {"step": 2}
        losses += _losses(other, optimizer=resumed, steps=slice(2, STEPS))
        np.testing.assert_allclose(losses, want, rtol=3e-5)
        full = dist.full_state_dict(other)
        if dist.get_rank() == 0:
            pf.save(full, f"{folder[0]}/model.safetensors")
        dist.barrier()
        plain = _Whole()  # an ordinary file
        plain.load_state_dict(pf.load(f"{folder[0]}/model.safetensors"))
        for got, wanted in zip(plain.parameters(), whole.parameters(), strict=True):
            np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), rtol=2e-3, atol=2e-5)
        dist.load_full_state_dict(model, plain.state_dict())
        x = _batches()[0][0]
        np.testing.assert_allclose(model(x).detach().numpy(), plain(x).detach().numpy(), rtol=1e-4, atol=1e-6)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])


def check_checkpoints_of_layers_divided_twice() -> None:
    """Parallel layers under ZeRO 3, with its optimiser's state, into one process."""
    folder: list[Any] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    pf.manual_seed(0)
    want = _losses(_Whole())
    rows = _group(dist.get_world_size() // 2, apart=True)
    pf.manual_seed(0)
    model = dist.FullyShardedDataParallel(_Divided(_group(2)), rows)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    losses = _losses(model, optimizer=optimizer, steps=slice(2), group=rows)
    dist.save_checkpoint(f"{folder[0]}/half", model, optimizer)
    plain = _Whole()
    resumed = optim.AdamW(plain.parameters(), lr=1e-2)
    dist.load_checkpoint(f"{folder[0]}/half", plain, resumed)
    np.testing.assert_allclose(losses + _losses(plain, optimizer=resumed, steps=slice(2, STEPS)), want, rtol=3e-5)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])


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
    stage = nn.Linear(2, 1, bias=False)
    dist.Schedule1F1B(stage, 1, nn.functional.mse_loss)
    p = stage.weight
    p.grad = pf.full((1, 2), place + 1.0)
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
