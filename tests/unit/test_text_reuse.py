"""Kernel text found again for other extents is the text that would be written, with the same arguments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import pyflame as pf
from pyflame import Tensor
from pyflame.codegen import c, gpu, reuse
from pyflame.core.targets import TARGETS
from pyflame.ir.kernel import Kernel, Source
from tests.plans import plan_of

# On both sides of what the text depends on: short loops, tiles, chunks, rows that are kept, directions of memory.
SHAPES = [(2, 3), (3, 4), (5, 7), (1, 9), (9, 1), (64, 65), (7, 70_000), (3, 80_000), (70_000, 2), (90_000, 3)]


def _programs(rows: int, columns: int) -> Iterator[Tensor]:
    x = pf.tensor(np.ones((rows, columns), np.float32))
    at = pf.tensor(np.zeros(rows, np.int64))
    yield pf.softmax(x * 2.0, axis=-1)
    yield pf.exp(x - x.mean(axis=0)) + pf.arange(columns)
    yield (x * x).sum()
    yield x.T.contiguous() * 0.5
    yield x[:, ::-1] + x[at]
    yield (x - x.amax(axis=1, keepdims=True)).sum(axis=0)


def _epilogues(rows: int, columns: int) -> Iterator[Tensor]:
    x = pf.tensor(np.ones((rows, columns), np.float32))
    yield pf.relu(x.T[:9] @ x[:, :5] + 1.0)
    yield (x.expand(2, rows, columns) @ x.T[:, :3]).transpose(1, 2) * 2.0


def _kernels(anchored: bool, target: str = "cpu") -> Iterator[Kernel]:
    for shape in [*SHAPES, *SHAPES[:3]]:
        for made in (_epilogues if anchored else _programs)(*shape):
            kernels = [launch.kernel for launch in plan_of(made, target=target).launches]
            yield from [kernel for kernel in kernels if (kernel.anchor is not None) == anchored]


def test_generated_text_is_the_same_as_without() -> None:
    for kernel in _kernels(anchored=False):
        assert c.generate(kernel) == c._generate(kernel)


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "sm_90"])
def test_text_for_gpus_is_the_same_as_without(name: str) -> None:
    for kernel in _kernels(anchored=False, target=name):
        for aligned in (True, False):
            assert gpu.generate(kernel, TARGETS[name], aligned) == gpu._generate(kernel, TARGETS[name], aligned)


def test_epilogues_are_the_same_as_without() -> None:
    for kernel in _kernels(anchored=True):
        layout = (len(kernel.loops[0]) - 2, 1)
        assert c.epilogue(kernel, layout, "float", 3, 2) == c._epilogue(kernel, layout, "float", 3, 2)


def test_text_is_written_once_for_many_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    reuse._known.cache_clear()
    written = []
    plain = c._generate

    def counted(kernel: Kernel) -> Source:
        written.append(kernel)
        return plain(kernel)

    monkeypatch.setattr(c, "_generate", counted)
    for length in range(100, 130):
        for launch in plan_of(pf.softmax(pf.tensor(np.ones((length, 3 * length), np.float32)), axis=-1)).launches:
            c.generate(launch.kernel)
    assert len(written) == 2  # as it is, and with traced numbers


def test_text_that_shows_a_number_is_for_that_number() -> None:
    def shown(kernel: Kernel) -> tuple[str, tuple[int, ...]]:
        return f"{kernel.loops[0][0]}", kernel.loops[0]

    kernels = [
        plan_of(pf.tensor(np.ones(n, np.float32)) * 2.0).launches[0].kernel for n in (4, 5, 6, 5, *range(7, 200))
    ]
    assert [reuse.reuse(shown, kernel) for kernel in kernels] == [(str(n), (n,)) for n in (4, 5, 6, 5, *range(7, 200))]
