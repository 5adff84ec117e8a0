"""Calls of compiled graphs in one step, in C (engine/direct.c), and what is left to Python."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyflame as pf
from pyflame.bridge.torch.program import OurPart
from pyflame.core.precision import choice
from pyflame.engine.ownership import reliable


@pytest.fixture(autouse=True)
def _with_rows() -> None:
    if not reliable():
        pytest.skip("without the GIL it stays in Python")


class InPython:
    """Counts the runs of graphs that Python has made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        before = OurPart.run

        def run(part: OurPart, given: list[Any]) -> list[torch.Tensor]:
            self.runs += 1
            return before(part, given)

        monkeypatch.setattr(OurPart, "run", run)

    def during(self, call: Callable[[], Any]) -> tuple[int, Any]:
        """How many there were in a call, and what it gave."""
        before = self.runs
        out = call()
        return self.runs - before, out


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> InPython:
    return InPython(monkeypatch)


def compiled(fn: Callable[..., Any]) -> Any:
    return torch.compile(fn, backend="pyflame", dynamic=False)


def test_a_call_that_comes_again_is_made_in_c(in_python: InPython) -> None:
    fn = compiled(lambda x, y: (x * y + 1.0, x - y))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert in_python.during(lambda: fn(x, y))[0] == 1
    for a, b in ((x, y), (y, x), (torch.ones(3, 4), y)):
        runs, (out, less) = in_python.during(lambda a=a, b=b: fn(a, b))
        assert not runs and torch.equal(out, a * b + 1.0) and torch.equal(less, a - b)
    out.zero_()  # it is the caller's
    assert torch.equal(fn(x, y)[0], x * y + 1.0)


def test_training_is_made_in_c_forward_and_backward(in_python: InPython) -> None:
    """What is kept for the backward pass are arguments, too, and an argument without gradient has None."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
    fn, x = compiled(model), torch.randn(4, 5)
    fn(x).sum().backward()
    for scale in (1.0, 3.0):
        model.zero_grad()
        runs, _ = in_python.during(lambda scale=scale: fn(scale * x).pow(2).sum().backward())
        ours = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(scale * x).pow(2).sum().backward()
        assert not runs
        for p, found in zip(model.parameters(), ours, strict=True):
            torch.testing.assert_close(found, p.grad)


def test_large_results_are_made_in_c(in_python: InPython) -> None:
    fn, x = compiled(lambda x: x.exp()), torch.randn(300, 300, dtype=torch.bfloat16)
    fn(x)
    runs, out = in_python.during(lambda: fn(x))
    assert not runs and out.dtype is torch.bfloat16 and torch.equal(out, x.exp())


def test_backward_takes_other_strides(in_python: InPython) -> None:
    """Dynamo guards the strides of arguments, nobody those of gradients that come from outside."""
    fn, x = compiled(lambda x: x.sin() * 2.0), torch.randn(3, 3, requires_grad=True)
    upper = torch.randn(3, 3)
    for grad in (upper, upper, upper.T, upper.T, upper[0].expand(3, 3), upper):
        x.grad = None
        fn(x).backward(grad)
        torch.testing.assert_close(x.grad, grad * 2.0 * x.detach().cos())
    x.grad = None
    assert not in_python.during(lambda: fn(x).backward(upper.T))[0]
    torch.testing.assert_close(x.grad, upper.T * 2.0 * x.detach().cos())


def test_memory_that_is_not_aligned_is_left_to_python(in_python: InPython) -> None:
    fn = compiled(lambda x: x + 1.0)
    x = torch.frombuffer(bytearray(17), dtype=torch.float32, offset=1)
    aligned = torch.zeros(4)
    fn(aligned)
    assert in_python.during(lambda: fn(aligned))[0] == 0
    runs, out = in_python.during(lambda: fn(x))
    assert runs == 1 and out.tolist() == [1.0] * 4


def test_modes_that_change_make_another_plan(in_python: InPython, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, x = compiled(lambda x: x @ x), torch.randn(4, 4)
    fn(x)
    with pf.deterministic():
        assert in_python.during(lambda: fn(x))[0] == 1
        assert in_python.during(lambda: fn(x))[0] == 0
    assert in_python.during(lambda: fn(x))[0] == 0
    monkeypatch.setattr(choice, "precision", "high")
    runs, out = in_python.during(lambda: fn(x))
    assert runs == 1
    torch.testing.assert_close(out, x @ x)


def test_a_profile_sees_the_launches(in_python: InPython) -> None:
    fn, x = compiled(lambda x: x.exp() + 1.0), torch.randn(4)
    fn(x), fn(x)
    with pf.profile() as profile:
        runs, _ = in_python.during(lambda: fn(x))
    assert runs == 1 and any(e.kind == "kernel" for e in profile.events)


def test_a_bad_index_raises_from_c(in_python: InPython) -> None:
    table = torch.randn(5, 3)
    fn = compiled(lambda i: torch.nn.functional.embedding(i, table))
    good, bad = torch.tensor([1, 4]), torch.tensor([1, 5])
    fn(good)

    def fails() -> None:
        with pytest.raises(pf.PyFlameError, match=r"expected an index in \[-5, 4\] but got 5"):
            fn(bad)

    assert in_python.during(fails)[0] == 0
    runs, out = in_python.during(lambda: fn(good))
    assert not runs and torch.equal(out, table[good])


def test_attention_without_dropout_is_made_in_c_with_views_of_what_it_keeps(in_python: InPython) -> None:
    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).view(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
            seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(seen.transpose(1, 2).reshape(2, 16, 32))

    model = Attention()
    fn, x = compiled(model), torch.randn(2, 16, 32)
    fn(x).pow(2).sum().backward()
    model.zero_grad()
    runs, _ = in_python.during(lambda: fn(x).pow(2).sum().backward())
    ours = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(x).pow(2).sum().backward()
    assert not runs
    for p, found in zip(model.parameters(), ours, strict=True):
        torch.testing.assert_close(found, p.grad)


def test_random_graphs_stay_in_python_and_draw_anew(in_python: InPython) -> None:
    fn, x = compiled(lambda x: torch.nn.functional.dropout(x, 0.5)), torch.ones(1000)
    fn(x)
    runs, first = in_python.during(lambda: fn(x))
    assert runs == 1 and not torch.equal(first, fn(x))


def test_arguments_are_let_go_of() -> None:
    fn = compiled(lambda x: x * 2.0)
    for _ in range(3):
        x = torch.ones(3)
        held = weakref.ref(x)
        out = fn(x)
        del x
        assert held() is None and out.tolist() == [2.0] * 3
