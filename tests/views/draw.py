"""Random programs of views and in-place writes, as lines of Python that torch and PyFlame both run.

Drawing runs each line in torch: what torch refuses is no line of a program. `m` is the library; tensors are t0, t1, ...
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.needs import torch

SHAPES = [(6,), (2, 3), (3, 4), (2, 3, 4), (1, 4), (4, 1, 3), (2, 2, 2, 3), (5,), (3, 5), ()]


@dataclass
class Program:
    """Shapes of the tensors it starts with, its lines, and the names that live behind each."""

    shapes: list[tuple[int, ...]]
    gradients: bool
    lines: list[str] = field(default_factory=list)
    live: list[list[str]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"# bases {self.shapes}, gradients: {self.gradients}", *self.lines])


class Drawing:
    """A program under way."""

    def __init__(self, seed: int, steps: int, gradients: bool) -> None:
        self.random = random.Random(seed)
        self.program = Program([self.random.choice(SHAPES) for _ in range(2)], gradients)
        self.names = start(torch, self.program)
        self.count = len(self.program.shapes)
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        kind = self.random.choices(("view", "write", "copy", "drop"), (45, 40, 10, 5))[0]
        name = self.random.choice(sorted(self.tensors()))
        line = getattr(self, "draw_" + kind)(name, self.names[name])
        if line is None:
            return
        before = {n: t.detach().clone() for n, t in self.tensors().items()}
        try:
            exec(line, {"m": torch}, self.names)
        except (RuntimeError, IndexError):
            for n, value in before.items():  # what torch refused may be half done
                if not torch.equal(self.names[n].detach(), value):
                    raise
            return
        self.program.lines.append(line)
        self.program.live.append(sorted(self.tensors()))

    def tensors(self) -> dict[str, Any]:
        return {n: t for n, t in self.names.items() if n.startswith("t")}

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def number(self) -> float:
        return self.random.choice((-1.5, 0.5, 2.0, 3.0, -1.0))

    # --- lines ------------------------------------------------------------------------------------------------------

    def draw_view(self, name: str, t: Any) -> str | None:
        new, rank = self.fresh(), t.dim()
        axis = self.random.randrange(-rank, rank) if rank else 0
        other = self.random.randrange(-rank, rank) if rank else 0
        size = t.shape[axis] if rank else 1
        cut = self.random.randrange(size + 1) if rank else 0
        choices = [f"[{self.key(t)}]", ".detach()", ".data", ".view(-1)", ".reshape(-1)", f".unsqueeze({other})"]
        choices += [".squeeze()", ".contiguous()", ".flatten()", f".reshape{self.shape(t.numel())}", ".view_as(" + name]
        choices[-1] += ")"
        if rank:
            choices += [f"[{self.key(t)}]"] * 3
            choices += [f".transpose({axis}, {other})", f".narrow({axis}, {cut}, {size - cut})", f".squeeze({axis})"]
            choices += [f".select({axis}, {cut})", f".movedim({axis}, {other})"]
            choices += [] if overlaps(t) else [f".unfold({axis}, {cut or 1}, 2)"]
            choices += [f".permute{tuple(self.random.sample(range(rank), rank))}".replace(",)", ")")]
            if not self.program.gradients:  # torch's tape knows no writes to one of several views made at once
                choices += [f".chunk(2, {axis})[-1]", f".split({max(1, cut)}, {axis})[0]", f".unbind({axis})[0]"]
                choices += [f".tensor_split(2, {axis})[0]"]
            choices += [f".unfold({axis}, {max(1, cut // 2)}, 1)"]
            choices += [f".expand{tuple(3 if n == 1 else -1 for n in t.shape)}", f".flatten({min(axis, other)})"]
            choices += [f".unflatten({axis}, (1, {size}))", ".mT" if rank > 1 else "[:]", ".T" if rank == 2 else "[:]"]
        if rank > 1 and axis % rank != other % rank and not overlaps(t):
            choices += [f".diagonal({self.random.randrange(-1, 2)}, {axis}, {other})"] * 2
        return f"{new} = {name}{self.random.choice(choices)}"

    def shape(self, size: int) -> str:
        parts = [d for d in (1, 2, 3, 4) if size % d == 0] if size else [1]
        first = self.random.choice(parts)
        return f"({first}, {size // first})"

    def key(self, t: Any) -> str:
        """A basic index."""
        parts = []
        for size in t.shape[: self.random.randrange(t.dim() + 1)]:
            start = self.random.randrange(-size - 1, size + 1)
            kinds = [f"{start}:", f":{start}", f"::{self.random.randrange(1, 3)}", ":", f"{start}:{start + 2}"]
            if size:
                kinds += [str(self.random.randrange(-size, size))] * 3
            parts.append(self.random.choice(kinds))
        if self.random.random() < 0.2:
            parts.insert(self.random.randrange(len(parts) + 1), "None")
        if self.random.random() < 0.2:
            parts.insert(self.random.randrange(len(parts) + 1), "...")
        return ", ".join(parts) or "..."

    def draw_write(self, name: str, t: Any) -> str | None:
        same = [n for n, u in self.tensors().items() if u.shape == t.shape]
        like = self.random.choice(same)
        key = self.key(t)
        lines = [
            f"{name}.add_({self.number()})", f"{name}.mul_({self.number()})", f"{name}.fill_({self.number()})",
            f"{name}.zero_()", f"{name}[{key}] = {self.number()}", f"{name}[{key}] += {self.number()}",
            f"{name}[{key}] *= {self.number()}", f"{name}.copy_({like}.clone())", f"{name} += {like}.clone()",
            f"{name}.sub_({like}.clone(), alpha=2)", f"{name}[{key}] = {name}[{key}].clone() * 2",
            f"{name}.clamp_(-20.0, 20.0)", f"{name}[...] = {like}.clone()", f"{name}.data.mul_({self.number()})",
            f"{name}.detach()[{key}] = {self.number()}", f"{name}[{key}].sub_({self.number()})",
            f"{name}.masked_fill_({name}.detach() > 2, {self.number()})",
        ]  # fmt: skip
        if overlaps(t):  # torch refuses, will refuse some day, or leaves it open what happens
            lines = [f"{name}.fill_({self.number()})", f"{name}.zero_()", f"{name}[...] = {self.number()}"]
        elif t.dim():
            lines += [f"{name}[[0]] = {self.number()}", f"{name}[{name} > 1] = {self.number()}"]
            lines += [] if self.program.gradients else [f"for row in {name}: row.mul_({self.number()})"]
        line = self.random.choice(lines)
        if self.program.gradients and self.random.random() < 0.3:
            return f"with m.no_grad(): {line}"
        return line

    def draw_copy(self, name: str, t: Any) -> str | None:
        new = self.fresh()
        kinds = [".clone()", " * 2.0", " + 1.0"]
        if t.dim():
            kinds += [".flip(0)", "[[0, 0]]", ".repeat(" + ", ".join(["2"] * t.dim()) + ")"]
        return f"{new} = {name}{self.random.choice(kinds)}"

    def draw_drop(self, name: str, t: Any) -> str | None:
        return f"del {name}" if len(self.tensors()) > 2 else None


def overlaps(t: Any) -> bool:
    """Whether two elements share a place in memory."""
    places = torch.zeros(t.shape, dtype=torch.int64)
    for axis, (n, step) in enumerate(zip(t.shape, t.stride(), strict=True)):
        places += (torch.arange(n) * step).reshape(-1, *[1] * (t.dim() - axis - 1))
    return len(places.unique()) < t.numel()


def start(m: Any, program: Program) -> dict[str, Any]:
    """The names a program starts with; with gradients the tensors are computed from leaves x0, x1, ..."""
    names: dict[str, Any] = {}
    for i, shape in enumerate(program.shapes):
        size = 1
        for n in shape:
            size *= n
        value = (m.arange(size, dtype=m.float64) % 7 - 3).reshape(shape).clone()
        if program.gradients:
            names[f"x{i}"] = value.requires_grad_()
            value = value * 1.0
        names[f"t{i}"] = value
    return names


def run(m: Any, lines: list[str], names: dict[str, Any]) -> None:
    for line in lines:
        exec(line, {"m": m}, names)


def draw(seed: int, steps: int = 14, gradients: bool = False) -> Program:
    return Drawing(seed, steps, gradients).program
