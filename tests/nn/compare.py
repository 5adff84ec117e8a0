"""One layer in both libraries with the same weights: outputs, gradients, buffers, eval mode and state dicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import pyflame as pf
from pyflame import nn
from pyflame.doctor.samples import outputs_of
from tests.oracle import assert_close


class Fixed:
    """An input without a gradient: indices, targets, weights of classes."""

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self.array = np.asarray(values, dtype)


@dataclass
class Case:
    """A layer, what it is made with and what it is called with: shapes of random inputs, or Fixed ones."""

    name: str
    args: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ((2, 3),)
    kwargs: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0  # of the tolerance

    @property
    def id(self) -> str:
        settings = [
            *map(str, self.args),
            *(f"{k}={'...' if isinstance(v, Fixed) else v}" for k, v in self.kwargs.items()),
        ]
        shapes = "x".join(str(i.array.shape if isinstance(i, Fixed) else i) for i in self.inputs)
        return f"{self.name}({', '.join(settings)})-{shapes}".replace(" ", "")


def case(name: str, *args: Any, inputs: Any = (2, 3), scale: float = 1.0, **kwargs: Any) -> Case:
    """`inputs`: one shape, or a list of shapes and Fixed inputs."""
    return Case(name, args, tuple(inputs) if isinstance(inputs, list) else (inputs,), kwargs, scale)


def made(library: Any, tensor: Callable[[Any], Any], c: Case) -> Any:
    kwargs = {k: tensor(v.array) if isinstance(v, Fixed) else v for k, v in c.kwargs.items()}
    return getattr(library, c.name)(*c.args, **kwargs)


def arrays(c: Case) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(len(c.id))
    return [i.array if isinstance(i, Fixed) else rng.standard_normal(i).astype(np.float32) for i in c.inputs]


@dataclass
class Run:
    """What one library computed."""

    layer: Any
    outputs: list[Any]
    evaluated: list[Any]
    inputs: list[Any]


def run(layer: Any, tensor: Callable[[Any], Any], c: Case) -> Run:
    """Forward in training mode, backward, forward in evaluation mode."""
    inputs = [
        tensor(a) if isinstance(i, Fixed) else tensor(a).requires_grad_(True)
        for i, a in zip(c.inputs, arrays(c), strict=True)
    ]
    layer.train()
    outputs = outputs_of(layer(*inputs))
    first = outputs[0]
    # a smooth, uneven weight for each output, so that no error cancels
    cotangent = tensor(np.cos(np.arange(int(np.prod(first.shape)), dtype=np.float32)).reshape(tuple(first.shape)))
    if first.requires_grad:
        (first * cotangent).sum().backward()
    layer.eval()
    return Run(layer, outputs, outputs_of(layer(*inputs)), inputs)


def torch_run(c: Case) -> tuple[Any, dict[str, Any], Run]:
    torch.manual_seed(1)
    theirs = made(torch.nn, torch.from_numpy, c)
    with torch.no_grad():
        for p in theirs.parameters():  # weights of 1 and biases of 0 would hide mistakes
            p += torch.randn_like(p) * 0.1
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    return theirs, before, run(theirs, torch.from_numpy, c)


def pyflame_run(c: Case, state: dict[str, Any]) -> Run:
    """With the weights that torch's layer had."""
    ours = made(nn, pf.tensor, c)
    assert list(ours.state_dict()) == list(state)
    assert str(ours.load_state_dict(state)) == "<All keys matched successfully>"
    return run(ours, pf.tensor, c)


class Batches:
    """Runs cases in groups whose kernels are compiled together, which takes a fraction of the time."""

    def __init__(self, cases: list[Case], size: int = 16) -> None:
        self.groups = {c.id: cases[i - i % size : i - i % size + size] for i, c in enumerate(cases)}
        assert len(self.groups) == len(cases), "two cases are the same"
        self.done: dict[str, Any] = {}

    def check(self, c: Case) -> None:
        """Compare one case, or raise what PyFlame raised for it."""
        if c.id not in self.done:
            self._run(self.groups[c.id])
        theirs, got, want = self.done.pop(c.id)
        if isinstance(got, Exception):
            raise got
        check(c, theirs, got, want)

    def _run(self, cases: list[Case]) -> None:
        lazy: list[Any] = []
        for c in cases:
            theirs, state, want = torch_run(c)
            try:
                got: Any = pyflame_run(c, state)
                grads = [t.grad for t in (*got.inputs, *got.layer.parameters())]
                lazy += [*got.outputs, *got.evaluated, *(g for g in grads if g is not None)]
            except Exception as error:  # belongs to that case, not to its group
                got = error
            self.done[c.id] = (theirs, got, want)
        pf.eval(lazy)


def check(c: Case, theirs: Any, got: Run, want: Run) -> None:
    def same(a: Any, b: Any, what: str) -> None:
        assert_close(a, b, pf.float32, what, c.scale)

    for a, b in zip(got.outputs, want.outputs, strict=True):
        same(a, b, "output in training mode")
    for a, b in zip(got.evaluated, want.evaluated, strict=True):
        same(a, b, "output in evaluation mode")
    for number, (a, b) in enumerate(zip(got.inputs, want.inputs, strict=True)):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            same(a.grad, b.grad, f"gradient of input {number}")
    for (name, a), (other, b) in zip(got.layer.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            same(a.grad, b.grad, f"gradient of {name}")
    ours, state = got.layer.state_dict(), theirs.state_dict()
    assert [(n, tuple(v.shape)) for n, v in ours.items()] == [(n, tuple(v.shape)) for n, v in state.items()]
    for name, value in ours.items():
        same(value, state[name], f"{name} after the step")
    fresh = made(torch.nn, torch.from_numpy, c)
    fresh.load_state_dict({name: torch.from_numpy(np.array(value.numpy())) for name, value in ours.items()})
    for name, value in fresh.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), ours[name].numpy(), err_msg=name)
