"""Executes a program in PyFlame or in torch: one harness, which knows a library through a few functions.

Modes: `lazy` computes all outputs at the end; `eager` op by op; `portions` evaluates some values on the way; `jit`
calls a traced function three times with other inputs; `state` five times, with cells that it changes; `checkpoint`
computes a part of the steps again for gradients; `autocast` in bfloat16; `train` makes four steps of SGD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import pyflame as pf
from tests.programs.data import Array, laid_out, numbers, weights
from tests.programs.program import Input, Program, Unfit, resized
from tests.programs.text import body

Result = tuple[str, Array, str]  # what it is, its numbers (floats as float64), its dtype


class Random:
    """Random numbers are PyFlame's: torch gets those that the same generators give it, on the CPU."""

    def __init__(self) -> None:
        self.generators: dict[int, pf.Generator] = {}

    def _of(self, seed: int) -> pf.Generator:
        return self.generators.setdefault(seed, pf.Generator(seed))

    def dropout(self, x: Any, p: float, seed: int) -> Any:
        if isinstance(x, pf.Tensor):
            return pf.dropout(x, p, generator=self._of(seed))
        with pf.device("cpu"):
            kept = pf.dropout(pf.ones(*x.shape, dtype=pf.float64), p, generator=self._of(seed)).numpy()
        return x * torch.from_numpy(kept.copy()).to(x.dtype)

    def noise(self, x: Any, seed: int) -> Any:
        """Uniform numbers under a tensor's shape."""
        if isinstance(x, pf.Tensor):
            return pf.rand(*x.shape, dtype=pf.float32, generator=self._of(seed))
        with pf.device("cpu"):
            made = pf.rand(*x.shape, dtype=pf.float32, generator=self._of(seed)).numpy()
        made = torch.from_numpy(made.copy())
        return made.double() if x.dtype == torch.float64 else made


def writable(x: pf.Tensor) -> pf.Tensor:
    """The tensor itself, for a write, unless others share its memory: values of a program are known by number, and a
    write makes a new one. (tests/views draws programs whose values share memory.) A leaf of the tape refuses a write,
    as in torch."""
    return x.clone() if (x.requires_grad and x.is_leaf) or shared(x) else x


def shared(x: pf.Tensor) -> bool:
    """Whether a tensor shares memory with another."""
    return x._link is not None and (x._link.parent is not None or bool(x._link.live()))


class PyFlame:
    """PyFlame as the harness sees it."""

    L = pf
    watched = False

    def __init__(self, mode: str, device: str = "cpu") -> None:
        self.mode = mode
        self.device = device
        self.held: list[Any] = []
        # What the text of a program calls besides the library.
        random = Random()
        self.names = {
            "held": self.held, "look": self.look, "own": writable, "checkpoint": pf.checkpoint,
            "dropout": random.dropout, "noise": random.noise,
        }  # fmt: skip

    def look(self, value: Any) -> None:
        pf.eval(value)

    def context(self) -> Any:
        return {"eager": pf.eager, "autocast": pf.autocast}.get(self.mode, nullcontext)()

    def place(self) -> Any:
        return pf.device(self.device)

    def tensor(self, given: Input, call: int) -> Any:
        out = laid_out(numbers(given, call), given.layout)
        return out.detach().requires_grad_() if given.grad else out

    def constant(self, array: Array, like: Any) -> Any:
        return pf.tensor(array.astype(like.dtype.numpy))

    def jit(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return pf.jit(fn)  # type: ignore[no-any-return]

    def grad(self, outputs: Any, inputs: Any, **options: Any) -> Any:
        return pf.grad(outputs, inputs, allow_unused=True, **options)

    def grad_of_function(self, fn: Callable[..., Any], given: Sequence[Any]) -> Any:
        return pf.grad(fn, tuple(range(len(given))))(*given)

    def sgd(self, parameters: list[Any]) -> Any:
        return pf.optim.SGD(parameters, lr=0.02, momentum=0.5)

    def apart(self, value: Any) -> Any:
        """A value that does not change with the cells that are assigned before it."""
        return value.clone() if shared(value) else value

    def assign(self, cell: Any, value: Any) -> None:
        if cell is not value:
            with pf.no_grad():
                cell.copy_(value.detach())

    def is_smooth(self, value: Any) -> bool:
        return bool(value.dtype.is_float and value.requires_grad)

    def no_loss(self) -> Any:
        return pf.zeros(())

    def result(self, name: str, value: Any) -> Result:
        array = np.array(value.detach().numpy())
        return name, array.astype(np.float64) if value.dtype.is_float else array, value.dtype.name

    def evaluate(self, values: list[Any]) -> None:
        if self.mode != "portions":  # there, each is computed when it is looked at
            pf.eval(*values)


class Torch:
    """torch with every dtype as it is: for the dtypes of results."""

    L: Any = torch
    watched = False
    float_dtype: Any = None

    def __init__(self) -> None:
        random = Random()
        self.names: dict[str, Any] = {
            "held": [], "look": lambda x: None, "own": lambda x: x.clone(), "checkpoint": lambda fn, *args: fn(*args),
            "dropout": random.dropout, "noise": random.noise,
        }  # fmt: skip

    def context(self) -> Any:
        return nullcontext()

    place = context

    def tensor(self, given: Input, call: int) -> Any:
        array = numbers(given, call)
        if array.dtype.name == "bfloat16":
            out = torch.from_numpy(np.array(array.astype(np.float32))).to(torch.bfloat16)
        else:
            out = torch.from_numpy(np.array(array))
        if self.float_dtype is not None and out.is_floating_point():
            out = out.to(self.float_dtype)
        return out.requires_grad_(given.grad)

    def constant(self, array: Array, like: Any) -> Any:
        return torch.from_numpy(array).to(like.dtype)

    def jit(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn

    def grad(self, outputs: Any, inputs: Any, **options: Any) -> Any:
        return torch.autograd.grad(outputs, inputs, allow_unused=True, **options)

    def grad_of_function(self, fn: Callable[..., Any], given: Sequence[Any]) -> Any:
        return self.grad(fn(*given), given)

    def sgd(self, parameters: list[Any]) -> Any:
        return torch.optim.SGD(parameters, lr=0.02, momentum=0.5)

    def apart(self, value: Any) -> Any:
        return value

    def assign(self, cell: Any, value: Any) -> None:
        cell.data = value.detach().to(cell.dtype).clone()

    def is_smooth(self, value: Any) -> bool:
        return bool(value.is_floating_point() and value.requires_grad)

    def no_loss(self) -> Any:
        raise Unfit("no output has a gradient")

    def result(self, name: str, value: Any) -> Result:
        dtype = str(value.dtype).removeprefix("torch.").replace("bool", "bool_")
        value = value.detach()
        return name, (value.double() if value.is_floating_point() else value).numpy().copy(), dtype

    def evaluate(self, values: list[Any]) -> None:
        """Everything is computed."""


def compiled(program: Program, lib: Any) -> Callable[..., list[Any]]:
    names = dict(lib.names)
    exec(compile(body(program, lib.watched), "<program>", "exec"), names)
    return lambda *values: names["body"](lib.L, *values)  # type: ignore[no-any-return]


def _loss(program: Program, lib: Any, outputs: list[Any], seed: int) -> Any:
    """One number of all outputs that depend on what gradients are wanted of."""
    terms = [(o * lib.constant(weights(n, tuple(o.shape), seed), o)).sum() for n, o in outputs if lib.is_smooth(o)]
    return sum(terms[1:], terms[0]) if terms else None


def gradients(program: Program, lib: Any, outputs: list[Any], wrt: list[Any]) -> list[Any]:
    """Gradients of first and, if wanted, second order; None where there is none."""
    loss = _loss(program, lib, list(enumerate(outputs)), program.seed)
    if loss is None or not wrt:
        return []
    if program.order == 1 and program.through == "backward":
        loss.backward()
        return [w.grad for w in wrt]
    first = list(lib.grad(loss, wrt, create_graph=program.order == 2))
    if program.order < 2:
        return first
    again = _loss(program, lib, [(n, g) for n, g in enumerate(first) if g is not None], program.seed + 1)
    return [*first, *([] if again is None else lib.grad(again, wrt))]


def execute(program: Program, lib: Any) -> list[Result]:
    """Everything that the calls of a program give: outputs, gradients, state."""
    if program.mode == "again":
        first = replace(program, mode="lazy")
        second = execute(resized(first, *program.resize), lib)
        return [*execute(first, lib), *[(f"resized {name}", value, dtype) for name, value, dtype in second]]
    fn = compiled(program, lib)
    with lib.place():
        if program.mode == "train":
            return _train(program, lib, fn)
        if program.through == "function" and program.order == 1:
            return _function(program, lib, fn)
        return _calls(program, lib, fn)


def _named(lib: Any, what: str, values: Sequence[Any]) -> list[Result]:
    return [lib.result(f"{what} {n}", v) for n, v in enumerate(values) if v is not None]


def _calls(program: Program, lib: Any, fn: Callable[..., list[Any]]) -> list[Result]:
    cells = {i: lib.tensor(program.inputs[i], 0) for i, _ in program.state}
    wrt = [n for n, i in enumerate(program.inputs) if i.grad and n not in cells] if program.order else []

    def call(*args: Any) -> tuple[list[Any], list[Any]]:
        given = iter(args)
        values = [cells[n] if n in cells else next(given) for n in range(len(program.inputs))]
        out = fn(*values)
        outputs, new = out[: len(program.outputs)], out[len(program.outputs) :]
        found = gradients(program, lib, outputs, [values[n] for n in wrt])
        if program.state:
            outputs, new = [lib.apart(o) for o in outputs], [lib.apart(value) for value in new]
        for (cell, _), value in zip(program.state, new, strict=True):
            lib.assign(cells[cell], value)
        return outputs, found

    step = lib.jit(call) if program.mode in ("jit", "state") else call
    results = []
    for number in range(program.calls):
        args = [lib.tensor(i, number) for n, i in enumerate(program.inputs) if n not in cells]
        if program.seed % 2:  # then calls that come again are made in C
            lib.evaluate(args)
        with lib.context():
            outputs, found = step(*args)
            lib.evaluate([*outputs, *[g for g in found if g is not None]])
        del args
        results += _named(lib, f"call {number} output", outputs) + _named(lib, f"call {number} gradient", found)
        results += [lib.result(f"call {number} state {i}", c) for i, c in cells.items()]
    return results


def _function(program: Program, lib: Any, fn: Callable[..., list[Any]]) -> list[Result]:
    """Gradients by pf.grad of a function."""
    given = [lib.tensor(i, 0) for i in program.inputs]
    wrt = [n for n, i in enumerate(program.inputs) if i.grad]

    def loss(*chosen: Any) -> Any:
        values = list(given)
        for n, value in zip(wrt, chosen, strict=True):
            values[n] = value
        outputs = fn(*values)[: len(program.outputs)]
        made = _loss(program, lib, list(enumerate(outputs)), program.seed)
        return lib.no_loss() if made is None else made

    with lib.context():
        found = lib.grad_of_function(loss, [given[n] for n in wrt])
    return _named(lib, "gradient", found)


def _train(program: Program, lib: Any, fn: Callable[..., list[Any]]) -> list[Result]:
    cells = {n: lib.tensor(i, 0) for n, i in enumerate(program.inputs) if i.grad}
    optimizer = lib.sgd(list(cells.values()))

    def call(*args: Any) -> list[Any]:
        given = iter(args)
        values = [cells[n] if n in cells else next(given) for n in range(len(program.inputs))]
        outputs = fn(*values)
        optimizer.zero_grad()
        loss = _loss(program, lib, list(enumerate(outputs)), program.seed)
        if loss is not None:
            loss.backward()
            optimizer.step()
        return outputs

    step = lib.jit(call) if program.through == "jit" else call
    results = []
    for number in range(program.calls):
        args = [lib.tensor(i, number) for i in program.inputs if not i.grad]
        outputs = step(*args)
        results += _named(lib, f"step {number} output", outputs)
        results += [lib.result(f"step {number} parameter {n}", c) for n, c in cells.items()]
    return results
