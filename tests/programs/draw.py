"""Draws the program of a seed: a mode, inputs, steps that torch can execute, outputs."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import torch

from tests.programs.builder import Draw, Unsuited
from tests.programs.compare import Expected, expected
from tests.programs.ops import KINDS
from tests.programs.program import MODES, Program, Unfit

ATTEMPTS = 12
GROUPS = {
    "light": ["unary", "binary", "scalar", "where", "powers", "clamp", "random"],
    "shape": ["reshape", "permute", "expand", "reorder", "pad", "view", "cut", "windows", "join", "parts"],
    "reduce": ["reduction", "one_axis", "softmax", "norm", "loss"],
    "heavy": ["matmul", "gram", "linear", "einsum", "convolution", "attention", "pool"],
    "index": ["select", "gather", "embedding", "scatter", "advanced", "cumulative", "ordering"],
    "cut": ["cut", "view", "windows", "parts", "triangle", "pad"],
    "write": ["in_place", "assign"],
    "any": list(KINDS),
}
CHAINS = (
    ("heavy", "cut", "light"), ("heavy", "cut", "light"), ("heavy", "cut", "reduce"), ("reduce", "cut", "light"),
    ("heavy", "shape", "light"), ("shape", "heavy", "light"), ("heavy", "reduce", "light"),
    ("light", "reduce", "light"), ("reduce", "light", "reduce"), ("light", "shape", "reduce"),
    ("index", "light", "heavy"), ("heavy", "light", "index"),
    ("heavy", "light", "write", "light"), ("light", "write", "shape", "reduce"), ("shape", "index", "reduce"),
    ("light", "light", "reduce", "light", "heavy"), ("heavy", "heavy", "light"), ("reduce", "reduce", "light"),
)  # fmt: skip


def _finish(d: Draw, seed: int) -> Program:
    """Outputs, gradients and what the mode needs."""
    program = d.program()
    n = len(d.inputs)
    numbered = [v if v < 0 else v + n for v in d.all()]
    made = [v for v in numbered if v >= n]
    read = {o for s in program.steps for o in s.operands}
    ends = [v for v in made if v not in read]
    outputs = sorted(
        {
            *d.random.sample(ends, min(len(ends), d.integer(1, 3))),
            *d.random.sample(made, min(2, len(made) - 1) if d.chance(0.15) else 0),
        }
    )
    if not outputs:
        raise Unsuited
    order = d.random.choice([0, 1, 1, 1, 2])
    program = replace(program, outputs=tuple(outputs), order=order, seed=seed)
    program = replace(program, through=d.one_of("backward", "backward", "autograd", "function"))
    program = replace(
        program,
        held=tuple(v for v in made if d.chance(0.08)) if d.mode in ("lazy", "eager", "portions", "again") else (),
    )
    written = {o for s in program.steps if s.write for o in s.operands[:1]}
    if d.mode == "portions":
        program = replace(program, evaluated=tuple(v for v in made if d.chance(0.3)))
    if d.mode in ("jit", "state"):
        program = replace(program, through="autograd")
    if d.mode == "state":
        program = _with_state(d, program, written)
    if d.mode == "checkpoint":
        first, end = sorted(d.random.choices(range(n, n + len(program.steps) + 1), k=2))
        if first == end or written:
            raise Unsuited
        program = replace(program, part=(first, end), order=max(1, order))
    if d.mode == "train":
        if not any(i.grad for i in program.inputs):
            raise Unsuited
        program = replace(program, order=0, through=d.one_of("jit", "plain"))
    return program


def _with_state(d: Draw, program: Program, written: set[int]) -> Program:
    """Some inputs become cells: those that are written to, and others that take a value at the end of a call."""
    n = len(d.inputs)
    pairs = []
    for cell, given in enumerate(program.inputs):
        value = cell
        for k, step in enumerate(program.steps):
            if step.write and step.operands[0] == value:
                value = n + k
        if value == cell:
            same = [v for v in range(n, n + len(d.values)) if v - n in d.all() and _alike(d[v - n], d[-1 - cell])]
            if not same or given.dtype != d.dtype:
                continue
            value = d.random.choice(same)
        if d.chance(0.7):
            pairs.append((cell, value))
    if not pairs:
        raise Unsuited
    inputs = tuple(replace(i, grad=i.grad and k not in dict(pairs)) for k, i in enumerate(program.inputs))
    return replace(program, inputs=inputs, state=tuple(pairs))


def _resizable(d: Draw, program: Program) -> tuple[Program, list[Expected]]:
    """The program with an extent that may change."""
    sizes = sorted({n for i in program.inputs for n in i.shape if n > 1})
    for old in d.random.sample(sizes, len(sizes)):
        candidate = replace(program, resize=(old, old + d.one_of(-1, 1, 3)))
        with suppress(Unfit, RuntimeError, ValueError, IndexError):
            return candidate, expected(candidate)
    raise Unsuited


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _steps(d: Draw, wanted: int) -> None:
    """Add so many steps: of any kind on any value, and chains of kinds that fuse, each on the last value."""
    chain: list[str] = []
    tries = 80
    while (len(d.steps) < wanted or chain) and tries:
        if not chain:
            d.focus = False
            chain = list(d.one_of(*CHAINS) if d.chance(0.7) else ["any"])
        names = GROUPS[chain[0]]
        name = d.random.choices(names, [KINDS[n][1] for n in names])[0]
        before = len(d.steps), len(d.inputs), set(d.gone)
        tries -= 1
        try:
            KINDS[name][0](d)
            del chain[0]
            d.focus = True
        except (Unsuited, Unfit, RuntimeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError):
            _undo(d, *before)


def _undo(d: Draw, steps: int, inputs: int, gone: set[int]) -> None:
    del d.steps[steps:], d.values[steps:], d.inputs[inputs:], d.input_values[inputs:]
    d.gone = gone


def draw(seed: int, small: bool = False, modes: tuple[str, ...] = MODES) -> tuple[Program, list[Expected]] | None:
    """The program of a seed and what it must give; None if all attempts came out unfit."""
    for attempt in range(ATTEMPTS):
        mode = modes[random.Random(f"{seed} mode").randrange(len(modes))]
        d = Draw(f"{seed} {attempt}", mode, small)
        short = small or d.dtype in ("float16", "bfloat16") or mode == "autocast"
        _steps(d, d.integer(2, 6 if short or d.chance(0.5) else 18))
        try:
            program = _finish(d, seed)
            return _resizable(d, program) if mode == "again" else (program, expected(program))
        except (Unsuited, Unfit, RuntimeError, ValueError, IndexError):
            continue
    return None
