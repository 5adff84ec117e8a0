"""What a replay feeds its plan: the tensors among the arguments, the cells and gradients that the function reads, and
the memory that it may write new values to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.core.dtype import float32
from pyflame.engine.ownership import SoleOwners, ask_back, held, sole_owner
from pyflame.engine.value import Value
from pyflame.ir import OPS, Meta, Node
from pyflame.ir.kernel import Plan
from pyflame.tensor import Tensor
from pyflame.tensor.views import Aside
from pyflame.transform.steady import Steady
from pyflame.transform.trace import Trace
from pyflame.transform.traced_plan import Origin

_NOWHERE = Value(None)  # instead of memory for a gradient, where the call before has left none
_EMPTY = Node(OPS["leaf"], (), (), Meta((), float32, None), -1, _NOWHERE)  # of a .grad that is not there: fits nothing


class Feed:
    """Where a plan's inputs come from. `grad_sigs`: signatures of the function's new gradients."""

    def __init__(self, trace: Trace, plan: Plan, inputs: Sequence[Origin], grad_sigs: Sequence[int]) -> None:
        owners = [owner for owner, _ in trace.grad_cells]
        sigs = {
            "arg": [n.sig for n in trace.arguments],
            "cell": [made.sig for made in trace.made],
            "grad": [made.sig for _, made in trace.grad_cells],
        }
        places = [i for wanted in sigs for i, (source, _) in enumerate(inputs) if source == wanted]
        fed_at = {place: k for k, place in enumerate(places)}
        self._sigs = [sigs[source][at] for source, at in [inputs[i] for i in places]]
        self._fixed = [_NOWHERE if source == "memory" else at for source, at in inputs if source not in sigs]
        fixed_at = iter(range(len(places), len(inputs)))
        self._order = [fed_at[i] if i in fed_at else next(fixed_at) for i in range(len(inputs))]
        self.arguments = [(i, at) for i, (source, at) in enumerate(inputs) if source == "arg"]
        self.fixed = [(i, at) for i, (source, at) in enumerate(inputs) if source == "value"]
        self._args = [at for _, at in self.arguments]
        self._given = [(i, at, trace.arguments[at].sig) for i, at in self.arguments]
        self.template = [at if source == "value" else _NOWHERE for source, at in inputs]
        self._cells = [trace.cells[at] for source, at in inputs if source == "cell"]
        self._grads = [owners[at] for source, at in inputs if source == "grad"]
        written = sorted(plan.updated, key=lambda i: inputs[i][0] == "grad")
        self._updated = [i for i in written if inputs[i][0] != "memory"]  # cells before gradients
        self._updated_at = [fed_at[i] for i in self._updated]
        sources = [inputs[i] for i in self._updated]
        self._updated_cells = [trace.cells[at] for source, at in sources if source != "grad"]
        self._updated_grads = [owners[at] for source, at in sources if source == "grad"]
        self._memory = [i for i in written if inputs[i][0] == "memory"]
        self._memory_owners = [trace.new_grads[inputs[i][1]] for i in self._memory]
        self._memory_sigs = [grad_sigs[inputs[i][1]] for i in self._memory]
        self.written = self._updated + self._memory
        some, others = len(self._updated), len(self._memory)
        self._ones = [1] * others
        # who has the nodes: cells and two lists, the old gradients and one list; who has the values: `values` of cells'
        self._usual = SoleOwners([3] * some + [2] * others, [1] * some + [0] * others)

    def nodes(self, leaves: list[Any]) -> list[Node] | None:
        """The leaves of arguments, cells and gradients that the plan reads, as they are now.

        None where another thread has written something else to one since the trace was found to fit.
        """
        nodes = [leaves[at]._node for at in self._args]
        if self._cells or self._grads:
            nodes += [cell._node for cell in self._cells]
            nodes += [_EMPTY if (grad := owner._grad) is None else grad._node for owner in self._grads]
        return nodes if [n.sig for n in nodes] == self._sigs else None

    def given(self, leaves: list[Any]) -> list[Value] | None:
        """The plan's inputs where they are nothing but arguments and what never changes. None: as in `nodes`."""
        values = self.template.copy()
        for position, at, sig in self._given:
            node = leaves[at]._node
            if node.sig != sig:
                return None
            values[position] = node.data
        return values

    def steady(self, cells: Sequence[Tensor], owners: Sequence[Tensor], values: list[Value]) -> Steady:
        """The state after a run that wrote all that it may write where it lay."""
        replaced = [grad for owner in self._memory_owners if (grad := owner._grad) is not None]
        written = [node for node in self._holders() if node is not None] + [grad._node for grad in replaced]
        for position, _ in self.arguments:
            values[position] = _NOWHERE
        return Steady(cells, owners, values, written, replaced)

    def values(self, nodes: list[Node]) -> list[Value]:
        """The plan's inputs. `nodes`: what `nodes` gave."""
        known: list[Any] = [n.data for n in nodes] + self._fixed
        return [known[k] for k in self._order]

    def writable(self, nodes: list[Node], values: list[Value], aside: list[Aside]) -> list[int]:
        """Inputs whose memory only their cells can see, so that the plan may write new values there.

        Where all is as usual that is all of them, and `values` get the memory of gradients which the plan replaces.
        `aside` gets the views that were taken off such memory.
        """
        if not self.written:
            return []
        updated = [nodes[k] for k in self._updated_at]
        if self._as_usual(updated, values) or (ask_back(updated) and self._as_usual(updated, values)):
            return self.written
        return self._owned(updated, aside) if updated else []

    def _as_usual(self, updated: list[Node], values: list[Value]) -> bool:
        """Whether all that may be overwritten has a sole owner; `values` get the memory of gradients then."""
        grads = [owner._grad for owner in self._memory_owners]
        memory = [_EMPTY if grad is None else grad._node for grad in grads]
        if not (
            [n.sig for n in memory] == self._memory_sigs
            and self._usual.own(updated + memory)
            and self._holders() == updated
            and not any(held(grads, self._ones))
        ):
            return False
        for i, node in zip(self._memory, memory, strict=True):
            values[i] = node.data
        return True

    def _owned(self, nodes: list[Node], aside: list[Aside]) -> list[int]:
        """Which of the updated inputs have a sole owner."""
        sole = sole_owner(nodes, [2] * len(nodes), fed=1)
        self._set_aside(nodes, sole, aside)
        # a cell that another thread has written to since no longer tells who may hold what it held
        holders = self._holders()
        return [i for i, mine, a, b in zip(self._updated, sole, nodes, holders, strict=True) if mine and a is b]

    def _holders(self) -> list[Node | None]:
        """What cells and gradients that the plan updates hold now."""
        grads = [None if (grad := owner._grad) is None else grad._node for owner in self._updated_grads]
        return [cell._node for cell in self._updated_cells] + grads

    def _set_aside(self, nodes: list[Node], sole: list[bool], aside: list[Aside]) -> None:
        """Take views off the memory of cells, where nobody else holds that memory."""
        for i, cell in enumerate([*self._updated_cells, *[owner._grad for owner in self._updated_grads]]):
            if sole[i] or cell is None or cell._node is not nodes[i] or cell._link is None or not cell._link.views:
                continue
            views = Aside(cell)
            (sole[i],) = sole_owner(nodes[i : i + 1], [3], fed=1)  # its cell, the caller's list and `nodes`
            if sole[i]:
                aside.append(views)
            else:
                views.undo()
