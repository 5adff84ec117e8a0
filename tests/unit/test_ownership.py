"""A buffer is overwritten in place when nobody else can see it, and never otherwise: on every Python."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine import ownership
from pyflame.tensor import Tensor

SIZE = 1000


def assigned(x: Tensor) -> None:
    x[2] = 5.0
    pf.eval(x)


class Jitted:
    """A jitted function whose plan is there: it adds one to a tensor that it holds."""

    def __init__(self) -> None:
        self.x = pf.zeros(SIZE)
        self.step = pf.jit(self._step)
        self(self.x)

    def _step(self) -> None:
        self.x += 1.0

    def __call__(self, x: Tensor) -> None:
        self.step()
        pf.eval(x)


@pytest.fixture(params=["assigned", "jitted"])
def written(request: pytest.FixtureRequest) -> tuple[Tensor, Callable[[Tensor], None]]:
    """A tensor whose memory is its own, and what writes to it."""
    if request.param == "jitted":
        write = Jitted()
        return write.x, write
    x = pf.tensor(np.zeros(SIZE, np.float32)) + 0.0
    pf.eval(x)
    return x, assigned


def address(x: Tensor) -> int:
    return int(x._node.data.address)


@pytest.mark.skipif(not ownership.reliable(), reason="without the GIL nothing is overwritten")
def test_memory_is_reused_where_nobody_else_sees_it(written: tuple[Tensor, Callable[[Tensor], None]]) -> None:
    x, write = written
    before = address(x)
    for _ in range(3):
        write(x)
        assert address(x) == before


def closure(node: Any) -> Callable[[], Any]:
    return lambda: node


HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda x: Tensor(x._node),
    "lazy node": lambda x: x * 1.0,
    "lazy view": lambda x: x._snapshot()[1:],
    "numpy": lambda x: x.numpy(),
    "view of numpy": lambda x: x.numpy()[1:].reshape(-1, 3),
    "dlpack": np.from_dlpack,
    "capsule": lambda x: x.__dlpack__(),
    "closure": lambda x: closure(x._node),
    "list of nodes": lambda x: [x._node],
    "list of values": lambda x: [x._node.data],
    "list of memory": lambda x: [x._node.data.storage],
    "generator": lambda x: started(x._node),
}


def started(node: Any) -> Iterator[Any]:
    def keeps(node: Any) -> Iterator[Any]:
        yield node
        yield node

    found = keeps(node)
    next(found)
    return found


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_memory_that_somebody_holds_stays_as_it_is(
    written: tuple[Tensor, Callable[[Tensor], None]], hold: Callable[[Tensor], Any]
) -> None:
    x, write = written
    before, old = address(x), x.numpy().copy()
    holder = hold(x)
    write(x)
    assert address(x) != before
    assert not np.array_equal(x.numpy(), old)
    if isinstance(holder, (Tensor, np.ndarray)):
        seen = holder.numpy() if isinstance(holder, Tensor) else holder
        np.testing.assert_array_equal(seen.ravel(), old[-seen.size :])


@pytest.mark.skipif(not ownership.reliable(), reason="without the GIL nothing is overwritten")
@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_memory_is_reused_again_when_it_is_let_go(
    written: tuple[Tensor, Callable[[Tensor], None]], hold: Callable[[Tensor], Any]
) -> None:
    x, write = written
    holder = hold(x)
    before = address(x)
    del holder
    write(x)
    assert address(x) == before


@pytest.fixture
def anew() -> Iterator[None]:
    """The interpreter is tried out anew, in the test and behind it."""
    ownership.reliable.cache_clear()
    yield
    ownership.reliable.cache_clear()


def check_that_writes_copy() -> None:
    x = pf.zeros(SIZE) + 0.0
    pf.eval(x)
    before = x._node.data  # held below, so that its address is not given out again
    assigned(x)
    assert address(x) != before.address and x[2].item() == 5.0


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("count", [lambda thing: 2, lambda thing: 1_000_000, lambda thing: id(thing)])
def test_counts_that_cannot_be_right_are_not_trusted(monkeypatch: pytest.MonkeyPatch, count: Any) -> None:
    monkeypatch.setattr(sys, "getrefcount", count)
    with pytest.warns(RuntimeWarning, match="every assignment copies"):
        assert not ownership.reliable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        check_that_writes_copy()


@pytest.mark.usefixtures("anew")
def test_nothing_is_overwritten_without_the_gil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_has_gil", lambda: False)
    assert not ownership.reliable()
    check_that_writes_copy()


def test_counts_are_trusted_here() -> None:
    assert ownership.reliable() == (sys.version_info < (3, 13) or sys._is_gil_enabled())
