"""Replays of a traced function: its plan, the cells that feed it, and the cells that take its results.

A cell that a function reads and rebinds gives its buffer to its new value, where nobody else can see that buffer. On
the CPU a bad index leaves such cells as they were, but for what was assigned to a part of one (`cell[i] = x`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyflame.core.device import DeviceId
from pyflame.core.dtype import int64
from pyflame.core.errors import NotSupportedError, TraceError
from pyflame.core.locks import Lock
from pyflame.engine.build import CpuRunner
from pyflame.engine.commit import Writes
from pyflame.engine.cross_device import MultiDeviceRunner
from pyflame.engine.launch import NullRunner, NumpyRunner, Runner, run_and_commit
from pyflame.engine.report import debug_print, debugging
from pyflame.engine.value import Value
from pyflame.ir import OPS, Node
from pyflame.ir.declare import wrap_int
from pyflame.ir.kernel import Plan
from pyflame.tensor import Tensor
from pyflame.tensor.views import Aside, followers, root_of
from pyflame.transform.feed import Feed
from pyflame.transform.jitted_call import MISSED
from pyflame.transform.steady import Steady
from pyflame.transform.trace import Trace
from pyflame.transform.traced_plan import Output, TracedPlan, constants_of, inputs_of, outputs_of
from pyflame.transform.tracer import settled
from pyflame.transform.tree import is_tensor, rebuild

Part = tuple[DeviceId, Plan, Runner]  # a plan, where it runs, and what runs it


def _shared(value: Value) -> Value:
    """Another Value of the same memory."""
    return Value(value.storage, value.offset, value.strides)


def _add_followers(cell: Tensor, node: Node, cells: list[Tensor], new: list[Any]) -> None:
    """Add to changed cells and their new nodes those that share memory with one of them."""
    if node.shape != cell.shape and cell._link is not None and cell._link.tied:
        raise NotSupportedError(
            f"[jit] expected a tensor that shares memory to keep its shape {cell.shape} but the function gave it shape "
            f"{node.shape} in place; use the function without the underscore"
        )
    for change in followers(cell, node):
        cells.append(change.cell)
        new.append(change.node)


class Replay:
    """One signature's plan and where its inputs and outputs live."""

    def __init__(self, trace: Trace, planned: TracedPlan) -> None:
        graph = planned.graph
        self.result, self.returned, self.taped = trace.result, trace.returned, trace.taped
        self.any_taped = any(trace.taped)
        self.cells, self.grad_cells, self.views = trace.cells, trace.grad_cells, trace.views
        self.rebound, self.new_grads, self.cleared = trace.rebound, trace.new_grads, trace.cleared
        self.written, self.had_grad, self.guards = trace.written, trace.had_grad, trace.guards
        self.cell_sigs = [made.sig for made in trace.made]
        self.key, self.lines = graph.key, graph.lines
        self.plan, self.device, self.locks = planned.plan, planned.devices[0], planned.locks
        inputs = inputs_of(trace, graph)
        self.runner = planned.runner([i for i, (source, _) in enumerate(inputs) if source == "arg"])
        self.generators = [generator for generator, _, _ in trace.draws]
        self.constants = constants_of(trace, graph)
        # The same tuple at each call, if they are the same: a runner may know it again.
        same = all(source == "value" for source, _ in self.constants)
        self.unchanging = tuple([value for _, value in self.constants]) if same else None
        self._split_outputs(outputs_of(trace, planned))
        self.feed = Feed(trace, planned.plan, inputs, [sig for _, _, _, sig in self._new_gradients])
        self.debug = debugging()
        with_grad = [*[t for t, _ in self.had_grad], *[t for t, _ in self.grad_cells], *self.new_grads, *self.cleared]
        self._owners = list({id(t): t for t in with_grad}.values())
        self._arg_sigs = [trace.arguments[at].sig for _, at in self.feed.arguments]
        self.stateless = not (self.cells or self._owners or self.changes)
        # Whether nobody else has the Values of results: no state, no other result, no runner.
        differ = len({at for at, _, _ in self.results}) == len(self.results)
        self._own_results = differ and self.stateless and isinstance(self.runner, CpuRunner)
        one_device = not isinstance(self.runner, NumpyRunner | NullRunner | MultiDeviceRunner)
        # see jitted_call.py
        self.may_have_row = one_device and not (self.debug or self.written or self.generators or self.views)
        self.steady: Steady | None = None
        self.captures = self.may_have_row and not isinstance(self.runner, CpuRunner)
        self.left: tuple[Steady | None, Any] = None, None  # by the last run: its state, and its graphs on a GPU
        self._state_before: tuple[int, ...] = ()

    @property
    def pure(self) -> bool:
        """Whether it changes nothing and draws no random numbers: the function can be called again for its gradient."""
        return not (self.changes or self.generators)

    @property
    def parts(self) -> list[Part]:
        """The plans that a call runs, in order: several if it crosses devices."""
        if isinstance(self.runner, MultiDeviceRunner):
            pairs = zip(self.runner.stages, self.runner.runners, strict=True)
            return [(stage.device.id, stage.plan, runner) for stage, runner in pairs]
        return [(self.device, self.plan, self.runner)]

    def _split_outputs(self, outputs: list[Output]) -> None:
        """Sort the plan's outputs by where they go: to what the function returns, to cells, to gradients."""
        self.results, news = outputs[: self.returned], outputs[self.returned :]
        states, news = news[: len(self.rebound)], news[len(self.rebound) :]
        gradients, arguments = news[: len(self.new_grads)], news[len(self.new_grads) :]
        uses = Counter([at for at, _, _ in states])
        self._new_states = [(t, *output, uses[output[0]] == 1) for t, output in zip(self.rebound, states, strict=True)]
        self._new_at = [at for at, _, _ in states]
        sig_of = dict(zip(map(id, self.cells), self.cell_sigs, strict=True))
        self._same_sigs = [sig for _, _, sig in states] == [sig_of[id(cell)] for cell in self.rebound]
        self._new_gradients = [(t, *output) for t, output in zip(self.new_grads, gradients, strict=True)]
        self._new_arguments = [(number, *output) for number, output in zip(self.written, arguments, strict=True)]
        self.writes = bool(self.rebound or self.written)
        self.changes = bool(self.rebound or self.new_grads or self.cleared or self.written)

    def misfit(self, trusting: bool = False) -> str | None:
        """Why this trace cannot serve now: what has changed in the state it was made for.

        `trusting`: `replay` finds out itself whether cells are as they were, if it remembers them.
        """
        for owner, attribute, value in self.guards:
            now = getattr(owner, attribute)
            if now != value:
                return f"{type(owner).__name__}.{attribute} changed from {value} to {now}"
        if self.stateless or (trusting and self.steady is not None):
            return None
        if [cell._node.sig for cell in self.cells] != self.cell_sigs:
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

    def numbers(self, leaves: list[Any]) -> Sequence[Any]:
        """The constants of the plan, with what generators give now."""
        if self.unchanging is not None:
            return self.unchanging
        draws = [wrap_int(n, int64) for generator in self.generators for n in generator.next_stream()]
        return [
            leaves[at] if source == "arg" else draws[at] if source == "draw" else at for source, at in self.constants
        ]

    def replay(self, leaves: list[Any]) -> Any:
        """Run the plan; cells take their new values. MISSED where another thread has written something else to one."""
        if self.writes:
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
        with locks[0]:
            if len(locks) > 1:
                return self._run_with(locks[1:], leaves, returned)
            ran = self._run(leaves, returned)
            self.left = self.steady, self.runner.served if self.captures else None  # type: ignore[attr-defined]
            return ran

    def _run(self, leaves: list[Any], returned: list[Node]) -> bool:
        """Run the plan, all locks taken."""
        if self.steady is not None:
            return self._run_steady(self.steady, leaves, returned)
        if self.stateless:
            given = self.feed.given(leaves)
            if given is not None:
                returned += self._returned(self.runner.run(given, self.numbers(leaves), self.debug, self.lines))
            return given is not None
        fed = self.feed.nodes(leaves)
        if fed is None:
            return False
        values, constants = self.feed.values(fed), self.numbers(leaves)
        aside: list[Aside] = []
        mine = self.feed.writable(fed, values, aside)
        commit = partial(self._commit, leaves, returned)
        try:
            run_and_commit(self.runner, values, constants, commit, self.debug, self.lines, mine)
        finally:
            for views in aside:
                views.leaf.data = views.cell._node.data
        if len(mine) == len(self.feed.written) and not (self.views or self.written):
            del fed
            self._remember(values)
        return True

    def _run_steady(self, steady: Steady, leaves: list[Any], returned: list[Node]) -> bool:
        """Run the plan on the state that the call before has left, if it is that still."""
        arguments = [(position, leaves[at]._node) for position, at in self.feed.arguments]
        fits = [node.sig for _, node in arguments] == self._arg_sigs
        values = steady.inputs(arguments) if fits else None
        if values is None:
            self.steady = None
            return False

        def commit(out: list[Value]) -> Writes:
            returned.extend(self._returned(out))
            return (), (), ()

        run_and_commit(self.runner, values, self.numbers(leaves), commit, self.debug, self.lines, self.feed.written)
        return True

    def _remember(self, values: list[Value]) -> None:
        """Let the next call find its state at once, where it is what the last call has left: a loop's state is."""
        nodes = [cell._node for cell in self.cells]
        nodes += [grad._node for owner in self._owners if (grad := owner._grad) is not None]
        now = tuple([node.serial for node in nodes])
        if now == self._state_before:
            self.steady = self.feed.steady(self.cells, self._owners, values)
        self._state_before = now

    def _returned(self, out: list[Value]) -> list[Node]:
        """What the function returns. Each leaf has a Value of its own, or others could not see that its memory is
        shared."""
        made, own = OPS["leaf"], self._own_results
        nodes = []
        for at, meta, sig in self.results:
            nodes.append(Node(made, (), (), meta, sig, out[at] if own else _shared(out[at])))
        return nodes

    def _in_place(self, out: list[Value]) -> bool:
        """Whether all cells have their new values already, where the old ones lay, and no cell shares its memory."""
        return (
            self._same_sigs
            and [cell._node.data for cell in self.rebound] == [out[at] for at in self._new_at]
            and not [link for cell in self.rebound if (link := cell._link) and (link.views or link.parent is not None)]
        )

    def _commit(self, leaves: list[Any], returned: list[Node], out: list[Value]) -> Writes:
        """What a run's results change in cells."""
        returned += self._returned(out)
        if not self.changes:
            return (), (), ()
        made = OPS["leaf"]
        cells: list[Tensor] = []
        new: list[Any] = []
        for cell, at, meta, sig, alone in () if self._in_place(out) else self._new_states:
            value, node = out[at], cell._node
            if node.data is not value or node.sig != sig:  # else it has its new value already
                node = Node(made, (), (), meta, sig, value if alone else _shared(value))
                cells.append(cell)
                new.append(node)
            link = cell._link
            if link is not None and (link.views or link.parent is not None):
                _add_followers(cell, node, cells, new)
        for number, at, meta, sig in self._new_arguments:
            node = Node(made, (), (), meta, sig, _shared(out[at]))
            cells.append(leaves[number])
            new.append(node)
            _add_followers(leaves[number], node, cells, new)
        gradients = [
            (cell, Tensor(Node(made, (), (), meta, sig, _shared(out[at]))))
            for cell, at, meta, sig in self._new_gradients
            if (grad := cell._grad) is None or grad._node.data is not out[at]  # else it has its new value already
        ]
        names = ["_node"] * len(cells) + ["_grad"] * (len(gradients) + len(self.cleared))
        cells += [cell for cell, _ in gradients] + self.cleared
        new += [grad for _, grad in gradients] + [None] * len(self.cleared)
        return cells, names, new
