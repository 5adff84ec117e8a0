"""What a program must give: torch in float64, with a tolerance that is measured.

Every value of the oracle is disturbed by as much as the dtype may round, in several runs: how far results move says
how far a right answer may be off. A program whose integers or bools change by that, whose values grow too large or
that comes too close to a point where a step is discontinuous, is unfit: nothing can be said about it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.programs.data import Array
from tests.programs.program import FLOATS, Program, Unfit
from tests.programs.run import Result, Torch, execute

RUNS = 3
LARGEST = 1e4
LARGEST_HALF = 300.0  # of a program with 16-bit floats: products of two, and sums of many, must not overflow either
GAP = 30.0  # how many units a guard keeps from a discontinuity
SHORT = 3.0  # below float64 roundings inside of a step, and of its gradient, come on top: the oracle moves results only
LOOSE = 0.3  # a tolerance above this part of a result's size says nothing


class _Widened:
    """torch in which every float is float64, no index lies outside and no part of a product overflows."""

    @staticmethod
    def take_along_dim(x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
        """torch takes the remainder of an index that lies outside, in this one op; we refuse it."""
        if index.numel() and not -x.shape[dim] <= int(index.min()) <= int(index.max()) < x.shape[dim]:
            raise Unfit(f"an index outside of {x.shape[dim]} elements")
        return torch.take_along_dim(x, index, dim)

    @staticmethod
    def prod(x: torch.Tensor, **options: Any) -> torch.Tensor:
        """A 0 hides factors that overflow when they are multiplied apart from it: the order of a product is free."""
        if x.is_floating_point() and x.numel() and float(x.detach().abs().clamp(min=1).log().sum(**options).max()) > 69:
            raise Unfit("a product of some of the elements is above 1e30")
        return torch.prod(x, **options)

    def __getattr__(self, name: str) -> Any:
        return torch.float64 if name in ("float16", "bfloat16", "float32") else getattr(torch, name)


def apart(x: torch.Tensor, *axes: int) -> float:
    """The smallest distance between two elements along axes (of all, if none are named)."""
    if not x.numel():
        return 1.0
    flat = x.reshape(-1) if not axes else x.movedim(axes, tuple(range(-len(axes), 0))).flatten(-len(axes))
    gaps = flat.double().sort(-1)[0].diff(dim=-1)
    return float(gaps.min()) if gaps.numel() else 1.0


def off(x: torch.Tensor, *points: float) -> float:
    """The smallest distance from points. An exact 0 is not near 0: conventions agree there, and roundings keep it."""
    x = x.double().reshape(-1)
    gaps = [(x[x != 0] - p).abs() if p == 0 else (x - p).abs() for p in points]
    return min((float(g.min()) for g in gaps if g.numel()), default=1.0)


def inside(index: torch.Tensor, size: int) -> float:
    """0 where an index lies outside, as in a program of other extents: torch does not look if the result is empty."""
    return float(((index >= -size) & (index < size)).all())


class Oracle(Torch):
    """torch in float64; with `noise`, each value is moved by one unit up or down."""

    L = _Widened()
    watched = True
    float_dtype = torch.float64

    def __init__(self, program: Program, seen: dict[Any, Any] | None = None, seed: int = 0) -> None:
        super().__init__()
        self.unit = program.unit
        self.known = seen  # the discrete values of the undisturbed run, by (value, how often it came)
        self.seen: dict[Any, Any] = {}
        self.count: dict[int, int] = {}
        self.random = torch.Generator().manual_seed(seed)
        self.largest = LARGEST_HALF if self.unit > 1e-4 else LARGEST
        self.names.update(watch=self.watch, guard=self.guard, apart=apart, off=off, inside=inside)

    def guard(self, value: int, distance: float) -> None:
        if self.known is None and distance < GAP * self.unit:
            raise Unfit(f"value {value} is {distance:.1e} from a discontinuity")

    def watch(self, value: int, x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return tuple(self.watch(value, part) for part in x)
        if not x.is_floating_point():
            self._discrete(value, x)
            return x
        if x.requires_grad:  # torch's batch_norm mistakes a permuted gradient's layout for channels last
            x.register_hook(lambda g: None if g is None else g.contiguous())
        if self.known is None:
            if x.numel() and not float(x.detach().abs().max()) < self.largest:
                raise Unfit(f"value {value} is too large or not finite")
            return x
        sign = torch.randint(0, 2, x.shape, generator=self.random).double() * 2 - 1
        return x * (1 + self.unit * sign)

    def _discrete(self, value: int, x: torch.Tensor) -> None:
        key = (value, self.count.setdefault(value, 0))
        self.count[value] += 1
        self.seen[key] = x.clone()
        if self.known is not None and not torch.equal(self.known[key], x):
            raise Unfit(f"value {value} changes by a rounding")


@dataclass
class Expected:
    """One result: what it is, its numbers, how far off each may be, and its dtype where torch could tell."""

    name: str
    value: Array
    tolerance: Array
    dtype: str | None


def expected(program: Program) -> list[Expected]:
    """What the program must give, or Unfit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = Oracle(program)
        base = execute(program, plain)
        moved = [execute(program, Oracle(program, plain.seen, seed)) for seed in range(1, RUNS + 1)]
        narrow = _narrow(program, len(base))
    # A result that is 0 may come out as a rounding of what cancels, which is about as large as the inputs: 1.
    sizes = [_size(value) for _, value, _ in base if value.dtype.kind == "f"]
    least = 10 * program.unit * max([1.0, *sizes]) + 1e-12
    return [
        Expected(name, value, _tolerance(program, name, value, [m[n][1] for m in moved], least, own), dtype)
        for n, ((name, value, _), (own, dtype)) in enumerate(zip(base, narrow, strict=True))
    ]


def _size(value: Array) -> float:
    return float(np.sqrt(np.mean(value**2))) if value.size else 0.0


def _narrow(program: Program, count: int) -> list[tuple[Array | None, str | None]]:
    """Numbers and dtypes that torch gives in the program's own dtypes, where it has the ops for them."""
    floats = {i.dtype for i in program.inputs if i.dtype in FLOATS}
    if program.mode == "autocast" or (len(floats) > 1 and any(s.kind in ("loss", "einsum") for s in program.steps)):
        return [(None, None)] * count  # what torch makes of two dtypes follows no rule there, where it takes them
    try:
        return [(value, dtype) for _, value, dtype in execute(program, Torch())]
    except (RuntimeError, NotImplementedError):  # "not implemented for 'Half'", or sums that want one dtype
        return [(None, None)] * count


def _tolerance(program: Program, name: str, value: Array, moved: list[Array], least: float, own: Array | None) -> Array:
    """How far off each number may be. `own`: torch's numbers in the program's dtypes; gradients, and more so their
    gradients, cancel inside of a step, which moves no result of a step, and torch is as far off there."""
    if value.dtype.kind != "f":
        return np.zeros(value.shape)
    if not np.isfinite(value).all() or not all(np.isfinite(m).all() for m in moved):
        raise Unfit(f"{name} is not finite")
    if not value.size:
        return np.zeros(value.shape)
    far = np.max([np.abs(m - value) for m in moved], axis=0)
    size = _size(value)
    wide = 10 * far + 5 * np.quantile(far, 0.9) + 5 * program.unit * (np.abs(value) + size) + least
    if own is not None and program.order and np.isfinite(own).all():
        wide = wide + np.abs(own - value).max()
    # What cancels to nothing but roundings may be given away, but the next call must not compute with it.
    noise = " state " in name and float(np.median(far)) > LOOSE * size
    if noise or (size > 10 * least and float(np.median(wide)) > LOOSE * size):
        raise Unfit(f"{name} depends on roundings")
    return np.asarray(wide * (SHORT if program.unit > 1e-12 else 1.0))


def difference(got: list[Result], wanted: list[Expected]) -> str | None:
    """The first result that is wrong, in words."""
    names = [g[0] for g in got]
    if names != [w.name for w in wanted]:
        return _missing(got, wanted)
    for (name, value, dtype), want in zip(got, wanted, strict=True):
        if value.shape != want.value.shape:
            return f"{name}: shape {value.shape}, expected {want.value.shape}"
        if want.dtype is not None and dtype != want.dtype:
            return f"{name}: dtype {dtype}, expected {want.dtype}"
        wrong = ~(np.abs(value.astype(np.float64) - want.value) <= want.tolerance)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"{name}: {int(wrong.sum())} of {wrong.size} elements are wrong, the first at {at}: "
                f"{value[at]!s}, expected {want.value[at]!s} within {want.tolerance[at]:.1e}"
            )
    return None


def _missing(got: list[Result], wanted: list[Expected]) -> str | None:
    """Gradients that one side gives and the other leaves out must be 0."""
    ours, theirs = {g[0]: g[1] for g in got}, {w.name: w for w in wanted}
    rounding = max((float(w.tolerance.max(initial=0.0)) for w in wanted), default=0.0)
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            if np.abs(ours[name]).max(initial=0) > rounding:
                return f"{name}: torch has none"
        elif name not in ours and (np.abs(theirs[name].value) > theirs[name].tolerance).any():
            return f"{name}: missing"
    both = [n for n in ours if n in theirs]
    return difference([g for g in got if g[0] in both], [theirs[n] for n in both])
