"""Products whose lines are no whole pieces of 16 bytes: padded for matrix cores, with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.ir.graph import Graph
from pyflame.passes import alignment
from pyflame.passes.alignment import align_products
from pyflame.tensor.tensor import Tensor
from tests.plans import plan_of

rng = np.random.default_rng(0)
START = rng.bit_generator.state


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "LEAST_FLOPS", 1)
    monkeypatch.setattr(alignment, "LEAST_SIZE", 2)


def numbers(*shape: int, dtype: Any = pf.bfloat16) -> Tensor:
    return pf.tensor(rng.standard_normal(shape).astype(np.float32), dtype=dtype)


def operands(*tensors: Tensor, target: str = "gfx942") -> list[tuple[int, ...]]:
    """The steps between lines of all products' operands."""
    products = [x for x in plan_of(*tensors, target=target).launches if x.kernel.anchor is not None]
    assert products
    return [tuple(max(o.strides[-2:]) for o in launch.operands) for launch in products]


PRODUCTS = {
    "k": lambda: numbers(16, 21) @ numbers(21, 8),
    "k of a turned matrix": lambda: numbers(16, 21) @ numbers(8, 21).T,
    "n": lambda: numbers(16, 24) @ numbers(24, 13),
    "m of a turned matrix": lambda: numbers(24, 13).T @ numbers(24, 8),
    "all": lambda: numbers(5, 7) @ numbers(7, 9),
    "a batch": lambda: numbers(3, 2, 4, 21) @ numbers(3, 2, 21, 11),
    "rows of a batch": lambda: numbers(3, 4, 21) @ numbers(21, 8),
    "reshaped": lambda: numbers(3, 4, 21).reshape(12, 21) @ numbers(21, 8),
    "computed": lambda: (numbers(16, 21) * 2).exp() @ numbers(21, 8),
    "float16": lambda: numbers(16, 21, dtype=pf.float16) @ numbers(21, 8, dtype=pf.float16),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_lines_are_whole_pieces(name: str) -> None:
    product = PRODUCTS[name]()
    assert all(step % 8 == 0 for steps in operands(product) for step in steps)


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_result_has_the_same_shape(name: str) -> None:
    product = PRODUCTS[name]()
    (padded,) = align_products(Graph([product._node]), TARGETS["gfx942"]).outputs
    assert padded is not product._node and padded.meta == product._node.meta
    assert padded.op.name == ("matmul" if name.startswith(("k", "r", "c", "f")) else "slice")


@pytest.mark.slow
def test_the_results_are_the_same() -> None:
    """On a simulated GPU, whose checks see stores that are out of place."""
    rng.bit_generator.state = START
    want = {name: build() for name, build in PRODUCTS.items()}
    with pf.device("sim:gfx942"):
        rng.bit_generator.state = START
        found = {name: build() for name, build in PRODUCTS.items()}
        pf.eval(*found.values())
    for name, product in found.items():
        np.testing.assert_allclose(product.numpy(), want[name].numpy(), rtol=1e-2, atol=1e-2, err_msg=name)


def test_gradients_of_one_loss_share_what_is_padded() -> None:
    """Softmax and its use in two products: one store of it, with gaps, and no copy of it."""
    logits, weight, x = numbers(4, 4, 21), numbers(21, 8), numbers(16, 8)
    slopes = logits.softmax(-1)
    plan = plan_of(slopes @ weight, slopes.reshape(16, 21).T @ x, target="gfx942")
    stored = {launch.buffers[o.buffer][0] for launch in plan.launches for o in launch.operands if 24 in o.strides}
    assert len(stored) == 1


@pytest.mark.parametrize(
    ("build", "target"),
    [
        (lambda: numbers(16, 24) @ numbers(24, 8), "gfx942"),  # aligned as it is
        (lambda: numbers(16, 24) @ numbers(13, 24).T, "gfx942"),  # only the result is not
        (lambda: numbers(16, 21, dtype=pf.float32) @ numbers(21, 8, dtype=pf.float32), "gfx942"),  # not by matrix cores
        (lambda: numbers(16, 21) @ numbers(21, 8), "gfx1030"),  # which has none
        (lambda: numbers(16, 21) @ numbers(21, 8), "cpu"),
    ],
)
def test_nothing_is_padded_in_vain(build: Any, target: str) -> None:
    graph = Graph([build()._node])
    assert align_products(graph, TARGETS[target]).outputs == graph.outputs


def test_small_products_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph([(numbers(128, 121) @ numbers(121, 128))._node])
    monkeypatch.setattr(alignment, "LEAST_FLOPS", 1 << 33)
    assert align_products(graph, TARGETS["gfx942"]).outputs == graph.outputs
    monkeypatch.setattr(alignment, "LEAST_FLOPS", 1)
    monkeypatch.setattr(alignment, "LEAST_SIZE", 200)
    assert align_products(graph, TARGETS["gfx942"]).outputs == graph.outputs
