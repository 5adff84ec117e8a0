"""One trace of a function: which cells it reads and rebinds, the plan of what it computes, and how to replay it.

While a function is traced every tensor cell that it reads becomes an input of the plan and every cell that it rebinds
becomes an output. A cell that is both gives its buffer to its new value, where nobody else can see that buffer.
A bad index leaves such cells as they were; only what was assigned to a part of one before (`cell[i] = x`) is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyflame.autograd import Leaf
from pyflame.core import knobs
from pyflame.core.dtype import float32, int64
from pyflame.core.errors import TraceError
from pyflame.core.generator import Generator
from pyflame.core.state import mode, state
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import PendingGraph, evaluate, plan_graph
from pyflame.engine.launch import Runner, replayed, runner_for
from pyflame.engine.report import debug_print
from pyflame.engine.value import Value
from pyflame.ir import OPS, F, Node, const, signature
from pyflame.ir.declare import wrap_int
from pyflame.ir.node import user_line
from pyflame.ir.opdef import LEAF
from pyflame.tensor import Tensor
from pyflame.transform.tree import flatten, is_tensor, is_traced, rebuild


class _NotThere:
    """The memory of a value that exists only while its plan runs: touching it means that a traced tensor escaped."""

    nbytes = 0
    read_only = True

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
        if node.meta.device is None:
            node = tensor._node = F.clone(node)
        evaluate([node])
    return node


def settled(cell: Tensor) -> Node:
    """The node of a captured cell as a leaf in row-major memory, so that its layout is no reason to trace again."""
    node = evaluated(cell)
    if node.data.strides is not None:
        node = cell._node = F.clone(node)
        evaluate([node])
    return node


class Tracer:
    """Watches the cells that a function touches."""

    def __init__(self, function: str) -> None:
        self.storage = _NotThere(function)
        self.known: set[Node] = set()  # nodes made by the trace
        self.cells: dict[int, tuple[Tensor, Node, Node]] = {}  # id -> cell, its node before, its placeholder
        self.grads_before: dict[int, Tensor | None] = {}
        self.owner_of_grad: dict[int, Tensor] = {}
        self.saw_grad: dict[int, bool] = {}  # id of a cell -> whether its .grad was read before it was written
        self.draws: list[tuple[Generator, Node, Node]] = []  # random streams: generator, constants of seed and offset
        self.guards: dict[tuple[int, str], tuple[Any, str, Any]] = {}

    def read(self, tensor: Tensor) -> Node:
        node = tensor._node
        if node in self.known:
            return node
        with mode(tracer=None, recorder=None):
            before = settled(tensor)
        made = placeholder(before, self.storage)
        self._remember(tensor, before, made)
        tensor._node = made
        self.known.add(made)
        return made

    def _remember(self, tensor: Tensor, before: Node, made: Node) -> None:
        self.cells[id(tensor)] = (tensor, before, made)
        self.grads_before[id(tensor)] = tensor._grad
        if tensor._grad is not None:
            self.owner_of_grad[id(tensor._grad)] = tensor

    def rebound(self, tensor: Tensor) -> None:
        """A cell is about to take another value."""
        if tensor._node not in self.known:
            self.read(tensor)

    def touched_grad(self, tensor: Tensor, wrote: bool) -> None:
        """A cell's .grad is read or written. Whether it was there matters to the trace only if it is read first."""
        self.rebound(tensor)
        if id(tensor) in self.cells:
            self.saw_grad.setdefault(id(tensor), not wrote)

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

    def restore(self) -> None:
        for key, (tensor, before, _) in self.cells.items():
            tensor._node = before
            tensor._grad = self.grads_before[key]


class Traced:
    """One signature's plan and where its inputs and outputs live."""

    runner: Runner

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], name: str
    ) -> None:
        tracer = Tracer(name)
        feeds: list[Node] = []
        tensors: list[Any] = []
        for number, value in enumerate(leaves):
            if type(value) is float:
                node = const(value, float32)
                node.attrs = (number,)  # its value comes with each call: no rule may look at this one
            else:
                node = placeholder(evaluated(value), tracer.storage)
            tracer.known.add(node)
            feeds.append(node)
            cell = Tensor(node)
            if isinstance(value, Tensor) and isinstance(value._entry, Leaf):
                cell.requires_grad_()
            tensors.append(cell)
        it = iter(tensors)
        traced_args = tuple(rebuild(a, is_traced, it) for a in args)
        traced_kwargs = {k: rebuild(v, is_traced, it) for k, v in kwargs.items()}
        try:
            with mode(tracer=tracer, eager=False):
                self.result = fn(*traced_args, **traced_kwargs)
            self._collect(tracer, feeds)
        finally:
            tracer.restore()

    def _collect(self, tracer: Tracer, feeds: list[Node]) -> None:
        returned: list[Tensor] = []
        flatten(self.result, returned, is_tensor)
        with mode(tracer=None):
            nodes = [t._node if t._node.meta.device is not None else F.clone(t._node) for t in returned]
            cells = [(t, made) for t, _, made in tracer.cells.values() if id(t) not in tracer.owner_of_grad]
            self.cells = [t for t, _ in cells]
            self.grad_cells = [
                (tracer.owner_of_grad[id(t)], made)
                for t, _, made in tracer.cells.values()
                if id(t) in tracer.owner_of_grad
            ]
            self.rebound = [t for t, made in cells if t._node is not made]
            in_place = {id(t) for t, made in self.grad_cells if t.grad is not None and t.grad._node is not made}
            self.new_grads = [t for t, _ in cells if t.grad is not tracer.grads_before[id(t)] or id(t) in in_place]
            successor = {made: t._node for t, made in cells if t._node is not made}
            for t, made in self.grad_cells:
                if t.grad is not None and t.grad._node is not made:
                    successor[made] = t.grad._node
            nodes += [t._node for t in self.rebound]
            nodes += [t.grad._node for t in self.new_grads if t.grad is not None]
            self.cleared = [t for t in self.new_grads if t.grad is None]
            self.new_grads = [t for t in self.new_grads if t.grad is not None]
            # whether a cell must have a .grad, must not have one (None: either will do)
            self.had_grad = [
                tracer.grads_before[id(t)] is not None if tracer.saw_grad.get(id(t)) else None for t in self.cells
            ]
            self.cell_sigs = [made.sig for _, made in cells]
            graph = self._plan(nodes, successor)
        self.key = graph.key
        self.guards = list(tracer.guards.values())
        position = {n: i for i, n in enumerate(graph.outputs)}
        strides = [view.strides for view in self.plan.outputs]
        self.outputs = [(position[n], n.meta, signature("leaf", n.meta, strides[position[n]])) for n in nodes]
        feed_at = {n: i for i, n in enumerate(feeds)}
        cell_at = {made: i for i, (_, made) in enumerate(cells)}
        grad_at = {made: i for i, (_, made) in enumerate(self.grad_cells)}
        self.inputs: list[tuple[str, Any]] = []
        for n in graph.inputs:
            if n in feed_at:
                self.inputs.append(("arg", feed_at[n]))
            elif n in cell_at:
                self.inputs.append(("cell", cell_at[n]))
            elif n in grad_at:
                self.inputs.append(("grad", grad_at[n]))
            else:
                self.inputs.append(("value", n.data))
        self.runner = replayed(self.runner, [i for i, (source, _) in enumerate(self.inputs) if source == "arg"])
        self.generators = [generator for generator, _, _ in tracer.draws]
        drawn = {n: 2 * i + k for i, (_, *pair) in enumerate(tracer.draws) for k, n in enumerate(pair)}
        self.constants: list[tuple[str, Any]] = [
            ("arg", n.attrs[0]) if n.attrs else ("draw", drawn[n]) if n in drawn else ("value", n.data)
            for n in graph.constants
        ]
        self.lines = graph.lines
        self.returned = len(returned)
        self.debug = knobs.DEBUG.text() != "0"

    def _plan(self, nodes: list[Node], successor: Mapping[Node, Node]) -> PendingGraph:
        """Plan these outputs. `successor`: the new values of cells, by their placeholders."""
        graph = PendingGraph(nodes, keep_held=False)
        device = get_device(next((n.meta.device for n in nodes if n.meta.device is not None), state.device))
        position = {n: i for i, n in enumerate(graph.outputs)}
        input_at = {n: i for i, n in enumerate(graph.inputs)}
        heirs = {input_at[made]: position[node] for made, node in successor.items() if made in input_at}
        graph.owned = [made for made in successor if made in input_at]
        self.plan = plan_graph(graph, device.target, heirs)
        self.runner = runner_for(graph, self.plan, device)
        return graph

    def misfit(self) -> str | None:
        """Why this trace cannot serve now: what has changed in the state it was made for."""
        for owner, attribute, value in self.guards:
            now = getattr(owner, attribute)
            if now != value:
                return f"{type(owner).__name__}.{attribute} changed from {value} to {now}"
        for cell, sig, had in zip(self.cells, self.cell_sigs, self.had_grad, strict=True):
            node = cell._node
            if node.sig != sig:
                node = settled(cell)
            if node.sig != sig:
                return f"a captured tensor changed its shape, dtype or device: it is {node.meta} now"
            if had is not None and (cell.grad is not None) != had:
                return f"the .grad of a captured tensor {node.meta} {'came to be' if cell.grad is not None else 'went'}"
        return None

    def feed(self, leaves: list[Any]) -> tuple[list[Value], list[Any]]:
        """Inputs and constants of the plan, as arguments, cells and generators have them now."""
        values = []
        for source, at in self.inputs:
            if source == "arg":
                values.append(evaluated(leaves[at]).data)
            elif source == "cell":
                values.append(self.cells[at]._node.data)
            elif source == "grad":
                values.append(settled(self.grad_cells[at][0].grad).data)
            else:
                values.append(at)
        draws = [wrap_int(n, int64) for generator in self.generators for n in generator.next_stream()]
        constants = [
            leaves[at] if source == "arg" else draws[at] if source == "draw" else at for source, at in self.constants
        ]
        return values, constants

    def _mine(self, position: int) -> bool:
        """Whether only its cell can see an input's memory, so that the plan may write the cell's new value there."""
        source, at = self.inputs[position]
        cell = self.cells[at] if source == "cell" else self.grad_cells[at][0].grad
        node = cell._node
        value = node.data
        if value.storage is None or value.storage.read_only:
            return False
        # node: its cell and this frame; value: node, the list that is fed, this frame; storage: value
        return sys.getrefcount(node) <= 3 and sys.getrefcount(value) <= 4 and sys.getrefcount(value.storage) <= 2

    def replay(self, leaves: list[Any]) -> Any:
        """Run the plan; cells take their new values."""
        values, constants = self.feed(leaves)
        given = [position for position in (*self.plan.heirs, *self.plan.consumed) if self._mine(position)]
        out = self.runner.run(values, constants, self.debug, self.lines, given)
        if self.debug:
            debug_print(self.plan, self.runner)
        made = OPS["leaf"]
        nodes = [Node(made, (), (), meta, sig, out[at]) for at, meta, sig in self.outputs]
        n = self.returned
        for cell, node in zip(self.rebound, nodes[n:], strict=False):
            cell._node = node
        for cell, node in zip(self.new_grads, nodes[n + len(self.rebound) :], strict=True):
            cell.grad = Tensor(node)
        for cell in self.cleared:
            cell.grad = None
        if n == 1 and type(self.result) is Tensor:
            return Tensor(nodes[0])
        return rebuild(self.result, is_tensor, iter([Tensor(node) for node in nodes[:n]]))
