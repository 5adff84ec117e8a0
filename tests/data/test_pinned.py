"""`pin_memory=True`: batches in memory that a GPU reads by itself, over GPUs that fakes and the emulation stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import CPU
from pyflame.data import DataLoader, Dataset, IterableDataset, TensorDataset
from pyflame.data.memory import host_array, host_leaf
from pyflame.data.pinning import pinning
from pyflame.engine.devices import get_device
from pyflame.tensor import Tensor
from tests.data.datasets import Rows
from tests.emulated import EmulatedDriver
from tests.runtime.fake import FakeDriver
from tests.runtime.machine import machine, vendor

X = np.arange(48, dtype=np.float32).reshape(12, 4)


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    """A GPU that does what it is given as late as it may, as the current device."""
    found = FakeDriver(kind="rocm")
    with machine(rocm=vendor("rocm", found)):
        pf.set_device("rocm:0")
        yield found


def gpu() -> Any:
    return get_device(pf.device("rocm:0").id)


def address(tensor: Tensor) -> int:
    leaf = host_leaf(tensor)
    assert leaf is not None
    return int(leaf.data.address)


def is_pinned(tensor: Tensor) -> bool:
    return bool(gpu().is_pinned(address(tensor), tensor.nbytes))


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Example:
    x: Any
    name: str


class Numbers(Dataset[Any]):
    """Items of many kinds."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        row = X[index]
        return {"array": row, "tensor": pf.from_numpy(row), "int": index, "float": index / 2, "text": "a", "flag": True}


class Count(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(X)


def own(items: list[Any]) -> Pair:
    return Pair(Example(pf.from_numpy(np.stack(items)), "mine"), [np.ones(3), None])


def leaves(batch: Any) -> list[Tensor]:
    if isinstance(batch, Tensor):
        return [batch]
    if isinstance(batch, dict):
        return [leaf for value in batch.values() for leaf in leaves(value)]
    if isinstance(batch, Example):
        return leaves(batch.x)
    return [leaf for value in batch for leaf in leaves(value)] if isinstance(batch, (list, tuple)) else []


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(TensorDataset(X, np.arange(12)), 4, shuffle=True, pin_memory=True),
        lambda: DataLoader(TensorDataset(X, np.arange(12)), 4, pin_memory=True),  # neighbours: views of the dataset
        lambda: DataLoader(Numbers(), 2, pin_memory=True),
        lambda: DataLoader(Numbers(), 2, pin_memory=True, prefetch_factor=2),
        lambda: DataLoader(Numbers(), None, pin_memory=True),
        lambda: DataLoader(Count(), 3, pin_memory=True),
        lambda: DataLoader(Rows(8, 2000), 4, num_workers=1, pin_memory=True),
        lambda: DataLoader(list(X), 3, collate_fn=own, pin_memory=True),
    ],
    ids=["shuffled", "neighbours", "kinds", "thread", "unbatched", "stream", "worker", "collate_fn"],
)
def test_all_tensors_of_a_batch_are_pinned(driver: FakeDriver, make: Callable[[], DataLoader]) -> None:
    batches = list(make())
    found = [leaf for batch in batches for leaf in leaves(batch)]
    assert found and all(map(is_pinned, found))
    assert driver.calls["copy_h2d"] == 0  # nothing goes to the GPU before it is used
    with pf.device("cpu"):
        plain = make()
        plain.pin_memory = False
        if not plain._own_sampler:  # the same order
            for ours, theirs in zip(batches, plain, strict=True):
                for a, b in zip(leaves(ours), leaves(theirs), strict=True):
                    np.testing.assert_array_equal(host_array(a), host_array(b))
                assert type(ours) is type(theirs)


def test_without_it_nothing_is_pinned(driver: FakeDriver) -> None:
    assert not any(is_pinned(leaf) for batch in DataLoader(Numbers(), 2) for leaf in leaves(batch))
    assert driver.calls["host_alloc"] == 0


def test_on_the_cpu_it_changes_nothing() -> None:
    with pf.device("cpu"):
        assert pinning() is None
        (x, _), *_ = DataLoader(TensorDataset(X, np.arange(12)), 12, pin_memory=True)
    assert x._node.meta.device is CPU and np.shares_memory(x.numpy(), X)


def test_what_cannot_or_need_not_be_pinned_is_left(driver: FakeDriver) -> None:
    pinned = pinning()
    assert pinned is not None
    committed, computed = pf.ones(3, device="cpu"), pf.ones(3) + 1
    empty, trained = pf.from_numpy(np.zeros((0, 3))), pf.tensor([1.0], requires_grad=True)
    there = pinned.pin(pf.from_numpy(X))
    batch = [committed, computed, empty, trained, there, "text", None, 3]
    assert pinned.pin(batch) is batch
    half = pinned.pin(pf.from_numpy(np.arange(5).astype(pf.bfloat16.numpy)))
    assert half.dtype is pf.bfloat16 and is_pinned(half)
    assert is_pinned(pinned.pin(pf.from_numpy(X[:, ::2])))  # made dense on the way


def test_copies_run_beside_the_work(driver: FakeDriver) -> None:
    """No host wait, straight from the batch's memory, on a stream of its own that the device's stream waits for."""
    (x, _), *_ = DataLoader(TensorDataset(X, np.arange(12)), 6, pin_memory=True)
    main = gpu().main.handle
    ran: list[str] = []
    driver._queue(main, lambda: not ran.append("work given before"))
    names = ("host_alloc", "event_synchronize", "stream_synchronize", "synchronize")
    before = [driver.calls[name] for name in names]
    pf.eval(x)
    (copies,) = [s for s, queue in driver.streams.items() if queue and s != main]
    assert driver.calls["copy_h2d"] == 1
    assert [driver.calls[name] for name in names] == before  # no piece in between, and nobody waited
    block = x._node.data.storage
    assert block.stream == copies
    driver.run(copies)  # the copy does not wait for what the device is busy with
    assert not ran and not driver.streams[copies]
    copied = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 24).from_address(block.address))
    np.testing.assert_array_equal(copied, X[:6].ravel())
    np.testing.assert_array_equal(x.numpy(), X[:6])
    assert ran


def test_the_device_waits_for_the_copy(driver: FakeDriver) -> None:
    (x, _), *_ = DataLoader(TensorDataset(X, np.arange(12)), 6, pin_memory=True)
    pf.eval(x)
    seen: list[float] = []
    block = x._node.data.storage
    word = np.ctypeslib.ctypes.c_float.from_address(block.address + 4)
    driver._queue(gpu().main.handle, lambda: not seen.append(word.value))
    driver.run(gpu().main.handle)  # nobody ran the copying stream: it is waited for
    assert seen == [1.0]


def test_memory_comes_back_when_the_copy_is_done(driver: FakeDriver) -> None:
    batches = iter(DataLoader(TensorDataset(X, np.arange(12)), 3, shuffle=True, seed=0, pin_memory=True))
    x, y = next(batches)
    first = {address(x), address(y)}
    pf.eval(x, y)
    want = x._node.data.storage.address
    del x, y  # the copies are still to come
    x, y = next(batches)
    second = {address(x), address(y)}
    assert not first & second
    pf.eval(x, y)
    assert x._node.data.storage.address != want  # nor is the GPU's memory used again: its stream has not come to it
    del x, y
    pf.synchronize()
    x, y = next(batches)
    third = {address(x), address(y)}
    assert third <= first | second
    del x, y  # never used: nothing to wait for
    x, y = next(batches)
    assert {address(x), address(y)} <= first | second
    assert driver.calls["host_alloc"] == 4


def test_on_the_simulated_gpu() -> None:
    """Its streams run in any order that they may: a copy that nobody waited for would show."""
    with pf.device("sim:gfx942"):
        data = TensorDataset(np.repeat(np.arange(40.0), 50).reshape(40, 50), np.arange(40))
        for x, y in DataLoader(data, 8, shuffle=True, seed=1, pin_memory=True):
            pf.eval(x, y)
            np.testing.assert_array_equal(x.numpy(), np.repeat(y.numpy(), 50).reshape(8, 50))
        assert get_device(pf.device("sim:gfx942").id).pinned.stats.acquired >= 10


@pytest.mark.slow
def test_training_on_pinned_batches_learns_the_same() -> None:
    def losses(pin: bool) -> list[float]:
        pf.manual_seed(0)
        model = pf.nn.Linear(4, 1)
        optimizer = pf.optim.SGD(model.parameters(), lr=1e-3)
        out = []
        for x, y in DataLoader(TensorDataset(X / 48, X.sum(1, keepdims=True) / 48), 4, pin_memory=pin):
            loss = pf.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            out.append(loss.item())
        return out

    with machine(rocm=vendor("rocm", EmulatedDriver())):
        pf.set_device("rocm:0")
        ours = losses(True)
        assert gpu().pinned.stats.acquired > 6
    np.testing.assert_allclose(ours, losses(False), rtol=1e-5)
