"""A program as data: inputs, steps and how to run them. It can be written as JSON and read back.

Each step is Python text with holes for its operands; its value gets the next number after the inputs' and earlier
steps'. The same text runs in torch and in PyFlame: `L` is the library.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

# How a program runs; what each does stands in run.py.
MODES = ("lazy", "eager", "portions", "again", "jit", "state", "checkpoint", "autocast", "train")
# Unit of the relative error that a program may have: several roundings of the dtype.
UNIT = {"float64": 1e-9, "float32": 1e-6, "float16": 1.5e-3, "bfloat16": 1.2e-2}
FLOATS = tuple(UNIT)


class Unfit(Exception):
    """A program that cannot be compared."""


@dataclass(frozen=True)
class Input:
    """A tensor made of random numbers. `kind`: normal, positive, unit, int, bool, or index:<n> for numbers below n."""

    shape: tuple[int, ...]
    dtype: str = "float64"
    kind: str = "normal"
    grad: bool = False
    layout: str = "plain"
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """`text` with {0}, {1}, ... for operands gives a value, or changes {0} in place if `write`.

    `guard` is text whose value says how far the operands are from where the step is discontinuous.
    """

    kind: str
    text: str
    operands: tuple[int, ...]
    guard: str = ""
    write: bool = False


@dataclass(frozen=True)
class Program:
    """`order`: of gradients, 0 to 2. `through`: how they are asked for. `part`: the values that a checkpoint computes,
    from and to. `state`: (input, value) pairs: what a cell holds after each call. `resize`: an extent and the next one.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    mode: str = "lazy"
    order: int = 0
    through: str = "backward"
    held: tuple[int, ...] = ()
    evaluated: tuple[int, ...] = ()
    part: tuple[int, int] = (0, 0)
    state: tuple[tuple[int, int], ...] = ()
    resize: tuple[int, int] = (0, 0)
    seed: int = 0

    @property
    def calls(self) -> int:
        # state that stays where it is is remembered after some calls
        return {"jit": 3, "state": 5, "train": 4}.get(self.mode, 1)

    @property
    def unit(self) -> float:
        names = [i.dtype for i in self.inputs if i.dtype in UNIT]
        names += [name for s in self.steps for name in UNIT if f"L.{name}" in s.text]
        names += ["bfloat16"] if self.mode == "autocast" else []
        return max((UNIT[n] for n in names), default=UNIT["float64"])

    def step_of(self, value: int) -> Step | None:
        return self.steps[value - len(self.inputs)] if value >= len(self.inputs) else None


def to_json(program: Program) -> str:
    return json.dumps(asdict(program))


def from_json(text: str) -> Program:
    raw = json.loads(text)

    def deep(value: Any) -> Any:
        return tuple(map(deep, value)) if isinstance(value, list) else value

    raw = {k: deep(v) for k, v in raw.items()}
    raw["inputs"] = tuple(Input(**{k: deep(v) for k, v in i.items()}) for i in raw["inputs"])
    raw["steps"] = tuple(Step(**{k: deep(v) for k, v in s.items()}) for s in raw["steps"])
    return Program(**raw)


def resized(program: Program, old: int, new: int, texts: bool = True) -> Program:
    """The program with another extent wherever this one stands: in shapes and, if wanted, in the text of steps."""
    inputs = tuple(replace(i, shape=tuple(new if n == old else n for n in i.shape)) for i in program.inputs)
    number = re.compile(rf"(?<![\w.{{-]){old}(?![\w.}}])")
    steps = tuple(replace(s, text=number.sub(str(new), s.text)) if texts else s for s in program.steps)
    return replace(program, inputs=inputs, steps=steps)


def needed(program: Program) -> set[int]:
    """Values that outputs and state depend on."""
    found: set[int] = set()
    stack = [*program.outputs, *[v for pair in program.state for v in pair]]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            step = program.step_of(value)
            stack += step.operands if step else ()
    return found


def renumbered(program: Program, moved: dict[int, int]) -> Program:
    """The program whose values have the numbers that `moved` says; those it does not name are gone."""

    def kept(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(moved[v] for v in values if v in moved)

    n = len(program.inputs)
    steps = [s for k, s in enumerate(program.steps) if n + k in moved]
    first = sum(v in moved for v in range(n))

    def cut(at: int) -> int:
        return first + sum(v in moved for v in range(n, at)) if at else 0

    return replace(
        program,
        inputs=tuple(i for k, i in enumerate(program.inputs) if k in moved),
        steps=tuple(replace(s, operands=tuple(moved[o] for o in s.operands)) for s in steps),
        outputs=kept(program.outputs),
        held=kept(program.held),
        evaluated=kept(program.evaluated),
        part=(cut(program.part[0]), cut(program.part[1])),
        state=tuple((moved[a], moved[b]) for a, b in program.state),
    )


def pruned(program: Program) -> Program:
    """Without what nothing depends on."""
    keep = sorted(needed(program))
    return renumbered(program, {value: number for number, value in enumerate(keep)})
