"""Random programs over state: what a jitted function leaves behind must equal what the same function leaves eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf

SHAPE = (4, 6)
UNARY = ("tanh", "sigmoid", "relu", "square", "sin")
BINARY = ("add", "sub", "mul", "maximum")
KINDS = ("unary", "binary", "view", "matmul", "softmax", "dropout", "rebind", "write", "in_place", "learn", "learn")


def draw(seed: int) -> list[tuple[Any, ...]]:
    """A program: instructions over a growing list of values, of which the first three are cells."""
    rng = np.random.default_rng(seed)
    return [
        (str(rng.choice(KINDS)), *(int(n) for n in rng.integers(0, 1000, 4)))
        for _ in range(int(rng.integers(6, 16)))
    ]  # fmt: skip


def run(program: list[tuple[Any, ...]], cells: list[pf.Tensor], x: pf.Tensor, scale: float) -> list[pf.Tensor]:
    """The interpreter: `cells` are state, the last one a parameter that learns."""
    values = [*cells, x * scale]
    for kind, a, b, c, d in program:
        v, w = values[a % len(values)], values[b % len(values)]
        if kind == "unary":
            values.append(getattr(pf, UNARY[c % len(UNARY)])(v))
        elif kind == "binary":
            values.append(getattr(pf, BINARY[c % len(BINARY)])(v, w))
        elif kind == "view":
            values.append(v.flip(c % 2) if d % 2 else v.reshape(6, 4).T)
        elif kind == "matmul":
            values.append(pf.tanh(v @ w.T @ v * 0.1))
        elif kind == "softmax":
            values.append(pf.softmax(v, c % 2) * 3.0)
        elif kind == "dropout":
            values.append(pf.dropout(v, 0.3))
        elif kind == "learn":
            parameter = cells[-1]
            loss = pf.square(pf.tanh(parameter * v) + w).mean()
            if c % 3:
                parameter.grad = None
            loss.backward(retain_graph=True)
            with pf.no_grad():
                parameter._rebind(parameter - parameter.grad * 0.1)
            values.append(loss.detach().expand(SHAPE))
        else:
            with pf.no_grad():
                cell = cells[a % 2]
                if kind == "rebind":
                    cell._rebind(pf.tanh(w + values[d % len(values)]).detach())
                elif kind == "write":
                    cell[c % 4, :: 1 + d % 3] = w[d % 4, :: 1 + d % 3].detach()
                else:
                    cell.add_(w.detach() * 0.1)
    return [values[-1], (values[-1] * values[-2]).sum()]


def states(call: Callable[..., list[pf.Tensor]], seed: int) -> list[np.ndarray]:
    """Everything that three calls return and leave behind."""
    rng = np.random.default_rng(seed)
    cells = [pf.tensor(rng.standard_normal(SHAPE)) for _ in range(3)]
    cells[-1].requires_grad_()
    pf.manual_seed(seed)
    found = []
    for step in range(3):
        x = pf.tensor(rng.standard_normal(SHAPE))
        found += [t.detach().numpy().copy() for t in call(cells, x, 0.5 + step)]
        found += [c.detach().numpy().copy() for c in cells]
        if cells[-1].grad is not None:
            found.append(cells[-1].grad.numpy().copy())
    return found


@pytest.mark.parametrize("seed", range(40))
def test_jit_equals_eager(seed: int) -> None:
    program = draw(seed)
    plain = states(lambda cells, x, scale: run(program, cells, x, scale), seed)
    jitted: dict[int, Any] = {}

    def call(cells: list[pf.Tensor], x: pf.Tensor, scale: float) -> list[pf.Tensor]:
        step = jitted.setdefault(0, pf.jit(lambda x, scale: run(program, cells, x, scale)))
        return step(x, scale)

    replayed = states(call, seed)
    assert len(plain) == len(replayed)
    for want, got in zip(plain, replayed, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)
