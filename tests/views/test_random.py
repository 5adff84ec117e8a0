"""Random programs of views and in-place writes: every live tensor is what it is in torch, after every line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch
from tests.views.draw import Program, draw, run, start

pytestmark = needs_torch


def expected(program: Program) -> list[dict[str, Any]]:
    """What every live tensor is in torch, after every line."""
    names = start(torch, program)
    out = []
    for line, live in zip(program.lines, program.live, strict=True):
        run(torch, [line], names)
        out.append({n: names[n].detach().numpy().copy() for n in live})
    return out


def check(names: dict[str, Any], want: dict[str, Any], program: Program, where: str) -> None:
    for name, array in want.items():
        got = names[name].detach().numpy()
        np.testing.assert_allclose(got, array, rtol=1e-12, err_msg=f"{name} {where} of\n{program}")


@pytest.mark.parametrize("seed", range(150))
def test_values_after_every_line(seed: int) -> None:
    program = draw(seed)
    names = start(pf, program)
    for line, want in zip(program.lines, expected(program), strict=True):
        run(pf, [line], names)
        check(names, want, program, f"after {line!r}")


@pytest.mark.parametrize("seed", range(300, 400))
def test_values_at_the_end(seed: int) -> None:
    program = draw(seed, steps=20)
    names = start(pf, program)
    run(pf, program.lines, names)
    check(names, expected(program)[-1], program, "at the end")


@pytest.mark.parametrize("seed", range(500, 530))
def test_eager(seed: int) -> None:
    program = draw(seed)
    with pf.eager():
        names = start(pf, program)
        run(pf, program.lines, names)
    check(names, expected(program)[-1], program, "at the end")


def loss_of(m: Any, names: dict[str, Any], live: list[str]) -> Any:
    """A number that depends on every element of every live tensor."""
    total = 0.0
    for number, name in enumerate(live):
        t = names[name]
        total = total + (t * (m.arange(t.numel(), dtype=m.float64).reshape(t.shape) % 5 + number)).sum()
    return total


@pytest.mark.parametrize("seed", range(1000, 1150))
def test_gradients(seed: int) -> None:
    program = draw(seed, gradients=True)
    ours, theirs = start(pf, program), start(torch, program)
    run(pf, program.lines, ours)
    check(ours, expected(program)[-1], program, "at the end")
    run(torch, program.lines, theirs)
    try:
        loss_of(torch, theirs, program.live[-1]).backward()
    except RuntimeError as error:
        if "unsupported operation" in str(error) or "does not require grad" in str(error):
            return
        raise
    loss = loss_of(pf, ours, program.live[-1])
    if loss.requires_grad:
        loss.backward()
    for name in ("x0", "x1"):
        want, got = theirs[name].grad, ours[name].grad
        want = np.zeros(theirs[name].shape) if want is None else want.numpy()
        got = np.zeros(want.shape) if got is None else got.numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=f"gradient of {name} of\n{program}")


@pytest.mark.parametrize("seed", range(2000, 2040))
@pytest.mark.parametrize("captured", [True, False], ids=["state", "arguments"])
def test_jit(seed: int, captured: bool) -> None:
    """A jitted program changes the tensors it captures, or its arguments, at every call, and what it makes is right."""
    program = draw(seed, steps=10)
    if not program.lines:
        return
    bases, theirs = start(pf, program), start(torch, program)
    kept = [n for n in program.live[-1] if n not in bases]

    def body(m: Any, given: dict[str, Any]) -> list[Any]:
        names = dict(given)
        run(m, program.lines, names)
        return [names[n].clone() for n in kept]

    step = pf.jit(lambda: body(pf, bases)) if captured else pf.jit(lambda given: body(pf, given))
    seen = {n: t.reshape(-1) for n, t in bases.items()}  # views from before
    for _ in range(3):
        got, want = step() if captured else step(bases), body(torch, theirs)
        for mine, other in zip(got, want, strict=True):
            np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-12, err_msg=str(program))
        for name, other in theirs.items():
            for mine in (bases[name], seen[name]):
                np.testing.assert_allclose(mine.numpy().ravel(), other.numpy().ravel(), err_msg=f"{name} of\n{program}")


@pytest.mark.parametrize("device", ["sim:gfx1100", "sim:gfx942"])
@pytest.mark.parametrize("seed", range(3000, 3003))
def test_simulated_gpus(device: str, seed: int) -> None:
    program = draw(seed, steps=8)
    with pf.device(device):
        names = start(pf, program)
        run(pf, program.lines, names)
        check(names, expected(program)[-1], program, "at the end")
