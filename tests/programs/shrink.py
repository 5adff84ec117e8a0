"""Makes a failing program as small as it gets while it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import torch

from tests.programs.compare import Oracle
from tests.programs.program import Input, Program, Unfit, needed, pruned, renumbered, resized
from tests.programs.run import execute

Test = Callable[[Program], bool]


def shrink(program: Program, fails: Test, tries: int = 250) -> Program:
    """The smallest program found with at most so many tests."""
    left = tries
    found = True
    while found and left > 0:
        found = False
        for candidate in candidates(program):
            if candidate == program or not sound(candidate):
                continue
            left -= 1
            if fails(candidate):
                program, found = candidate, True
                break
            if left <= 0:
                break
    return program


def sound(program: Program) -> bool:
    """Whether nothing reads a value after it was written to, and there is something to compare."""
    gone: set[int] = set()
    for step in program.steps:
        if gone & set(step.operands):
            return False
        gone |= {step.operands[0]} if step.write else set()
    return bool(program.outputs) and not gone & {*program.outputs, *program.held, *program.evaluated}


def candidates(program: Program) -> Iterator[Program]:
    """Simpler programs, the most promising first."""
    yield pruned(program)
    yield from _simpler_modes(program)
    if len(program.outputs) > 1:
        for output in program.outputs:
            yield pruned(replace(program, outputs=(output,)))
    yield from _cut(program)
    yield from _shortened(program)
    for value in program.held:
        yield replace(program, held=tuple(v for v in program.held if v != value))
    for value in program.evaluated:
        yield replace(program, evaluated=tuple(v for v in program.evaluated if v != value))
    for pair in program.state:
        yield pruned(replace(program, state=tuple(p for p in program.state if p != pair)))
    yield from _simpler_inputs(program)
    yield from _smaller(program)


def _simpler_modes(program: Program) -> Iterator[Program]:
    if program.mode == "again":
        yield replace(resized(program, *program.resize), mode="lazy", resize=(0, 0))
    if program.mode != "lazy":
        yield pruned(
            replace(program, mode="lazy", through="backward", part=(0, 0), state=(), evaluated=(), resize=(0, 0))
        )
    if program.mode == "state":
        yield pruned(replace(program, mode="jit", state=()))
    if program.mode == "train":
        yield replace(program, mode="lazy", order=1, through="backward")
    if program.order:
        yield replace(program, order=program.order - 1)
    if program.through not in ("backward", "plain") and program.mode not in ("jit", "state"):
        yield replace(program, through="plain" if program.mode == "train" else "backward")


def _values(program: Program) -> dict[int, torch.Tensor]:
    """What each value holds in the first call."""
    found: dict[int, torch.Tensor] = {}

    class Noting(Oracle):
        def watch(self, value: int, x: object) -> object:
            if isinstance(x, torch.Tensor):
                found.setdefault(value, x)
            return x

    with suppress(Unfit, RuntimeError):  # what was computed until then will do
        execute(program, Noting(program))
    return found


def _cut(program: Program) -> Iterator[Program]:
    """A computed value becomes an input, so that the steps before it go: the latest values first."""
    values = _values(program)
    n = len(program.inputs)
    dtype = next((i.dtype for i in program.inputs if i.dtype.startswith(("float", "bfloat"))), "float64")
    if program.mode == "checkpoint":
        return
    for value in range(n + len(program.steps) - 1, n - 1, -1):
        x = values.get(value)
        if x is None or value in program.outputs or value in {v for _, v in program.state}:
            continue
        if x.is_floating_point():
            made = Input(tuple(x.shape), dtype, "normal", program.order > 0, "plain", value)
        elif x.dtype == torch.bool:
            made = Input(tuple(x.shape), "bool_", "bool", seed=value)
        else:
            bound = int(x.max()) + 1 if x.numel() else 1
            if x.numel() and int(x.min()) < 0:
                continue
            made = Input(tuple(x.shape), str(x.dtype).removeprefix("torch."), f"index:{bound}", seed=value)
        moved = {v: v if v < n else v + 1 for v in range(n + len(program.steps))}
        wider = renumbered(program, moved)
        wider = replace(wider, inputs=(*program.inputs, made))
        yield pruned(_redirect(wider, value + 1, n))


def _redirect(program: Program, old: int, new: int) -> Program:
    """Whoever read a value reads another one."""
    steps = tuple(replace(s, operands=tuple(new if o == old else o for o in s.operands)) for s in program.steps)
    return replace(program, steps=steps)


def _shortened(program: Program) -> Iterator[Program]:
    """A step goes; whoever read its value reads one of its operands."""
    n = len(program.inputs)
    for value in reversed(range(n, n + len(program.steps))):
        if value not in needed(program):
            continue
        for operand in dict.fromkeys(program.steps[value - n].operands):
            redirected = _redirect(program, value, operand)
            outputs = tuple(dict.fromkeys(operand if o == value else o for o in program.outputs))
            state = tuple((c, operand if v == value else v) for c, v in program.state)
            if all(o >= n for o in outputs):
                yield pruned(replace(redirected, outputs=outputs, state=state))


def _simpler_inputs(program: Program) -> Iterator[Program]:
    """Plain layouts, no gradients, float64."""

    def changed(number: int, **what: object) -> Program:
        inputs = list(program.inputs)
        inputs[number] = replace(inputs[number], **what)  # type: ignore[arg-type]
        return replace(program, inputs=tuple(inputs))

    for number, given in enumerate(program.inputs):
        if given.layout != "plain":
            yield changed(number, layout="plain")
        if given.grad:
            yield changed(number, grad=False)
    floats = {i.dtype for i in program.inputs if i.dtype.startswith(("float", "bfloat"))} - {"float64"}
    if floats:
        wide = tuple(replace(i, dtype="float64") if i.dtype in floats else i for i in program.inputs)
        yield replace(program, inputs=wide)


def _smaller(program: Program) -> Iterator[Program]:
    """One size becomes smaller wherever it stands: in shapes and in the text of steps."""
    sizes = sorted({n for i in program.inputs for n in i.shape if n > 1}, reverse=True)
    for size in sizes:
        for new in dict.fromkeys((1, 2, 3, size // 2, size - 1)):
            if 0 < new < size and size not in program.resize:
                yield resized(program, size, new, texts=False)
                yield resized(program, size, new)
