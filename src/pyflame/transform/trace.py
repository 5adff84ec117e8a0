"""One trace of a function: which cells it reads and rebinds, the plan of what it computes, and how to replay it.

While a function is traced every tensor cell that it reads becomes an input of the plan and every cell that it rebinds
becomes an output. A cell that is both gives its buffer to its new value, where nobody else can see that buffer.
On the CPU a bad index leaves such cells as they were, but for what was assigned to a part of one (`cell[i] = x`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from pyflame.autograd import Entry, Joint, Leaf
from pyflame.core import knobs
from pyflame.core.device import DeviceId
from pyflame.core.dtype import float32, int64
from pyflame.core.errors import TraceError
from pyflame.core.locks import Lock
from pyflame.core.state import mode, state
from pyflame.engine.commit import Writes
from pyflame.engine.devices import get_device
from pyflame.engine.launch import Runner, replayed, run_and_commit, runner_for
from pyflame.engine.ownership import sole_owner
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan
from pyflame.engine.report import debug_print
from pyflame.engine.stages import Staged, crosses, without_needless_copies
from pyflame.engine.value import Value
from pyflame.ir import OPS, Meta, Node, const, placed, signature
from pyflame.ir.declare import wrap_int
from pyflame.ir.kernel import Plan
from pyflame.tensor import Tensor
from pyflame.tensor.views import Aside, followers, root_of
from pyflame.transform.tracer import Tracer, evaluated, placeholder, settled
from pyflame.transform.tree import flatten, is_tensor, is_traced, rebuild

Part = tuple[DeviceId, Plan, Runner]  # a plan, where it runs, and what runs it
_signature_of = attrgetter("_node.sig")


def _again(value: Value) -> Value:
    """Another Value of the same memory."""
    return Value(value.storage, value.offset, value.strides)


def _add_followers(cell: Tensor, node: Node, cells: list[Tensor], new: list[Any]) -> None:
    """Add to changed cells and their new nodes those that share memory with one of them."""
    for change in followers(cell, node):
        cells.append(change.cell)
        new.append(change.node)


def _ends_here(*args: Any) -> list[Any]:
    """The gradient of an argument that was computed outside: jit_gradient.py goes on from there."""
    return []


MISSED: Any = object()  # instead of a result
_EMPTY = Node(OPS["leaf"], (), (), Meta((), float32, None), -1)  # of a .grad that is not there: fits nothing


class Traced:
    """One signature's plan and where its inputs and outputs live."""

    plan: Plan
    runner: Runner
    device: DeviceId  # that it runs on, if it is one
    locks: list[Lock]  # of the devices that it touches, in the order in which they are taken

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
            elif isinstance(value, Tensor) and value._entry is not None:  # computed: on the tape, but no leaf
                cell._entry = Joint(_ends_here, (), ()).part(node.meta)
            tensors.append(cell)
        it = iter(tensors)
        traced_args = tuple(rebuild(a, is_traced, it) for a in args)
        traced_kwargs = {k: rebuild(v, is_traced, it) for k, v in kwargs.items()}
        try:
            with mode(tracer=tracer, eager=False):
                self.result = fn(*traced_args, **traced_kwargs)
        finally:
            tracer.cut_links()
        self._collect(tracer, feeds, [t._node for t in tensors])

    def _collect(self, tracer: Tracer, feeds: list[Node], ends: list[Node]) -> None:
        """Make the plan. `feeds`: the arguments' nodes; `ends`: what the arguments hold when the function returns."""
        returned: list[Tensor] = []
        flatten(self.result, returned, is_tensor)
        nodes = [tracer.read(t) for t in returned]
        # results that gradients could flow through; a backward inside of the function has freed those that it used
        tapes = [tracer.entry(t) for t in returned]
        self.taped = [isinstance(entry, Entry) and not entry.freed for entry in tapes]
        for cell in list(tracer.cells.values()):
            if cell.grad is not None and cell.grad is not cell.grad_before:
                tracer.read(cell.grad)
        with mode(tracer=None):
            nodes = [placed(n) for n in nodes]
            captured = [c for c in tracer.cells.values() if id(c.tensor) not in tracer.owner_of_grad]
            cells = [c for c in captured if not c.is_view]
            self.views = [(c.tensor, root_of(c.tensor)) for c in tracer.cells.values() if c.is_view]
            grads = [
                (owner, c.made)
                for key, c in tracer.cells.items()
                if (owner := tracer.owner_of_grad.get(key)) is not None and not c.is_view
            ]
            self.cells = [c.tensor for c in cells]
            self.grad_cells = [(owner.tensor, made) for owner, made in grads]
            rebound = [c for c in cells if c.rebound]
            self.rebound = [c.tensor for c in rebound]
            successor = {c.made: c.node for c in rebound}
            in_place = set()
            for owner, made in grads:
                if owner.grad is not None and (node := tracer.read(owner.grad)) is not made:
                    successor[made] = node
                    in_place.add(owner)
            touched = [c for c in captured if c.grad is not c.grad_before or c in in_place]
            self.new_grads = [c.tensor for c in touched if c.grad is not None]
            self.cleared = [c.tensor for c in touched if c.grad is None]
            nodes += [c.node for c in rebound]
            nodes += [tracer.read(c.grad) for c in touched if c.grad is not None]
            self.written = [number for number, node in enumerate(feeds) if ends[number] is not node]
            nodes += [ends[number] for number in self.written]
            # cells that must have a .grad, or must not have one; of the others either will do
            self.had_grad = [(c.tensor, c.grad_before is not None) for c in captured if c.saw_grad]
            self.cell_sigs = [c.made.sig for c in cells]
            metas = [n.meta for n in nodes]
            graph = self._plan(nodes, successor)
        self.key = graph.key
        self.guards = list(tracer.guards.values())
        self.returned = len(returned)
        self._note_outputs(graph, nodes, metas)
        sources = {n: ("arg", i) for i, n in enumerate(feeds)}
        sources |= {c.made: ("cell", i) for i, c in enumerate(cells)}
        sources |= {made: ("grad", i) for i, (_, made) in enumerate(grads)}
        self.inputs: list[tuple[str, Any]] = [sources.get(n) or ("value", n.data) for n in graph.inputs]
        arguments = [i for i, (source, _) in enumerate(self.inputs) if source == "arg"]
        if isinstance(self.runner, Staged):
            self.runner.replay(arguments)
        else:
            self.runner = replayed(self.runner, arguments)
        self._split_inputs([n.sig for n in feeds])
        self._note_constants(graph, tracer)
        self.lines = graph.lines
        self.debug = knobs.DEBUG.text() != "0"

    @property
    def pure(self) -> bool:
        """Whether it changes nothing and draws no random numbers: the function can be called again for its gradient."""
        return not (self._changes or self.generators)

    def _note_outputs(self, graph: PendingGraph, nodes: list[Node], metas: list[Meta]) -> None:
        """Where the plan's outputs go: to what the function returns, to cells, to gradients."""
        position = {n: i for i, n in enumerate(graph.outputs)}
        strides = [view.strides for view in self.plan.outputs]
        places = [position[n] for n in nodes]
        self.outputs = [
            (at, meta, signature("leaf", meta, strides[at])) for at, meta in zip(places, metas, strict=True)
        ]
        news = self.outputs[self.returned :]
        states, news = news[: len(self.rebound)], news[len(self.rebound) :]
        gradients, arguments = news[: len(self.new_grads)], news[len(self.new_grads) :]
        uses = Counter([at for at, _, _ in states])
        self._new_states = [(t, *output, uses[output[0]] == 1) for t, output in zip(self.rebound, states, strict=True)]
        self._new_gradients = [(t, *output) for t, output in zip(self.new_grads, gradients, strict=True)]
        self._new_arguments = [(number, *output) for number, output in zip(self.written, arguments, strict=True)]
        self._writes = bool(self.rebound or self.written)
        self._changes = bool(self.rebound or self.new_grads or self.cleared or self.written)

    def _note_constants(self, graph: PendingGraph, tracer: Tracer) -> None:
        """Where the plan's numbers come from: arguments, generators, or always the same."""
        self.generators = [generator for generator, _, _ in tracer.draws]
        drawn = {n: 2 * i + k for i, (_, *pair) in enumerate(tracer.draws) for k, n in enumerate(pair)}
        self.constants: list[tuple[str, Any]] = [
            ("arg", n.attrs[0]) if n.attrs else ("draw", drawn[n]) if n in drawn else ("value", n.data)
            for n in graph.constants
        ]
        # The same tuple at each call, if they are the same: a runner may know it again.
        same = all(source == "value" for source, _ in self.constants)
        self._same_constants = tuple([value for _, value in self.constants]) if same else None

    def _plan(self, nodes: list[Node], successor: Mapping[Node, Node]) -> PendingGraph:
        """Plan these outputs. `successor`: the new values of cells, by their placeholders."""
        graph = PendingGraph(nodes, keep_held=False)
        if crosses(graph):
            done = without_needless_copies(nodes)
            nodes[:] = [done[n] for n in nodes]
            successor = {made: done[n] for made, n in successor.items() if done[n] is not made}
            graph = PendingGraph(nodes, keep_held=False)
            if crosses(graph):
                self.runner = Staged(graph, successor)
                self.plan = self.runner.plan
                devices = {n.meta.device for n in graph.order if n.meta.device is not None}
                self.locks = [get_device(d).lock for d in sorted(devices, key=str)]
                return graph
        device = get_device(next((n.meta.device for n in nodes if n.meta.device is not None), state.device))
        self.device, self.locks = device.id, [device.lock]
        position = {n: i for i, n in enumerate(graph.outputs)}
        input_at = {n: i for i, n in enumerate(graph.inputs)}
        heirs = {input_at[made]: position[node] for made, node in successor.items() if made in input_at}
        graph.owned = [made for made in successor if made in input_at]
        self.plan = make_plan(graph, device, heirs)
        self.runner = runner_for(graph, self.plan, device)
        return graph

    @property
    def parts(self) -> list[Part]:
        """The plans that a call runs, in order: several if it crosses devices."""
        if isinstance(self.runner, Staged):
            return [(stage.device.id, stage.plan, stage.runner) for stage in self.runner.stages]
        return [(self.device, self.plan, self.runner)]

    def misfit(self) -> str | None:
        """Why this trace cannot serve now: what has changed in the state it was made for."""
        for owner, attribute, value in self.guards:
            now = getattr(owner, attribute)
            if now != value:
                return f"{type(owner).__name__}.{attribute} changed from {value} to {now}"
        if list(map(_signature_of, self.cells)) != self.cell_sigs:
            for cell, sig in zip(self.cells, self.cell_sigs, strict=True):
                if cell._node.sig != sig and (node := settled(cell)).sig != sig:
                    return f"a captured tensor changed its shape, dtype or device: it is {node.meta} now"
        for view, root in self.views:
            if root_of(view) is not root:
                return f"a captured view {view._node.meta} has other memory than before"
        for cell, had in self.had_grad:
            if (cell._grad is not None) != had:
                what = "went" if had else "came to be"
                return f"the .grad of a captured tensor {cell._node.meta} {what}"
        for owner, made in self.grad_cells:
            grad = owner._grad
            if grad is None or (grad._node.sig != made.sig and settled(grad).sig != made.sig):
                return f"the .grad of a captured tensor {owner._node.meta} changed its dtype or device, or went"
        return None

    def _split_inputs(self, arg_sigs: list[int]) -> None:
        """Sort the plan's inputs by where they come from, for `feed`."""
        self._fixed = [at if source == "value" else None for source, at in self.inputs]
        self._fed_at: list[int] = []
        self._fed_sigs: list[int] = []
        grad_sigs = [made.sig for _, made in self.grad_cells]
        for wanted, sigs in (("arg", arg_sigs), ("cell", self.cell_sigs), ("grad", grad_sigs)):
            found = [(i, at) for i, (source, at) in enumerate(self.inputs) if source == wanted]
            self._fed_at += [i for i, _ in found]
            self._fed_sigs += [sigs[at] for _, at in found]
        self._from_args = [at for source, at in self.inputs if source == "arg"]
        self._from_cells = [self.cells[at] for source, at in self.inputs if source == "cell"]
        self._from_grads = [self.grad_cells[at][0] for source, at in self.inputs if source == "grad"]
        self._updated = list(dict.fromkeys([*self.plan.heirs, *self.plan.consumed]))
        self._updated_at = [self._fed_at.index(i) for i in self._updated]
        sources = [self.inputs[i] for i in self._updated]
        self._updated_cells = [  # and whether it is their .grad
            (self.grad_cells[at][0], True) if source == "grad" else (self.cells[at], False) for source, at in sources
        ]

    def fed(self, leaves: list[Any]) -> list[Node] | None:
        """The leaves of arguments, cells and gradients that the plan reads, as they are now.

        None where another thread has written something else to one since `misfit` has looked.
        """
        nodes = [leaves[at]._node for at in self._from_args]
        nodes += [cell._node for cell in self._from_cells]
        nodes += [_EMPTY if grad is None else grad._node for grad in [owner._grad for owner in self._from_grads]]
        return nodes if [n.sig for n in nodes] == self._fed_sigs else None

    def feed(self, nodes: list[Node], leaves: list[Any]) -> tuple[list[Value], Sequence[Any]]:
        """Inputs and constants of the plan, with what generators give now. `nodes`: what `fed` gave."""
        values: list[Any] = self._fixed.copy()
        for i, node in zip(self._fed_at, nodes, strict=True):
            values[i] = node.data
        if self._same_constants is not None:
            return values, self._same_constants
        draws = [wrap_int(n, int64) for generator in self.generators for n in generator.next_stream()]
        return values, [
            leaves[at] if source == "arg" else draws[at] if source == "draw" else at for source, at in self.constants
        ]

    def _mine(self, fed: list[Node], aside: list[Aside]) -> list[int]:
        """Inputs whose memory only their cells can see, so that the plan may write the cells' new values there.

        `aside` gets the views that were taken off such memory.
        """
        if not self._updated:
            return []
        nodes = [fed[k] for k in self._updated_at]
        sole = sole_owner(nodes, [2] * len(nodes), fed=1)  # each has its cell, and `fed`
        if not all(sole):
            self._set_aside(nodes, sole, aside)
        # a cell that another thread has written to since no longer tells who may hold what it held
        return [
            i
            for i, mine, node, (owner, is_grad) in zip(self._updated, sole, nodes, self._updated_cells, strict=True)
            if mine and (getattr(owner._grad, "_node", None) if is_grad else owner._node) is node
        ]

    def _set_aside(self, nodes: list[Node], sole: list[bool], aside: list[Aside]) -> None:
        """Take views off the memory of cells, where nobody else holds that memory."""
        for i, (owner, is_grad) in enumerate(self._updated_cells):
            cell = owner._grad if is_grad else owner
            if sole[i] or cell is None or cell._node is not nodes[i] or cell._link is None or not cell._link.views:
                continue
            views = Aside(cell)
            (sole[i],) = sole_owner(nodes[i : i + 1], [3], fed=1)  # its cell, `fed` and `nodes`
            if sole[i]:
                aside.append(views)
            else:
                views.undo()

    def replay(self, leaves: list[Any]) -> Any:
        """Run the plan; cells take their new values. MISSED where another thread has written something else to one."""
        if self._writes:
            self._check_shared(leaves)
        returned: list[Node] = []
        if not self._run_with(self.locks, leaves, returned):
            return MISSED
        if self.debug:
            for _, plan, runner in self.parts:
                debug_print(plan, runner)
        if len(returned) == 1 and type(self.result) is Tensor:
            return Tensor(returned[0])
        return rebuild(self.result, is_tensor, iter([Tensor(node) for node in returned]))

    def _check_shared(self, leaves: list[Any]) -> None:
        """Raise where an argument shares memory with what the function writes: it would not see the write."""
        tensors = [leaf for leaf in leaves if type(leaf) is not float]
        if not self.written and not any(t._link is not None for t in tensors):
            return
        written = [root_of(leaves[number]) for number in self.written]
        captured = {id(cell) for cell in self.cells}
        changed = {id(cell) for cell in self.rebound}
        roots = [root_of(t) for t in tensors]
        if (
            any(id(root) in captured or sum(root is other for other in roots) > 1 for root in written)
            or any(id(root) in changed and root is not t for root, t in zip(roots, tensors, strict=True))
        ):  # fmt: skip
            raise TraceError(
                "[jit] expected arguments that share no memory with tensors that the function writes to but got some "
                "that do; pass .clone() of an argument, or use one of both inside of the function"
            )

    def _run_with(self, locks: Sequence[Lock], leaves: list[Any], returned: list[Node]) -> bool:
        """Take these locks and run the plan; `returned` gets the nodes of what the function returns."""
        if locks:
            with locks[0]:
                return self._run_with(locks[1:], leaves, returned)
        fed = self.fed(leaves)
        if fed is None:
            return False
        values, constants = self.feed(fed, leaves)
        aside: list[Aside] = []
        mine = self._mine(fed, aside)
        commit = partial(self._commit, leaves, returned)
        try:
            run_and_commit(self.runner, values, constants, commit, self.debug, self.lines, mine)
        finally:
            for views in aside:
                views.leaf.data = views.cell._node.data
        return True

    def _commit(self, leaves: list[Any], returned: list[Node], out: list[Value]) -> Writes:
        """What a run's results change in cells."""
        # Each leaf has a Value of its own, or others could not see that its memory is shared.
        made = OPS["leaf"]
        returned += [Node(made, (), (), meta, sig, _again(out[at])) for at, meta, sig in self.outputs[: self.returned]]
        if not self._changes:
            return (), (), ()
        cells: list[Tensor] = []
        new: list[Any] = []
        for cell, at, meta, sig, alone in self._new_states:
            value, node = out[at], cell._node
            if node.data is not value or node.sig != sig:  # else it has its new value already
                node = Node(made, (), (), meta, sig, value if alone else _again(value))
                cells.append(cell)
                new.append(node)
            link = cell._link
            if link is not None and (link.views or link.parent is not None):
                _add_followers(cell, node, cells, new)
        for number, at, meta, sig in self._new_arguments:
            node = Node(made, (), (), meta, sig, _again(out[at]))
            cells.append(leaves[number])
            new.append(node)
            _add_followers(leaves[number], node, cells, new)
        names = ["_node"] * len(cells) + ["_grad"] * (len(self._new_gradients) + len(self.cleared))
        cells += [cell for cell, *_ in self._new_gradients] + self.cleared
        new += [Tensor(Node(made, (), (), meta, sig, _again(out[at]))) for _, at, meta, sig in self._new_gradients]
        new += [None] * len(self.cleared)
        return cells, names, new
