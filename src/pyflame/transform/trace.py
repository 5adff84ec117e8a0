"""One trace of a function: which cells it reads and rebinds, and the nodes of what it computes.

While a function is traced every tensor cell that it reads becomes an input of the plan and every cell that it rebinds
becomes an output. `transform/traced_plan.py` plans a trace, `transform/replay.py` runs the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pyflame.autograd import Entry, Joint, Leaf
from pyflame.core.dtype import float32
from pyflame.core.generator import Generator
from pyflame.core.state import mode
from pyflame.ir import OPS, Node, const, placed
from pyflame.ir.opdef import CONST, LEAF
from pyflame.tensor import Tensor
from pyflame.tensor.views import root_of
from pyflame.transform.tracer import Cell, Tracer, evaluated, placeholder
from pyflame.transform.tree import flatten, is_tensor, is_traced, rebuild


class Trace(NamedTuple):
    """What a function reads, computes and changes."""

    result: Any  # what it returned, with tensors of the trace
    taped: list[bool]  # results that gradients could flow through
    arguments: list[Node]
    cells: list[Tensor]  # captured tensors that are no views,
    made: list[Node]  # and their placeholders
    grad_cells: list[tuple[Tensor, Node]]  # owners of captured gradients, and those gradients' placeholders
    views: list[tuple[Tensor, Tensor]]  # captured views, and the tensors at their roots
    rebound: list[Tensor]  # cells that get a new value,
    new_grads: list[Tensor]  # a new gradient, for which the memory of the old one may do where it has a node here,
    old_grads: list[Node | None]
    cleared: list[Tensor]  # or lose theirs
    written: list[int]  # arguments that get a new value
    had_grad: list[tuple[Tensor, bool]]  # cells that must have a .grad, or must not; of the others either will do
    nodes: list[Node]  # results, then the new values of `rebound`, `new_grads` and `written`
    successor: dict[Node, Node]  # placeholders of cells and gradients -> their new values
    guards: list[tuple[Any, str, Any]]  # owner, attribute and value
    draws: list[tuple[Generator, Node, Node]]  # random streams: generator, constants of seed and offset

    @property
    def returned(self) -> int:
        """How many of `nodes` are results."""
        return len(self.taped)


def trace_function(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], name: str
) -> Trace:
    """Call a function on placeholders of the tensors and floats (`leaves`) among its arguments."""
    tracer = Tracer(name)
    tensors = [_stand_in(number, value, tracer) for number, value in enumerate(leaves)]
    arguments = [t._node for t in tensors]
    it = iter(tensors)
    traced_args = tuple(rebuild(a, is_traced, it) for a in args)
    traced_kwargs = {k: rebuild(v, is_traced, it) for k, v in kwargs.items()}
    try:
        with mode(tracer=tracer, eager=False):
            result = fn(*traced_args, **traced_kwargs)
    finally:
        tracer.cut_links()
    return _Collector(tracer, arguments, [t._node for t in tensors]).run(result)


def _stand_in(number: int, value: Any, tracer: Tracer) -> Tensor:
    """A tensor of the trace for an argument."""
    if type(value) is float:
        node = const(value, float32)
        node.attrs = (number,)  # its value comes with each call: no rule may look at this one
    else:
        node = placeholder(evaluated(value), tracer.storage)
    tracer.known.add(node)
    cell = Tensor(node)
    if isinstance(value, Tensor) and isinstance(value._entry, Leaf):
        cell.requires_grad_()
    elif isinstance(value, Tensor) and value._entry is not None:  # computed: on the tape, but no leaf
        cell._entry = Joint("Traced", _ends_here, (), ()).part(node.meta)
    return cell


def _ends_here(*args: Any) -> list[Any]:
    """The gradient of an argument that was computed outside: jit_gradient.py goes on from there."""
    return []


class _Collector:
    """Reads a tracer when the function has returned. `ends`: what the arguments hold then."""

    def __init__(self, tracer: Tracer, arguments: list[Node], ends: list[Node]) -> None:
        self.tracer = tracer
        self.arguments = arguments
        self.ends = ends
        self.successor: dict[Node, Node] = {}

    def run(self, result: Any) -> Trace:
        tracer = self.tracer
        returned: list[Tensor] = []
        flatten(result, returned, is_tensor)
        nodes = [tracer.read(t) for t in returned]
        # a backward inside of the function has freed the entries that it used
        tapes = [tracer.entry(t) for t in returned]
        for cell in list(tracer.cells.values()):
            if cell.grad is not None and cell.grad is not cell.grad_before:
                tracer.read(cell.grad)
        with mode(tracer=None):
            nodes = [placed(n) for n in nodes]
            captured = [c for c in tracer.cells.values() if id(c.tensor) not in tracer.owner_of_grad]
            cells = [c for c in captured if not c.is_view]
            rebound = [c for c in cells if c.rebound]
            self.successor |= {c.made: c.node for c in rebound}
            grads = self._gradients()
            touched = self._touched(captured, grads)
            written = [number for number, node in enumerate(self.arguments) if self.ends[number] is not node]
            nodes += [c.node for c in rebound]
            new_grads = [tracer.read(c.grad) for c in touched if c.grad is not None]
            old_grads = [self._memory_for(node) for node in new_grads]
            nodes += new_grads
            nodes += [self.ends[number] for number in written]
        return Trace(
            result,
            [isinstance(entry, Entry) and not entry.freed for entry in tapes],
            self.arguments,
            [c.tensor for c in cells],
            [c.made for c in cells],
            [(owner.tensor, made) for owner, made in grads],
            [(c.tensor, root_of(c.tensor)) for c in tracer.cells.values() if c.is_view],
            [c.tensor for c in rebound],
            [c.tensor for c in touched if c.grad is not None],
            old_grads,
            [c.tensor for c in touched if c.grad is None],
            written,
            [(c.tensor, c.grad_before is not None) for c in captured if c.saw_grad],
            nodes,
            self.successor,
            list(tracer.guards.values()),
            tracer.draws,
        )

    def _gradients(self) -> list[tuple[Cell, Node]]:
        """Captured gradients: the cell that each belongs to, and its placeholder."""
        owners, cells = self.tracer.owner_of_grad, self.tracer.cells.items()
        return [(owner, c.made) for key, c in cells if (owner := owners.get(key)) is not None and not c.is_view]

    def _memory_for(self, node: Node) -> Node | None:
        """A leaf without data for the memory that a gradient of the call before leaves to the next one, unless that is
        read or is there already."""
        if node in self.successor.values() or node.op.kind in (LEAF, CONST):
            return None
        memory = Node(OPS["leaf"], (), (), node.meta, -1)
        self.successor[memory] = node
        return memory

    def _touched(self, captured: list[Cell], grads: list[tuple[Cell, Node]]) -> list[Cell]:
        """Cells whose gradient is another one, or has another value, than before."""
        in_place = set()
        for owner, made in grads:
            if owner.grad is not None and (node := self.tracer.read(owner.grad)) is not made:
                self.successor[made] = node
                in_place.add(owner)
        return [c for c in captured if c.grad is not c.grad_before or c in in_place]
