"""Steps of many processes as one jitted function, collectives included, beside training of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
import pyflame.distributed as dist
from pyflame import nn, optim
from pyflame.collectives.traced import Collective
from pyflame.nn.parallel import DistributedDataParallel as DDP
from tests.distributed.data_parallel import _batches, _loss, _mean, _model, _part, _same, alone

SMALL = 0.0005  # MB of a bucket: several of this model


def _step(model: Any, optimizer: Any, clip: float | None = None) -> Any:
    def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = _loss(model, x, y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss.detach()

    return pf.jit(step)


def check_a_whole_step_is_one_jitted_function() -> None:
    for options, clip in (({}, None), ({"bucket_cap_mb": SMALL}, None), ({"bucket_cap_mb": SMALL}, 0.1)):
        model = DDP(_model(seed=dist.get_rank()), **options)
        step = _step(model, optim.AdamW(model.parameters(), lr=1e-2), clip)
        losses = [_mean(step(*_part(batch))) for batch in _batches()]
        _same((losses, list(model.parameters())), alone(clip))
        assert step.traces == 1


def _stages(step: Any) -> Any:
    ((found,),) = step.cache.values()
    return found.runner.stages


def check_buckets_travel_while_gradients_are_computed() -> None:
    model = DDP(_model(), bucket_cap_mb=SMALL)
    step = _step(model, optim.AdamW(model.parameters(), lr=1e-2))
    x, y = _part(_batches()[0])
    step(x, y)
    stages, count = _stages(step), len(model._buckets)
    assert count > 2
    # one bucket starts behind each stage but the last, which updates
    assert [len(stage.started) for stage in stages] == [1] * count + [0]
    # and the backward pass goes on behind the first: products of gradients, which are computed while it travels
    assert any("matmul" in launch.name for stage in stages[1:-1] for launch in stage.plan.launches)
    events: list[str] = []
    start = Collective.start

    def watched(self: Any, meta: Any, value: Any) -> Any:
        events.append("start")
        flight = start(self, meta, value)
        return lambda: (events.append("wait"), flight())[1]

    Collective.start = watched  # type: ignore[method-assign]
    try:
        step(x, y)
    finally:
        Collective.start = start  # type: ignore[method-assign]
    assert events == ["start"] * count + ["wait"] * count


def check_state_is_updated_where_it_lies() -> None:
    model = DDP(_model(), bucket_cap_mb=SMALL)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    step = _step(model, optimizer)
    places = lambda: [p._node.data.address for p in model.parameters()]  # noqa: E731
    step(*_part(_batches()[0]))
    step(*_part(_batches()[1]))
    before, values = places(), [p.detach().numpy().copy() for p in model.parameters()]
    step(*_part(_batches()[2]))
    assert places() == before
    for p, was in zip(model.parameters(), values, strict=True):
        assert not np.array_equal(p.detach().numpy(), was)


def check_collectives_within_jitted_functions() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()

    @pf.jit
    def several(x: pf.Tensor) -> tuple[pf.Tensor, ...]:
        largest, first, mean = x * 1, x * 2, x + dist.get_rank()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        work = dist.all_reduce(mean, dist.ReduceOp.AVG, async_op=True)
        assert work is not None and work.wait()
        dist.broadcast(first, size - 1)
        total = largest + first
        dist.all_reduce(total)
        return largest, first, mean, total

    for _ in range(2):
        x = np.float32([rank, -rank])
        largest, first, mean, total = several(pf.tensor(x))
        np.testing.assert_array_equal(largest.numpy(), [size - 1, 0])
        np.testing.assert_array_equal(first.numpy(), [2 * (size - 1), -2 * (size - 1)])
        np.testing.assert_allclose(mean.numpy(), [size - 1, 0])
        np.testing.assert_array_equal(total.numpy(), size * (largest + first).numpy())
    assert several.traces == 1
    for dtype in (pf.bfloat16, pf.float64, pf.int64):
        one = pf.jit(lambda t: (dist.all_reduce(t), t)[1])
        assert one(pf.ones(3, dtype=dtype)).tolist() == [size] * 3
        assert one(pf.zeros(0, dtype=dtype)).shape == (0,)
    assert pf.jit(lambda: (t := pf.ones(()), dist.all_reduce(t), t)[0])().item() == size


def check_processes_that_differ_learn_it_before_they_begin() -> None:
    rank = dist.get_rank()

    @pf.jit
    def added(x: pf.Tensor) -> pf.Tensor:
        dist.all_reduce(x)
        return x

    with pytest.raises(pf.CollectiveError, match=r"of \(2,\) float32 on rank 0 and .* of \(3,\) float32 on rank 1"):
        added(pf.ones(2 + min(rank, 1)))
    with pytest.raises(pf.CollectiveError, match=r"of \(2,\) float32 on rank 0 and .* of \(2,\) float64 on rank 1"):
        added(pf.ones(2, dtype=pf.float64 if rank == 1 else pf.float32))
    twice = pf.jit(lambda x: (dist.all_reduce(x), dist.all_reduce(x), x)[2])
    with pytest.raises(pf.CollectiveError, match=r"number 1 is missing on rank 0 and all_reduce .* on rank 1"):
        (twice if rank == 1 else added)(pf.ones(2))
    with pytest.raises(pf.CollectiveError, match=r"on rank 0 and .*all_reduce on rank 1"):
        (dist.all_reduce if rank == 1 else added)(pf.ones(2))
    assert added(pf.ones(2)).tolist() == [dist.get_world_size()] * 2  # the group is whole still


def check_divided_states_and_layers() -> None:
    """ZeRO 1, and parallel layers but for gathered outputs, in one jitted function."""
    model = DDP(_model(seed=dist.get_rank()), bucket_cap_mb=SMALL)
    step = _step(model, dist.ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, lr=1e-2), 0.1)
    losses = [_mean(step(*_part(batch))) for batch in _batches()]
    _same((losses, list(model.parameters())), alone(0.1))
    found = []
    for up, down in ((nn.Linear, nn.Linear), (dist.ColumnParallelLinear, dist.RowParallelLinear)):
        pf.manual_seed(0)
        layers = nn.Sequential(up(5, 8), nn.GELU(), down(8, 3))
        step = _step(layers, optim.AdamW(layers.parameters(), lr=1e-2))
        found.append([float(step(pf.tensor(x), pf.tensor(y))) for x, y in _batches()])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5)


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: pf.Tensor) -> pf.Tensor:
        return self.out(self.norm(x))


def check_buffers_accumulation_and_groups() -> None:
    """As eager steps: statistics of the first process, sums without communication, a group of one's own."""
    found = []
    for jitted in (False, True):
        pf.manual_seed(0)
        model = DDP(_Normed(), process_group=dist.new_group())
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def both(x: pf.Tensor, y: pf.Tensor, model: Any = model, optimizer: Any = optimizer) -> pf.Tensor:
            optimizer.zero_grad()
            with model.no_sync():
                (_loss(model, x, y) / 2).backward()
            loss = _loss(model, x * 2, y) / 2
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = pf.jit(both) if jitted else both
        losses = [_mean(step(*_part(batch))) for batch in _batches()]
        found.append((losses, [t.detach().numpy() for t in model.state_dict().values()]))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-5)
    for got, want in zip(found[1][1], found[0][1], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def check_gradients_of_a_jitted_model() -> None:
    """The forward pass alone is jitted; the backward pass outside of it averages too."""
    model = DDP(_model(seed=dist.get_rank()))
    jitted = pf.jit(model)
    optimizer, losses = optim.AdamW(model.parameters(), lr=1e-2), []
    for x, y in map(_part, _batches()):
        optimizer.zero_grad()
        loss = _loss(jitted, x, y)
        loss.backward()
        optimizer.step()
        losses.append(_mean(loss))
    _same((losses, list(model.parameters())), alone())


def check_what_a_jitted_step_refuses() -> None:
    model = DDP(_model(), find_unused_parameters=True)
    with pytest.raises(pf.TraceError, match="data_parallel_step"):
        pf.jit(lambda x, y: _loss(model, x, y))(*_part(_batches()[0]))
    kept: list[pf.Tensor] = []

    def escapes(x: pf.Tensor) -> pf.Tensor:
        t = pf.ones(2)
        dist.all_reduce(t)
        kept.append(t)
        return x

    pf.jit(escapes)(pf.ones(2))
    with pytest.raises(pf.TraceError, match="waits for a collective"):
        kept[0].numpy()
