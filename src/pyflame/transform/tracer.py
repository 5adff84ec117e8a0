"""The tracer: which cells a function touches while it is traced, and what they hold in the trace.

Other threads read and write the same cells meanwhile, so nothing of the trace is put into them: the thread that traces
reads and writes a cell's value, tape and gradient here, by way of `state.tracer`.
"""

from __future__ import annotations

from typing import Any

from pyflame.autograd import Entry, Leaf
from pyflame.core.errors import TraceError
from pyflame.core.generator import Generator
from pyflame.core.state import mode
from pyflame.engine.evaluate import evaluate
from pyflame.engine.value import Value
from pyflame.ir import OPS, F, Node, placed, signature
from pyflame.ir.node import user_line
from pyflame.ir.opdef import LEAF
from pyflame.tensor import Tensor
from pyflame.tensor.paths import Path, follow
from pyflame.tensor.tensor import alias, exchange


class _NotThere:
    """The memory of a value that exists only while its plan runs: touching it means that a traced tensor escaped."""

    nbytes = 0
    on_host = read_only = True

    def __init__(self, function: str) -> None:
        self.function = function

    @property
    def address(self) -> int:
        raise TraceError(
            f"[jit] expected a tensor with a value but this one was made while {self.function} was traced, and "
            f"is used outside of it at {user_line()}; return it from the function, or assign it to a tensor made before"
        )


def placeholder(node: Node, storage: _NotThere | None = None) -> Node:
    """A leaf of the same shape, dtype, device and strides, whose value comes when the plan runs."""
    strides = node.data.strides
    value = Value(storage, 0, strides)
    return Node(OPS["leaf"], (), (), node.meta, signature("leaf", node.meta, strides), value)


def evaluated(tensor: Tensor) -> Node:
    """The tensor's node as a leaf."""
    node = tensor._node
    if node.op.kind != LEAF:
        node = exchange(tensor, node, placed(node))
        evaluate([node])
    return node


def argument(tensor: Tensor) -> Node:
    """The node of an argument as a leaf. On a GPU one number seen under a shape is written out: graphs copy bytes."""
    node = tensor._node
    if node.op.kind == LEAF and node.data.strides is None:  # as most are
        return node
    node = evaluated(tensor)
    strides, device = node.data.strides, node.meta.device
    if strides is not None and not any(strides) and device is not None and device.numbered:
        node = exchange(tensor, node, F.clone(node))
        evaluate([node])
    return node


def settled(cell: Tensor) -> Node:
    """The node of a captured cell as a leaf in row-major memory, so that its layout is no reason to trace again."""
    node = evaluated(cell)
    if node.data.strides is not None:
        node = exchange(cell, node, F.clone(node))
        evaluate([node])
    return node


class Cell:
    """A tensor from outside, as a trace sees it. `made`: the placeholder of its value; `node`: what it holds now.

    A view is read from the tensor at its root, so `made` of a view is no input of the plan.
    """

    __slots__ = ("entry", "grad", "grad_before", "is_view", "made", "node", "saw_grad", "tensor")

    def __init__(self, tensor: Tensor, made: Node, is_view: bool = False) -> None:
        self.tensor = tensor
        self.is_view = is_view
        self.made = self.node = made
        self.entry = tensor._entry
        self.grad = self.grad_before = tensor._grad
        self.saw_grad: bool | None = None  # whether its .grad was read before it was written; None: neither

    @property
    def rebound(self) -> bool:
        return self.node is not self.made


class Tracer:
    """Watches the cells that a function touches."""

    def __init__(self, function: str) -> None:
        self.storage = _NotThere(function)
        self.known: set[Node] = set()  # nodes made by the trace
        self.cells: dict[int, Cell] = {}  # by the id of the tensor
        self.owner_of_grad: dict[int, Cell] = {}
        self.draws: list[tuple[Generator, Node, Node]] = []  # random streams: generator, constants of seed and offset
        self.guards: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self.links: list[Tensor] = []  # views made by the trace

    def cell(self, tensor: Tensor) -> Cell | None:
        """What the trace knows of a tensor from outside; None: it is one of the trace's own."""
        found = self.cells.get(id(tensor))
        if found is None and tensor._node not in self.known:
            if (link := tensor._link) is not None and link.parent is not None:
                found = Cell(tensor, self._view(link.parent, link.path), is_view=True)
            else:
                with mode(tracer=None, recorder=None):
                    found = Cell(tensor, placeholder(settled(tensor), self.storage))
            self.cells[id(tensor)] = found
            if found.grad is not None:
                self.owner_of_grad[id(found.grad)] = found
        return found

    def _view(self, parent: Tensor, path: Path) -> Node:
        """What a view from outside reads from its parent in the trace, as a Node of its own."""
        node = self.read(parent)
        with mode(recorder=None):
            return follow(node, path) if path else alias(node)

    def cut_links(self) -> None:
        """Let nothing outside know the views that were made by the trace: they have no values."""
        made = {id(view) for view in self.links}
        links = [view._link for view in self.links if view._link is not None]
        for above in {id(link.parent): link.parent._link for link in links if link.parent is not None}.values():
            if above is not None:
                above.remove(made)
        for view in self.links:
            view._link = None

    def follows(self, view: Tensor) -> bool:
        """Whether the trace knows a view; one that it does not know yet is read when it is needed."""
        return id(view) in self.cells or view._node in self.known

    def read(self, tensor: Tensor) -> Node:
        found = self.cell(tensor)
        return tensor._node if found is None else found.node

    def entry(self, tensor: Tensor) -> Entry | Leaf | None:
        """Its place on the tape."""
        found = self.cells.get(id(tensor))
        return tensor._entry if found is None else found.entry

    def write(self, tensor: Tensor, node: Node, entry: Entry | Leaf | None) -> None:
        """A cell takes another value."""
        target = self.cell(tensor)
        if target is None:
            self.known.add(node)
            tensor._node, tensor._entry = node, entry
        else:
            target.node, target.entry = node, entry

    def grad(self, tensor: Tensor) -> Tensor | None:
        """Its .grad. Whether there is one matters to the trace only if it is read before it is written."""
        found = self.cell(tensor)
        if found is None:
            return tensor._grad
        found.saw_grad = True if found.saw_grad is None else found.saw_grad
        return found.grad

    def write_grad(self, tensor: Tensor, value: Tensor | None) -> None:
        target = self.cell(tensor)
        if target is None:
            tensor._grad = value
            return
        target.saw_grad = bool(target.saw_grad)
        target.grad = value

    def guard(self, owner: Any, attribute: str) -> None:
        """The trace depends on this attribute: another value of it needs another trace."""
        if (id(owner), attribute) not in self.guards:
            with mode(tracer=None):
                self.guards[id(owner), attribute] = (owner, attribute, getattr(owner, attribute))

    def drew(self, generator: Generator, seed: Node, offset: Node) -> None:
        """A random stream was taken: each replay takes a new one."""
        self.draws.append((generator, seed, offset))

    def escaped(self, what: str) -> None:
        raise TraceError(
            f"[jit] expected a function of tensors but {what} asks for a value that exists only when the plan runs, "
            f"at {user_line()}; "
            "return the tensor instead, use pf.where for a choice, or name the argument in static_argnums"
        )
