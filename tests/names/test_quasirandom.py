"""Sobol sequences: PyTorch's points, bit for bit."""

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf


def drawn(library: Any, *given: Any, **options: Any) -> Any:
    engine = library.quasirandom.SobolEngine(*given, **options)
    first, second = engine.draw(5), engine.draw()
    engine.fast_forward(9)
    third = engine.draw(3, dtype=library.float64)
    count = engine.num_generated
    engine.reset().fast_forward(3)
    parts = [first, second, third, engine.draw(2), engine.reset().draw_base2(3)]
    return [p.tolist() for p in parts], count, repr(engine)


@pytest.mark.parametrize("dimension", [1, 2, 17, 1112, 21201])
def test_points(dimension: int) -> None:
    assert drawn(pf, dimension) == drawn(torch, dimension)


@pytest.mark.parametrize("dimension", [1, 6, 50])
@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3])
def test_scrambled_points(dimension: int, seed: int) -> None:
    assert drawn(pf, dimension, scramble=True, seed=seed) == drawn(torch, dimension, scramble=True, seed=seed)


def test_without_a_seed_the_generators_seed_decides() -> None:
    def once() -> Any:
        pf.manual_seed(3)
        return pf.quasirandom.SobolEngine(3, scramble=True).draw(4)

    points = once()
    assert points.tolist() == once().tolist() != pf.quasirandom.SobolEngine(3, scramble=True).draw(4).tolist()
    assert points.min() >= 0 and points.max() < 1


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="21201"):
        pf.quasirandom.SobolEngine(21202)
    engine = pf.quasirandom.SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="power of two"):
        engine.draw_base2(2)
