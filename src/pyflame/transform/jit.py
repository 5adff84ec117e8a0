"""jit: trace a function once per signature, then replay its plan.

While a function is traced every tensor cell that it reads becomes an input of the plan and every cell that it rebinds
becomes an output, so a whole training step (parameters, optimiser state, gradients) is one plan. Floats among the
arguments are data; other values that are no tensors are part of the signature.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.autograd import Leaf
from pyflame.core import knobs
from pyflame.core.dtype import float32, int64
from pyflame.core.errors import TraceError
from pyflame.core.generator import Generator
from pyflame.core.state import mode, state
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import PendingGraph, evaluate, plan_graph
from pyflame.engine.launch import runner_for
from pyflame.engine.value import Value
from pyflame.ir import OPS, F, Node, const, signature
from pyflame.ir.declare import wrap_int
from pyflame.ir.node import user_line
from pyflame.ir.opdef import LEAF
from pyflame.tensor import Tensor
from pyflame.transform.tree import flatten, is_tensor, is_traced, rebuild


def placeholder(node: Node) -> Node:
    """A leaf of the same shape, dtype, device and strides, whose value comes when the plan runs."""
    strides = node.data.strides
    return Node(OPS["leaf"], (), (), node.meta, signature("leaf", node.meta, strides), Value(None, 0, strides))


def evaluated(tensor: Tensor) -> Node:
    """The tensor's node as a leaf."""
    node = tensor._node
    if node.op.kind != LEAF:
        if node.meta.device is None:
            node = tensor._node = F.clone(node)
        evaluate([node])
    return node


class Tracer:
    """Watches the cells that a function touches."""

    def __init__(self) -> None:
        self.known: set[Node] = set()  # nodes made by the trace
        self.cells: dict[int, tuple[Tensor, Node, Node]] = {}  # id -> cell, its node before, its placeholder
        self.grads_before: dict[int, Tensor | None] = {}
        self.owner_of_grad: dict[int, Tensor] = {}
        self.draws: list[tuple[Generator, Node, Node]] = []  # random streams: generator, constants of seed and offset

    def read(self, tensor: Tensor) -> Node:
        node = tensor._node
        if node in self.known:
            return node
        with mode(tracer=None, recorder=None):
            before = evaluated(tensor)
        made = placeholder(before)
        self._remember(tensor, before, made)
        tensor._node = made
        self.known.add(made)
        return made

    def _remember(self, tensor: Tensor, before: Node, made: Node) -> None:
        self.cells[id(tensor)] = (tensor, before, made)
        self.grads_before[id(tensor)] = tensor.grad
        if tensor.grad is not None:
            self.owner_of_grad[id(tensor.grad)] = tensor

    def rebound(self, tensor: Tensor) -> None:
        """A cell is about to take another value."""
        if tensor._node not in self.known:
            self.read(tensor)

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
            tensor.grad = self.grads_before[key]


class Traced:
    """One signature's plan and where its inputs and outputs live."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]
    ) -> None:
        tracer = Tracer()
        feeds: list[Node] = []
        tensors: list[Any] = []
        for value in leaves:
            node = const(value, float32) if type(value) is float else placeholder(evaluated(value))
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
            self.new_grads = [t for t, _ in cells if t.grad is not tracer.grads_before[id(t)]]
            nodes += [t._node for t in self.rebound]
            nodes += [t.grad._node for t in self.new_grads if t.grad is not None]
            self.cleared = [t for t in self.new_grads if t.grad is None]
            self.new_grads = [t for t in self.new_grads if t.grad is not None]
            self.had_grad = [tracer.grads_before[id(t)] is not None for t in self.cells]
            self.cell_sigs = [made.sig for _, made in cells]
            graph = PendingGraph(nodes, keep_held=False)
        device = get_device(next((n.meta.device for n in nodes if n.meta.device is not None), state.device))
        self.plan = plan_graph(graph, device.target)
        self.runner = runner_for(graph, self.plan, device)
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
        self.generators = [generator for generator, _, _ in tracer.draws]
        drawn = {n: 2 * i + k for i, (_, *pair) in enumerate(tracer.draws) for k, n in enumerate(pair)}
        self.constants: list[tuple[str, Any]] = [
            ("arg", feed_at[n]) if n in feed_at else ("draw", drawn[n]) if n in drawn else ("value", n.data)
            for n in graph.constants
        ]
        self.returned = len(returned)

    def fits(self) -> bool:
        """Whether the cells still look as they did when traced."""
        for cell, sig, had in zip(self.cells, self.cell_sigs, self.had_grad, strict=True):
            node = cell._node
            if node.op.kind != LEAF:
                node = evaluated(cell)
            if node.sig != sig or (cell.grad is not None) != had:
                return False
        return True

    def feed(self, leaves: list[Any]) -> tuple[list[Value], list[Any]]:
        """Inputs and constants of the plan, as arguments, cells and generators have them now."""
        values = []
        for source, at in self.inputs:
            if source == "arg":
                values.append(evaluated(leaves[at]).data)
            elif source == "cell":
                values.append(self.cells[at]._node.data)
            elif source == "grad":
                values.append(evaluated(self.grad_cells[at][0].grad).data)
            else:
                values.append(at)
        draws = [wrap_int(n, int64) for generator in self.generators for n in generator.next_stream()]
        constants = [
            leaves[at] if source == "arg" else draws[at] if source == "draw" else at for source, at in self.constants
        ]
        return values, constants

    def replay(self, leaves: list[Any]) -> Any:
        """Run the plan; cells take their new values."""
        out = self.runner.run(*self.feed(leaves))
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


class Jitted:
    """A function and its traces. Call it like the function; `traces` counts how often it was traced."""

    def __init__(self, fn: Callable[..., Any], static_argnums: tuple[int, ...], check: bool) -> None:
        self.fn = fn
        self.static = static_argnums
        self.check = check
        self.cache: dict[Any, Traced] = {}
        self.traces = 0
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.tracer is not None:
            return self.fn(*args, **kwargs)
        traced, leaves = self.find(args, kwargs)
        return traced.replay(leaves)

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced, list[Any]]:
        """The trace for these arguments, made if need be, and what to feed it."""
        leaves: list[Any] = []
        shape: Any = tuple(
            ("static", a) if n in self.static else flatten(a, leaves, is_traced) for n, a in enumerate(args)
        )
        if kwargs:
            shape = (shape, flatten(kwargs, leaves, is_traced))
        sigs = tuple([float if type(v) is float else (evaluated(v).sig, v._entry is not None) for v in leaves])
        key = (shape, sigs, state.grad_enabled, state.autocast, state.device)
        try:
            traced = self.cache.get(key)
        except TypeError as error:
            raise TraceError(f"[jit] expected arguments that are tensors or can be hashed but got {error}") from None
        if traced is None or not traced.fits():
            with self._lock:
                dynamic = [a if n not in self.static else _Static(a) for n, a in enumerate(args)]
                traced = Traced(self._call_static, tuple(dynamic), kwargs, leaves)
                self.cache[key] = traced
                if len(self.cache) > knobs.PLAN_CACHE.integer():
                    del self.cache[next(iter(self.cache))]  # the oldest
                self.traces += 1
                if self.check:
                    self._check(args, kwargs, traced, leaves)
        return traced, leaves

    def _call_static(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*[a.value if isinstance(a, _Static) else a for a in args], **kwargs)

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any], traced: Traced, leaves: list[Any]) -> None:
        """Run both ways on the same state and compare."""
        before = [(cell, cell._node, cell.grad) for cell in traced.cells]
        eager: list[Tensor] = []
        flatten(self.fn(*args, **kwargs), eager, is_tensor)
        want = [t.numpy() for t in eager]
        for cell, node, grad in before:
            cell._node, cell.grad = node, grad
        got: list[Tensor] = []
        flatten(traced.replay(leaves), got, is_tensor)
        for cell, node, grad in before:
            cell._node, cell.grad = node, grad
        for number, (a, b) in enumerate(zip(got, want, strict=True)):
            left, right = np.asarray(a.numpy(), np.float64), np.asarray(b, np.float64)
            if not np.allclose(left, right, rtol=1e-3, atol=1e-5, equal_nan=True):
                raise TraceError(
                    f"[jit] expected the plan to agree with eager execution but result {number} differs by "
                    f"{np.abs(left - right).max()}"
                )


class _Static:
    """An argument that is part of the signature, hidden from tracing."""

    def __init__(self, value: Any) -> None:
        self.value = value


def jit(fn: Callable[..., Any] | None = None, *, static_argnums: tuple[int, ...] = (), check: bool = False) -> Any:
    """Trace once per signature (shapes, dtypes, devices, structure), then replay as one plan.

    >>> @pf.jit
    ... def f(x, scale):
    ...     return pf.tanh(x) * scale
    >>> f(pf.ones(3), 2.0)
    tensor([1.5232, 1.5232, 1.5232])
    """
    if fn is None:
        return lambda f: jit(f, static_argnums=static_argnums, check=check)
    return Jitted(fn, tuple(static_argnums), check)
