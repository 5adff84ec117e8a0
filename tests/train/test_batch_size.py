"""find_batch_size: what it finds runs under the same limit, the next size does not, and nothing else has changed."""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError
from pyflame.engine.devices import cpu
from pyflame.engine.evaluate import clear_plans
from pyflame.runtime.pool import HostPool
from pyflame.train import BatchSize, RandomState, Trainer, find_batch_size
from tests.train import runs

KIB = 1024
QUIET: dict[str, Any] = {"progress": False, "multiple_of": 32}


@pytest.fixture(autouse=True)
def empty_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pool without the tensors that other tests have left."""
    clear_plans()
    monkeypatch.setattr(cpu(), "pool", HostPool(exact=False))
    gc.collect()
    yield
    clear_plans()


def batch(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((count, 6), np.float32), np.zeros(count, np.int64)


def found(**options: Any) -> BatchSize:
    model, optimizer = runs.build()
    options = {"memory": 100 * KIB, **QUIET, **options}
    return find_batch_size(model, batch, loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer, **options)


def everything(*objects: Any) -> list[Any]:
    """State as plain values."""
    return [_plain(o.state_dict()) for o in objects] + [_plain(RandomState(host=True).state_dict())]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.numpy().tolist() if isinstance(value, pf.Tensor) else value


def train(count: int, result: BatchSize) -> None:
    """Real steps of a new model, with as much memory beside it as the probes had."""
    model, optimizer = runs.build()
    pool = cpu().pool
    gc.collect()
    pf.empty_cache("cpu")
    pool.limit = result.usable - result.base + pf.memory_allocated("cpu")
    try:
        data = [tuple(map(pf.tensor, batch(count)))]
        Trainer(model, optimizer, nn.CrossEntropyLoss(), train_data=data, max_steps=3, progress=False).fit()
    finally:
        pool.limit = None


@pytest.mark.slow
def test_what_it_finds_trains_and_a_little_more_does_not() -> None:
    result = found(memory=160 * KIB)
    train(result.batch, result)
    with pytest.raises(OutOfMemoryError):
        train(result.batch + result.batch // 2, result)
    assert 90 < result.batch < 400
    assert len(result.probes) > 4
    assert max(p.held for p in result.probes if p.held is not None) <= result.usable
    fits = {p.batch: p.fits for p in result.probes}
    assert fits[result.batch] and not fits[result.batch + 32]


@pytest.mark.slow(16)
def test_training_leaves_everything_as_it_was() -> None:
    model, optimizer = runs.build()
    scaler = optim.GradScaler(init_scale=64.0)
    data = tuple(map(pf.tensor, batch(4)))
    loss_fn = nn.CrossEntropyLoss()
    scaler.scale(loss_fn(model(data[0]), data[1])).backward()
    scaler.step(optimizer)
    scaler.update()
    gradients = [p.grad for p in model.parameters()]
    model[3].eval()
    before = everything(model, optimizer, scaler)
    options: dict[str, Any] = {"scaler": scaler, "clip_norm": 1.0, "largest": 32, **QUIET}
    for effective in (None, 32):
        find_batch_size(model, batch, loss_fn=loss_fn, optimizer=optimizer, effective=effective, **options)
        assert everything(model, optimizer, scaler) == before
    assert all(a is b.grad for a, b in zip(gradients, model.parameters(), strict=True))
    assert [m.training for m in model.modules()] == [True, True, True, True, False, True]


@pytest.mark.slow
def test_a_new_optimiser_is_new_afterwards() -> None:
    model, optimizer = runs.build()
    find_batch_size(model, batch, loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer, largest=32, **QUIET)
    assert not optimizer.stepped
    assert optimizer.state_dict()["state"] == {}


class Plain(optim.Optimizer):
    """An optimiser with a step of its own, as PyTorch's users write them: it knows no `skip`."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with pf.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["count"] = self.state[p].get("count", 0) + 1
                    p -= 0.1 * p.grad


@pytest.mark.slow(16)
def test_an_optimiser_with_a_step_of_its_own_is_put_back() -> None:
    model, _ = runs.build()
    optimizer = Plain(model.parameters())
    before = everything(model, optimizer)
    result = find_batch_size(
        model, batch, loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer, largest=32, jit=False, **QUIET
    )
    assert result.batch == 32
    assert everything(model, optimizer) == before


@pytest.mark.slow(16)
def test_a_step_function_and_what_it_changes() -> None:
    model, optimizer = runs.build()
    loss_fn = nn.CrossEntropyLoss()

    def step(given: Any) -> pf.Tensor:
        optimizer.zero_grad()
        loss = loss_fn(model(given[0]), given[1])
        loss.backward()
        optimizer.step()
        return loss

    before = everything(model, optimizer)
    jitted = pf.jit(step)
    for function in (step, jitted):
        options: dict[str, Any] = {"memory": 60 * KIB, "largest": 96, "device": "cpu", **QUIET, "multiple_of": 32}
        result = find_batch_size(function, batch, keep=(model, optimizer), **options)
        assert 32 <= result.batch <= 96
        assert everything(model, optimizer) == before
    assert jitted.traces == 0


@pytest.mark.slow
def test_inference_takes_an_example_and_multiples() -> None:
    model, _ = runs.build()
    before = everything(model)
    result = find_batch_size(model, batch(3)[0], memory=100 * KIB, multiple_of=8, progress=False)
    assert result.batch % 8 == 0
    assert result.batch > found().batch  # no gradients, no activations
    assert result.accumulate == 1
    assert 24 <= result.bytes_per_sample < 500
    assert everything(model) == before
    assert model.training


@pytest.mark.slow(16)
def test_effective_batches_are_divided() -> None:
    result = found(memory=60 * KIB, effective=256)
    assert result.batch * result.accumulate == result.effective == 256
    assert result.accumulate > 1
    assert found(effective=24, multiple_of=3).batch == 24
    assert int(found(effective=12, largest=6, multiple_of=2)) == 6


@pytest.mark.slow
def test_it_is_deterministic_and_gives_memory_back() -> None:
    first = found()
    held = pf.memory_reserved("cpu")
    second = found()
    assert [(p.batch, p.fits, p.estimate) for p in first.probes] == [
        (p.batch, p.fits, p.estimate) for p in second.probes
    ]
    assert pf.memory_reserved("cpu") <= held + 64 * KIB


@pytest.mark.slow
def test_estimates_are_near_and_above_the_limit_nothing_runs() -> None:
    result = found(memory=100 * KIB)
    for probe in result.probes:
        if probe.peak is not None and probe.estimate is not None:
            assert probe.estimate == pytest.approx(probe.peak, rel=0.35)
    ran: list[int] = []

    def step(given: pf.Tensor) -> pf.Tensor:
        ran.append(given.shape[0])
        return given.sum()

    result = find_batch_size(
        step, lambda n: np.zeros((n, 1024), np.float32), memory=1024 * KIB, margin=0.0, device="cpu", **QUIET
    )
    assert 192 <= result.batch < 256  # of 4 KiB each
    left_out = [p.batch for p in result.probes if "estimate" in p.why]
    assert left_out
    assert not set(left_out) & set(ran)


@pytest.mark.slow
def test_out_of_memory_at_the_smallest_batch() -> None:
    with pytest.raises(OutOfMemoryError, match=r"expected memory for a batch of 32 on cpu but .* do not do"):
        found(memory=8 * KIB)
    assert cpu().pool.limit is None


@pytest.mark.slow
def test_a_fault_of_the_function_is_raised_and_state_put_back() -> None:
    model, optimizer = runs.build()
    before = everything(model, optimizer)
    with pytest.raises(ZeroDivisionError):
        find_batch_size(lambda given: 1 // 0, batch, keep=(model, optimizer), **QUIET)
    assert everything(model, optimizer) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": 1.0}, "margin"),
        ({"multiple_of": 0}, "multiple_of"),
        ({"effective": 7, "multiple_of": 2}, "divides 7"),
        ({"largest": 1}, "1 to 1 that is a multiple of 32"),
        ({"memory": -5}, "memory of at least 1 byte"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        found(**options)


@pytest.mark.slow
def test_bad_types() -> None:
    model, optimizer = runs.build()
    with pytest.raises(ArgumentTypeError, match="a module beside an optimizer"):
        find_batch_size(lambda b: b, batch, optimizer=optimizer)
    with pytest.raises(ArgumentTypeError, match="state_dict"):
        find_batch_size(lambda b: b, batch, keep=(3,))
    with pytest.raises(ArgumentTypeError, match="an example batch"):
        find_batch_size(model, [1, 2])


@pytest.mark.slow
def test_it_shows_its_probes() -> None:
    out = io.StringIO()
    result = found(progress=Console(file=out, width=120), largest=64)
    assert out.getvalue().splitlines()[0].startswith("batch 32 fits: ")
    table = str(result).splitlines()
    assert table[0].split() == ["batch", "peak", "held", "estimate", "seconds"]
    assert table[1].split()[0] == "32"
    assert "batch 64 on cpu" in table[-1]
    terminal = io.StringIO()
    found(progress=Console(file=terminal, width=120, force_terminal=True), largest=64)
    assert "batch size" in terminal.getvalue()


@pytest.mark.slow(16)
def test_a_trainer_finds_its_batch_and_a_resumed_run_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(steps: int, room: int) -> Trainer:
        monkeypatch.setattr("pyflame.train.batch_size._memory", lambda device, wanted: room)
        trainer = runs.trainer(
            batch_size="auto", effective_batch=32, max_steps=steps, checkpoint=tmp_path, checkpoint_every=1
        )
        trainer.fit()
        return trainer

    first = run(2, 32 * KIB)
    assert first.accumulate > 1
    assert first.train_data.batch_size * first.accumulate == 32
    resumed = run(4, 1 << 30)
    assert (resumed.train_data.batch_size, resumed.accumulate) == (first.train_data.batch_size, first.accumulate)
    assert resumed.step == 4

    whole = runs.trainer(train_data=runs.loader(first.train_data.batch_size), accumulate=first.accumulate, max_steps=4)
    whole.fit()
    for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.slow
def test_a_trainer_without_effective_takes_what_fits() -> None:
    trainer = runs.trainer(batch_size="auto", max_steps=1)
    trainer.fit()
    assert trainer.train_data.batch_size == len(runs.X)
    for options, words in (
        ({"batch_size": 8}, "batch_size='auto'"),
        ({"effective_batch": 8}, "batch_size='auto'"),
        ({"batch_size": "auto", "accumulate": 2}, "effective_batch"),
    ):
        with pytest.raises(ArgumentError, match=words):
            runs.trainer(**options)
    with pytest.raises(ArgumentTypeError, match="DataLoader"):
        runs.trainer(batch_size="auto", train_data=[batch(2)])


@pytest.mark.slow(16)
def test_on_a_simulated_gpu() -> None:
    """A pool that asks the driver for each block, graphs that are captured, and a device that really is full."""
    with pf.device("sim:gfx942"):
        model = nn.Linear(64, 64)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = everything(model, optimizer)
    with pf.device("sim:gfx942"):
        result = find_batch_size(
            model, lambda n: (np.ones((n, 64), np.float32), np.ones((n, 64), np.float32)), loss_fn=nn.MSELoss(),
            optimizer=optimizer, memory=pf.memory_allocated("sim:gfx942") + 115 * KIB, margin=0.0, multiple_of=16,
            largest=128, progress=False,
        )  # fmt: skip
    assert result.device.startswith("sim:gfx942")
    assert 16 <= result.batch < 128
    assert everything(model, optimizer) == before
    assert pf.memory_allocated("sim:gfx942") <= result.base + KIB
