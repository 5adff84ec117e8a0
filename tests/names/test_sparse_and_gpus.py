"""torch.sparse's functions against torch, and torch.cuda's measures over a monitor of its own."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.cuda import measures
from pyflame.doctor.monitor import Gpu, Host, Process, Sample

PLACES = [[0, 2, 2, 0, 1, 2], [1, 3, 0, 1, 2, 1]]  # one position twice
FLAT = [1.0, -2.0, 3.0, 0.5, 4.0, 2.0]
HYBRID = np.random.default_rng(0).standard_normal((6, 2, 3))


def made(lib: Any, hybrid: bool) -> tuple[Any, Any]:
    values = lib.tensor(HYBRID if hybrid else np.array(FLAT), requires_grad=True)
    return lib.sparse_coo_tensor(lib.tensor(PLACES), values, (3, 4, 2, 3) if hybrid else (3, 4)), values


def compared(call: Any, hybrid: bool) -> None:
    """Values, shapes and gradients."""
    found = []
    for lib in (pf, torch):
        x, values = made(lib, hybrid)
        out = call(lib, x)
        sparse = out.is_sparse
        weight = np.random.default_rng(1).standard_normal(tuple(out.shape))
        dense = out.to_dense() if sparse else out
        (dense * lib.tensor(weight)).sum().backward()
        places = out.coalesce().indices().tolist() if sparse else None
        found.append((places, dense.detach().numpy(), values.grad.numpy()))
    assert found[0][0] == found[1][0]
    for a, b in zip(found[0][1:], found[1][1:], strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dim", [None, 0, 1, -1, (0, 1)])
def test_sum(dim: Any) -> None:
    compared(lambda lib, x: lib.sparse.sum(x) if dim is None else lib.sparse.sum(x, dim), False)


@pytest.mark.parametrize("dim", [0, 2, (1, 3), (0, 1), (2, 3), (0, 1, 2), (0, 1, 2, 3)])
def test_sum_with_dense_axes(dim: Any) -> None:
    compared(lambda lib, x: lib.sparse.sum(x, dim), True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(
    "dim", [0, 1, 2, 3]
)  # torch's gradient for a negative one is wrong: its rows do not add up to 0
def test_softmax(name: str, dim: int) -> None:
    compared(lambda lib, x: getattr(lib.sparse, name)(x, dim), True)
    negative = [getattr(pf.sparse, name)(made(pf, True)[0], d).to_dense().tolist() for d in (dim, dim - 4)]
    assert negative[0] == negative[1]
    if dim < 2:
        compared(lambda lib, x: getattr(lib.sparse, name)(x * 300.0, dim), False)
        line = [lib.sparse_coo_tensor([[0, 3]], [1.0, 2.0], (5,)) for lib in (pf, torch)]
        got, want = (
            getattr(lib.sparse, name)(x, 0).coalesce().values() for lib, x in zip((pf, torch), line, strict=True)
        )
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)


def test_addmm_dtypes_and_errors() -> None:
    def call(lib: Any, x: Any) -> Any:
        mat, right = lib.tensor(np.arange(6.0).reshape(3, 2)), lib.tensor(np.arange(8.0).reshape(4, 2))
        return lib.sparse.addmm(mat, x, right, beta=2.0, alpha=3.0)

    compared(call, False)
    x, _ = made(pf, False)
    assert pf.sparse.sum(x, 0, dtype=pf.float32).dtype is pf.float32
    assert pf.sparse.softmax(x, 0, dtype=pf.float32).dtype is pf.float32
    empty = pf.sparse_coo_tensor(pf.zeros(2, 0, dtype=pf.int64), pf.zeros(0), (2, 3))
    assert pf.sparse.softmax(empty, 1).to_dense().tolist() == [[0.0] * 3] * 2
    with pytest.raises(pf.ShapeError, match=r"sparse\.sum"):
        pf.sparse.sum(x, 5)
    with pytest.raises(TypeError, match=r"\[sparse.softmax\] expected a sparse tensor but got Tensor"):
        pf.sparse.softmax(pf.ones(2), 0)  # type: ignore[arg-type]


# --- GPUs -------------------------------------------------------------------------------------------------------------


class Monitor:
    """A monitor of two GPUs; the driver tells little of the second one."""

    notes = ""

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def sample(self) -> Sample:
        first = Gpu("0000:03:00.0", "a", use=41.6, memory_used=3 << 20, power=70.25, clock=1500.4, temperature=55.0)
        busy = Process("0000:03:00.0", 77, "python", memory=5 << 20)
        return Sample(0.0, Host(), (first, Gpu("0000:04:00.0", "b")), (busy,))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    buses = ["0000:03:00.0", "0000:04:00.0", "0000:05:00.0"]
    gpus = types.SimpleNamespace(
        get_device_properties=lambda device: types.SimpleNamespace(pci_bus_id=buses[device or 0].upper()),
        id_of=lambda op, device: types.SimpleNamespace(index=device or 0),
    )
    monkeypatch.setattr(measures, "_gpus", gpus)
    monkeypatch.setattr(measures, "Sampler", Monitor)


def test_measures(two_gpus: None) -> None:
    assert (pf.cuda.utilization(), pf.cuda.temperature(0), pf.cuda.power_draw()) == (42, 55, 70250)
    assert (pf.cuda.clock_rate(), pf.cuda.device_memory_used()) == (1500, 3 << 20)
    assert pf.cuda.list_gpu_processes() == "GPU:0\nprocess         77 uses        5.000 MB GPU memory"
    assert pf.cuda.list_gpu_processes(1) == "GPU:1\nno processes are running"
    with pytest.raises(pf.NotAvailableError, match=r"\[utilization\] expected the driver to tell use"):
        pf.cuda.utilization(1)
    with pytest.raises(pf.NotAvailableError, match=r"expected the GPU at 0000:05:00.0"):
        pf.cuda.temperature(2)


def test_small_names_of_cuda() -> None:
    with pf.cuda.stream(None), pf.cuda.StreamContext(None), pf.cuda.device_of(pf.ones(1)):
        assert not pf.cuda.is_current_stream_capturing()
    with pf.accelerator.device_index(None):
        pass
    if not pf.cuda.is_available():
        assert pf.cuda.memory_cached() == pf.cuda.max_memory_cached() == 0
        for call in (pf.cuda.utilization, pf.accelerator.get_memory_info):
            with pytest.raises(pf.DeviceError):
                call()
