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
from pyflame.tensor.tensor import exchange


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
    node = evaluated(tensor)
    strides, device = node.data.strides, node.meta.device
    if strides is not None and not any(strides) and device is not None and device.kind not in ("cpu", "null"):
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
    """A tensor from outside, as a trace sees it. `made`: the placeholder of its value; `node`: what it holds now."""

    __slots__ = ("entry", "grad", "grad_before", "made", "node", "saw_grad", "tensor")

    def __init__(self, tensor: Tensor, made: Node) -> None:
        self.tensor = tensor
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

    def cell(self, tensor: Tensor) -> Cell | None:
        """What the trace knows of a tensor from outside; None: it is one of the trace's own."""
        found = self.cells.get(id(tensor))
        if found is None and tensor._node not in self.known:
            with mode(tracer=None, recorder=None):
                made = placeholder(settled(tensor), self.storage)
            found = self.cells[id(tensor)] = Cell(tensor, made)
            if found.grad is not None:
                self.owner_of_grad[id(found.grad)] = found
        return found

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
