"""Every op of the catalogue, forward and gradient, as machine code for gfx942 and gfx1100; some on their relatives.

Compared with the NumPy references in float64. Of each op both targets run the first sample, and each another one: they
share the generator of kernels and differ in wave size and instructions. Blocks run side by side, and caches stay stale
as long as they may (docs/simulator.md, modes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import lru_cache

import pytest

import pyflame as pf
from pyflame.doctor.samples import build, exact
from pyflame.ir import OPS
from pyflame.runtime.sim.checks import SIMULATED
from tests.oracle import assert_close
from tests.sim.devices import KERNEL_MODES, own_gpus

TARGETS = ("gfx942", "gfx1100")
RELATIVES = tuple(t for t in SIMULATED if t not in TARGETS)
SAMPLED = [op.name for op in OPS.values() if op.samples is not None]


@pytest.fixture(scope="module")
def gpus() -> Iterator[Callable[[str], str]]:
    """The name of a target's GPU with all modes that are about kernels."""
    with ExitStack() as stack:
        yield lru_cache(lambda target: str(stack.enter_context(own_gpus(target, modes=KERNEL_MODES))[0].id))


def check(name: str, device: str, numbers: tuple[int, ...]) -> None:
    op = OPS[name]
    chosen = [(n, s) for n, s in enumerate(op.samples()) if n in numbers]
    with pf.device("cpu"):
        arrays = [a for n, s in chosen for a in exact(op, n, s)[0]]
    with pf.device(device):
        made = [pair for n, s in chosen for pair in build(op, n, s, pf.float32)]
        pf.eval(*[t for _, t in made])  # in one evaluation: the kernels compile together
    for (what, ours), array in zip(made, arrays, strict=True):
        assert_close(ours, array, pf.float32, f"{name}, {what}", 30.0 if "gradient" in what else 5.0)


@pytest.mark.share(16)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAMPLED)
def test_op(name: str, target: str, gpus: Callable[[str], str]) -> None:
    count = len(list(OPS[name].samples()))
    check(name, gpus(target), (0, 1 + (SAMPLED.index(name) + TARGETS.index(target)) % max(1, count - 1)))


@pytest.mark.share(64)
@pytest.mark.parametrize("target", RELATIVES)
@pytest.mark.parametrize("name", SAMPLED)
def test_op_on_a_relative(name: str, target: str, gpus: Callable[[str], str]) -> None:
    check(name, gpus(target), (0,))
