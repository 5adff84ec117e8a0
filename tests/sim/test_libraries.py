"""hipBLASLt's binding on simulated GPUs, in their modes: work of one of its handles must be in order.

A handle owns the buffer by which blocks of a split product wait for each other: two products at once never end. The
library is NumPy's (tests/libs/numpy_lt.py); what gives it work, and when, is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.libraries import decide as libraries
from pyflame.engine.libraries import tuner
from pyflame.engine.libraries.calls import LtProducts
from pyflame.libs.gemm import GemmSpec
from pyflame.libs.rocm.hipblaslt import HipBlasLt
from pyflame.runtime.sim.hip.types import hipStreamNonBlocking
from pyflame.runtime.sim.hip.work import Scheduler
from tests.libs.bench import prefer
from tests.libs.hosts import SimLt
from tests.libs.numpy_lt import BLAS, HIP
from tests.libs.ways import every_way
from tests.sim.devices import KERNEL_MODES, own_gpus
from tests.sim.machines import Host

SEEDS = range(12)
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 32, 32)).astype(np.float32)


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    """hipBLASLt's module; the GPU that products run on by it is the default device."""
    with own_gpus("gfx942", modes=KERNEL_MODES) as (made,):
        module = SimLt(made.driver._call.module)
        found = libraries.Libraries(made)
        found._openers = {"matmul": {"hipBLASLt": lambda device: LtProducts(HipBlasLt(module, BLAS, HIP))}}
        monkeypatch.setitem(libraries._libraries, made, found)
        monkeypatch.setattr(tuner, "_shared", [tuner.Tuner(tmp_path / "tuning.json")])
        prefer(monkeypatch, library=True)
        with pf.device(str(made.id)):
            yield module


def share_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HipBlasLt, "_handle_of", lambda self, stream: self._handle)


def in_two_streams(lt: Any, between: bool = False) -> None:
    """A B and B A by the binding alone: streams of ours wait for each other where their blocks begin and end."""
    host, spec = Host(lt.hip), GemmSpec(32, 32, 32)
    a, b, x, y = (host.hipMalloc(A.nbytes) for _ in range(4))
    for at, values in ((a, A), (b, B)):
        host.hipMemcpyHtoD(at, values, A.nbytes)
    first, second = (host.hipStreamCreateWithFlags(hipStreamNonBlocking) for _ in range(2))
    binding = HipBlasLt(lt, BLAS, HIP)
    binding.matmul(spec, a, b, x, 0, first)
    if between:
        event = host.hipEventCreate()
        host.hipEventRecord(event, first)
        host.hipStreamWaitEvent(second, event, 0)
    binding.matmul(spec, b, a, y, 0, second)
    host.hipDeviceSynchronize()
    for at, want in ((x, A @ B), (y, B @ A)):
        got = np.empty_like(A)
        host.hipMemcpyDtoH(got, at, A.nbytes)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_every_way_of_a_product(lt: Any) -> None:
    names = []
    for name, got in every_way(pf.tensor(A) @ pf.tensor(B)):
        np.testing.assert_allclose(got, A @ B, rtol=1e-5, atol=1e-5)
        names.append(name)
    assert "hipBLASLt" in names


def test_streams_have_handles_of_their_own(lt: Any) -> None:
    in_two_streams(lt)
    assert len(lt.streams) == 3


def test_tensors_in_three_streams(lt: Any) -> None:
    a, b = pf.tensor(A), pf.tensor(B)
    found, streams = [], [pf.Stream(), pf.Stream(), pf.Stream()]
    for stream, left, right in zip(streams, (a, b, a), (b, a, a), strict=True):
        with stream:
            found.append(left @ right)
            pf.eval(found[-1])
    for got, want in zip(found, (A @ B, B @ A, A @ A), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-5)
    assert len(lt.streams) >= 3


def test_replays(lt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a graph are in order, and so are replays in one stream: one handle is enough for them."""
    share_a_handle(monkeypatch)
    step = pf.jit(lambda a, b: (a @ b) @ b)
    for _ in range(4):
        got = step(pf.tensor(A), pf.tensor(B))
    np.testing.assert_allclose(got.numpy(), A @ B @ B, rtol=1e-4, atol=1e-4)
    assert len(lt.ran) >= 2 and len(lt.streams) == 1


def test_one_handle_for_two_streams_is_a_fault(lt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    share_a_handle(monkeypatch)
    with pytest.raises(AssertionError, match="in no order with the last"):
        in_two_streams(lt)


def test_an_event_between_them_is_an_order(lt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    share_a_handle(monkeypatch)
    in_two_streams(lt, between=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_scheduler_calls_an_order(seed: int) -> None:
    """Behind the last use, however long the way, or behind the host's wait for it; that it is done is not enough."""

    def failed(how: str) -> bool:
        scheduler = Scheduler(seed)
        first = scheduler.add(0, "first", lambda: None, handle=7)
        other = scheduler.add(0, "other", lambda: None, [first])
        if how == "host":
            scheduler.finish([other])
        elif how == "device":
            scheduler.finish(scheduler.of(0))
            scheduler.waited(0)
        elif how == "done":
            scheduler._step({first.number: first})
        second = scheduler.add(0, "second", lambda: None, [other] if how == "work" else [], handle=7)
        scheduler.finish([second])
        return second.failed is not None

    found = {how: failed(how) for how in ("work", "host", "device", "done", "none")}
    assert found == {"work": False, "host": False, "device": False, "done": True, "none": True}
    scheduler = Scheduler(seed)
    works = [scheduler.add(0, "one", lambda: None, handle=h) for h in (1, 2)]
    scheduler.finish(works)
    assert not any(w.failed for w in works)
