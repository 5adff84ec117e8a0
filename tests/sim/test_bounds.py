"""Whatever buffer of a plan a kernel leaves, on a simulated GPU that is a fault.

The mistake is planted where memory is given: each buffer in turn is made too short for the last element, so that a
kernel which is right leaves it, as a wrong one would leave a buffer of the right size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import AMDDeviceFaultError
from pyflame.engine import gpu_layout as engine
from pyflame.engine.binding import Binding
from tests.sim.devices import own_gpus

TARGETS = ("gfx942", "gfx1100")
SHORT = 8  # bytes: what a partial result has in scratch


def ramp(*shape: int) -> pf.Tensor:
    return pf.tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7)


def assigned(x: pf.Tensor, rows: pf.Tensor) -> pf.Tensor:
    out = x * 2
    out[1:3] = rows
    return out


# What to compute, of which tensors, and how many buffers its plan has besides them: results, intermediates, scratch.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
    "elementwise": (lambda x, y: x * y + 1, ((5, 7), (5, 7)), 1),
    "matmul": (lambda x, y: pf.relu(x @ y), ((9, 33), (33, 17)), 1),
    "matmul in parts": (lambda x, y: x @ y, ((32, 8192), (8192, 32)), 2),
    "convolution": (lambda x, w: pf.relu(pf.conv1d(x, w, padding=3)), ((1, 3, 16), (4, 3, 4)), 1),
    "reduction": (lambda x: pf.softmax(x, -1), ((5, 77),), 1),
    "reduction of few long rows": (lambda x: x.sum(1), ((2, 200_000),), 2),
    "scatter": (lambda x, y: x.index_add(0, pf.tensor([2, 0, 2]), y), ((5, 7), (3, 7)), 1),
    "pool": (lambda x: pf.max_pool2d(x, 2), ((1, 2, 8, 8),), 1),
    "assign": (assigned, ((5, 7), (2, 7)), 1),
    "intermediate": (lambda x, y: (x @ y).cumsum(0) @ y, ((9, 9), (9, 9)), 3),
}


class Shortened(Binding):
    """Gives one of the buffers less than it asks for."""

    which = -1
    given: list[int]

    def __init__(self, plan: Any, allocate: Callable[[Sequence[int]], Any], *rest: Any, **more: Any) -> None:
        def short(sizes: Sequence[int]) -> Any:
            given, which = type(self).given, type(self).which - len(type(self).given)
            given.extend(sizes)
            return allocate([nbytes - SHORT * (n == which) for n, nbytes in enumerate(sizes)])

        super().__init__(plan, short, *rest, **more)


@pytest.mark.share(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_leaving_any_buffer_is_a_fault(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, shapes, buffers = PROGRAMS[name]
    monkeypatch.setattr(engine, "Binding", Shortened)
    for which in range(-1, buffers):
        with own_gpus(target) as (device,), pf.device(str(device.id)):
            monkeypatch.setattr(Shortened, "which", -1)
            monkeypatch.setattr(Shortened, "given", [], raising=False)
            sources = [ramp(*shape) for shape in shapes]
            pf.eval(*sources)
            Shortened.given.clear()
            monkeypatch.setattr(Shortened, "which", which)
            pf.eval(run(*sources))
            if which < 0:
                device.synchronize()
                assert len(Shortened.given) == buffers, Shortened.given
                continue
            with pytest.raises(AMDDeviceFaultError, match=r"expected a (write|read) of .* inside an allocation"):
                device.synchronize()


@pytest.mark.parametrize("jitted", [False, True])
def test_kernels_for_misaligned_memory_have_scratch_of_their_own(jitted: bool) -> None:
    """Such a product is cut along k where vectors would have done the whole of it; numbers are read behind that."""
    numbers = np.random.default_rng(2).standard_normal((4, 4097)).astype(np.float32)
    with own_gpus("gfx1100") as (device,), pf.device(str(device.id)):
        a, b = pf.tensor(numbers[:, 1:].copy()), pf.tensor(numbers.reshape(-1))[1 : 1 + 4096 * 4].reshape(4096, 4)
        pf.eval(a, b)
        want = a.numpy().astype(np.float64) @ b.numpy().astype(np.float64) * 3.5
        product = pf.jit(lambda a, b: a @ b * 3.5) if jitted else (lambda a, b: a @ b * 3.5)
        for _ in range(4):
            np.testing.assert_allclose(product(a, b).numpy(), want, rtol=1e-4, atol=1e-2)
