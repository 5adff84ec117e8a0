"""A program in the making: what kinds of steps (ops/) ask for operands, and add steps to."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch

from tests.programs.compare import Oracle
from tests.programs.data import LAYOUTS, numbers
from tests.programs.program import Input, Program, Step

SIZES = (1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 8, 13, 16, 17, 24, 33, 50)
LARGE = (33, 65, 129, 257, 300, 301)
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("float64",) * 6 + ("float32",) * 4 + ("float16", "bfloat16")


class Unsuited(Exception):
    """A kind of step that finds no operands here."""


class Draw:
    """A program in the making. Numbers of inputs are negative until it is done."""

    def __init__(self, seed: str, mode: str, small: bool) -> None:
        self.random = random.Random(seed)
        self.mode = mode
        self.most = 2500 if small else 40000  # elements of a value, where one is large
        self.limit = self.random.choice([300, 500, 2500] if small else [400, 4000, 40000])
        sizes = [self.random.choice(SIZES) for _ in range(3)]
        if self.chance(0.05):
            sizes.append(0)
        self.sizes = sizes
        self.dtype = self.random.choice(DTYPES)
        if mode in ("state", "train") and self.dtype not in ("float64", "float32"):
            self.dtype = "float64"
        if mode == "autocast":
            self.dtype = "float32"
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.values: list[Any] = []  # steps' first, renumbered when the program is done: inputs may come at any time
        self.input_values: list[torch.Tensor] = []
        self.focus = False  # choose the newest value that fits
        self.gone: set[int] = set()  # values that a write has replaced
        self.oracle = Oracle(Program((), (), ()))
        if self.chance(0.2 if small else 0.4):
            self._large()

    def _large(self) -> None:
        """Start with an input that has a large axis: kernels have other ways there."""
        self.limit = self.most
        large = self.random.choice(LARGE)
        self.sizes.append(large)
        shape = [large, *[self.size() for _ in range(self.integer(0, 2))]]
        self.random.shuffle(shape)
        if prod(shape) <= self.limit:
            self.input(tuple(shape))

    # --- chance

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def number(self) -> float:
        return round(self.random.choice([-1, 1]) * self.random.uniform(0.2, 1.8), 3)

    def size(self) -> int:
        return self.random.choice(self.sizes)

    # --- values. An input's number is negative until the program is done: -1 is the first.

    def __getitem__(self, value: int) -> torch.Tensor:
        found = self.input_values[-1 - value] if value < 0 else self.values[value]
        assert isinstance(found, torch.Tensor)
        return found

    def all(self) -> list[int]:
        numbered = [*range(-len(self.inputs), 0), *range(len(self.values))]
        return [v for v in numbered if v not in self.gone and (v < 0 or isinstance(self.values[v], torch.Tensor))]

    def find(self, test: Callable[[torch.Tensor], bool]) -> list[int]:
        return [v for v in self.all() if test(self[v])]

    def pick(self, found: list[int]) -> int:
        """One of these, rather a recent one."""
        if not found:
            raise Unsuited
        order = sorted(found)
        if self.focus:
            return order[-1]
        return self.random.choice(order[-2:] if self.chance(0.5) else order)

    def value(self, least: int = 0, most: int = 9, empty: bool = True) -> int:
        """A float tensor with a number of axes between these; an input if there is none."""
        found = self.find(lambda t: t.is_floating_point() and least <= t.ndim <= most and (empty or t.numel() > 0))
        if not found or (len(self.inputs) < 2 and not self.focus and self.chance(0.5)):
            return self.input(self.shape(least, min(most, 4), empty))
        return self.pick(found)

    def anything(self, least: int = 0, most: int = 9, empty: bool = True) -> int:
        """A tensor of any dtype, more often of floats."""
        found = self.find(lambda t: not t.is_floating_point() and least <= t.ndim <= most and (empty or t.numel() > 0))
        if self.focus or self.chance(0.85):
            return self.value(least, most, empty)
        if found and self.chance(0.7):
            return self.pick(found)
        dtype = self.one_of(*INTEGERS, "bool_")
        return self.input(self.shape(least, min(most, 4), empty), "bool" if dtype == "bool_" else "int", dtype)

    def discrete(self, least: int = 0) -> int:
        found = self.find(lambda t: not t.is_floating_point() and t.dtype != torch.bool and t.ndim >= least)
        if not found:
            return self.input(self.shape(least), "int", self.one_of(*INTEGERS))
        return self.pick(found)

    def mask(self, shape: tuple[int, ...]) -> int:
        """A bool that broadcasts to a shape."""
        found = self.find(lambda t: t.dtype == torch.bool and self.fits(t.shape, shape))
        return self.pick(found) if found and self.chance(0.7) else self.input(self.smaller(shape), "bool", "bool_")

    def like(self, shape: tuple[int, ...], exact: bool = False) -> int:
        """A float tensor that broadcasts to a shape, or has it."""
        found = self.find(
            lambda t: t.is_floating_point() and (t.shape == shape or (not exact and self.fits(t.shape, shape)))
        )
        if found and self.chance(0.75):
            return self.pick(found)
        return self.input(shape if exact else self.smaller(shape))

    def index(self, shape: tuple[int, ...], bound: int) -> int:
        """Whole numbers from 0 to below a bound: a computed value made to fit, or an input."""
        if bound < 1 and prod(shape):
            raise Unsuited
        found = self.find(lambda t: t.dtype == torch.int64 and tuple(t.shape) == shape)
        if found and self.chance(0.5):
            return self.step("index", f"L.remainder({{0}}, {max(bound, 1)})", self.pick(found))
        return self.input(shape, f"index:{bound}", "int64")

    def input(self, shape: tuple[int, ...], kind: str = "normal", dtype: str = "", grad: bool = True) -> int:
        if len(self.inputs) >= 12 or prod(shape) > self.limit:
            raise Unsuited
        dtype = dtype or (self.dtype if self.chance(0.95) else self.one_of("float64", "float32", self.dtype))
        smooth = dtype.startswith(("float", "bfloat"))
        layout = self.random.choice(LAYOUTS) if self.chance(0.4) else "plain"
        grad = grad and smooth and self.chance(0.7)
        made = Input(tuple(shape), dtype, kind, grad, layout, self.integer(0, 1 << 30))
        self.inputs.append(made)
        array = numbers(made, 0)
        wide = torch.from_numpy(array.astype("float64") if smooth else array.copy())
        self.input_values.append(wide)
        return -len(self.inputs)

    # --- shapes

    def shape(self, least: int = 0, most: int = 4, empty: bool = True) -> tuple[int, ...]:
        for _ in range(20):
            wanted = self.random.choice([n for n in (0, 1, 1, 2, 2, 2, 3, 3, 4, 5) if least <= n <= max(most, least)])
            out = tuple(1 if self.chance(0.08) else self.size() for _ in range(wanted))
            if prod(out) <= self.limit and (empty or prod(out)):
                return out
        raise Unsuited

    def smaller(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        out = tuple(1 if self.chance(0.2) else n for n in shape)
        return out[self.integer(0, len(out)) :] if self.chance(0.3) else out

    @staticmethod
    def fits(shape: Any, wanted: Any) -> bool:
        return len(shape) <= len(wanted) and all(
            a in (1, b) for a, b in zip(reversed(shape), reversed(wanted), strict=False)
        )

    def axis(self, x: int, empty: bool = False) -> int:
        """An axis, counted from either end."""
        shape = self[x].shape
        found = [a for a in range(len(shape)) if shape[a] or empty]
        if not found:
            raise Unsuited
        axis = self.random.choice(found)
        return axis - len(shape) if self.chance(0.4) else axis

    def axes(self, x: int) -> tuple[int, ...]:
        n = self[x].ndim
        return tuple(self.random.sample(range(n), self.integer(1, n))) if n else ()

    # --- steps

    def step(self, kind: str, text: str, *operands: int, guard: str = "", write: bool = False) -> int:
        """Execute a step in torch and keep it if it is well behaved; gives its value's number."""
        step = Step(kind, text, operands, guard, write)
        given = [self.values[o] if o >= 0 else self.input_values[-1 - o] for o in operands]
        names = {f"x{n}": x.clone() if write and n == 0 else x for n, x in enumerate(given)}
        scope = {**self.oracle.names, "L": self.oracle.L, "float": float, **names}
        self.oracle.unit = self.program().unit
        if guard:
            self.oracle.guard(0, eval(guard.format(*names), scope))
        if write:
            exec(text.format(*names), scope)
            out = scope["x0"]
            self.gone.add(operands[0])
        else:
            out = eval(text.format(*names), scope)
        self._check(out)
        self.steps.append(step)
        self.values.append(out)
        return len(self.values) - 1

    def _check(self, out: Any) -> None:
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if x.numel() > self.limit or x.ndim > 6:
                raise Unsuited
            largest = 100.0 if self.dtype in ("float16", "bfloat16") else 1000.0
            if x.is_floating_point() and x.numel() and not float(x.abs().max()) < largest:
                raise Unsuited

    def parts(self, value: int) -> None:
        """One or more parts of a step that gives several values become values themselves."""
        count = len(self.values[value])
        for n in self.random.sample(range(count), self.integer(1, min(count, 3))):
            self.step("part", f"{{0}}[{n}]", value)

    def program(self) -> Program:
        """What there is so far, without outputs."""
        n = len(self.inputs)

        def number(value: int) -> int:
            return -1 - value if value < 0 else value + n

        steps = [replace(s, operands=tuple(map(number, s.operands))) for s in self.steps]
        return Program(tuple(self.inputs), tuple(steps), (), self.mode)
