"""The table that `Module.summary` shows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyflame.core.sizes import human_bytes
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad

if TYPE_CHECKING:
    from pyflame.nn.module import Module


@dataclass(frozen=True)
class Row:
    """One layer: where it stands in the tree, what it gives, and the parameters of its own."""

    name: str
    kind: str
    depth: int
    output: str
    parameters: int
    nbytes: int


@dataclass(frozen=True)
class Summary:
    """Rows of a model and its totals. Tied weights count once. Printing it shows the table."""

    rows: tuple[Row, ...]
    parameters: int
    trainable: int
    nbytes: int
    buffer_nbytes: int
    ran: bool

    def __str__(self) -> str:
        from rich.console import Console  # here: a program that prints no table needs none of it
        from rich.table import Table

        table = Table(show_edge=False, pad_edge=False)
        table.add_column("layer")
        table.add_column("kind")
        if self.ran:
            table.add_column("output")
        table.add_column("parameters", justify="right")
        table.add_column("size", justify="right")
        for row in self.rows:
            counts = (f"{row.parameters:,}", human_bytes(row.nbytes)) if row.parameters else ("", "")
            output = (row.output,) if self.ran else ()
            table.add_row("  " * row.depth + row.name, row.kind, *output, *counts)
        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(table, markup=False)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        total = f"{self.parameters:,} parameters ({self.trainable:,} trainable), {human_bytes(self.nbytes)}"
        if self.buffer_nbytes:
            total += f"; buffers {human_bytes(self.buffer_nbytes)}"
        return "\n".join([*lines, total])

    __repr__ = __str__


def _shapes(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(value.shape)
    if isinstance(value, (list, tuple)):
        return ", ".join(filter(None, map(_shapes, value)))
    if isinstance(value, dict):
        return ", ".join(filter(None, map(_shapes, value.values())))
    return ""


@contextmanager
def _evaluation_mode(module: Module) -> Iterator[None]:
    before = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for m, training in before:
            m.training = training


def _outputs(module: Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> dict[Module, str]:
    """The shapes that each module gives. Tensors are lazy, so nothing else is computed."""
    found: dict[Module, str] = {}

    def note(m: Module, args: Any, output: Any) -> None:
        found[m] = _shapes(output)

    handles = [m.register_forward_hook(note) for m in module.modules()]
    try:
        with no_grad(), _evaluation_mode(module):
            module(*inputs, **named)
    finally:
        for handle in handles:
            handle.remove()
    return found


def summarize(module: Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Summary:
    """The rows of a module, in the order of its tree."""
    ran = bool(inputs or named)
    outputs = _outputs(module, inputs, named) if ran else {}
    rows: list[Row] = []
    seen: set[int] = set()
    for name, m in module.named_modules():
        own = [p for p in m._parameters.values() if p is not None and id(p) not in seen]
        seen.update(map(id, own))
        path = name.split(".") if name else []
        rows.append(
            Row(
                path[-1] if path else "",
                type(m).__name__,
                len(path),
                outputs.get(m, ""),
                sum(p.numel() for p in own),
                sum(p.nbytes for p in own),
            )
        )
    parameters = list(module.parameters())
    return Summary(
        tuple(rows),
        sum(p.numel() for p in parameters),
        sum(p.numel() for p in parameters if p.requires_grad),
        sum(p.nbytes for p in parameters),
        sum(b.nbytes for b in module.buffers()),
        ran,
    )
