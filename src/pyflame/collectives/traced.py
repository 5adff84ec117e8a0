"""Collectives as ops of a jitted function: all_reduce and broadcast, which leave shape and dtype as they are.

The op's attribute knows the process group. When the plan runs, a copy of the value goes to torch, which works on it
while the plan goes on; its memory is the result. Before the first one the processes compare what all of them will be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyflame.collectives.agreement import agree_on_plan
from pyflame.collectives.work import changed, received
from pyflame.collectives.world import guarded, torch_world
from pyflame.core.state import mode
from pyflame.engine.collective import Flight
from pyflame.engine.value import Value
from pyflame.ir import OPS, Meta, Node, placed, signature
from pyflame.ir.opdef import apply
from pyflame.tensor import Tensor
from pyflame.tensor.modes import eval as evaluate
from pyflame.tensor.tensor import read


@dataclass(frozen=True)
class Collective:
    """One call: torch's name of it, and the operation or the rank that sends."""

    name: str
    how: Any
    group: Any

    def start(self, meta: Meta, value: Value) -> Flight:
        """Let torch begin; what it gives waits for the result."""
        dist = torch_world(self.name)
        mine = Tensor(Node(OPS["leaf"], (), (), meta, signature("leaf", meta, value.strides), value))
        values = changed(mine, self.group)
        work = guarded(self.name, partial(getattr(dist, self.name), values, self.how, self.group, True))
        return partial(self._finish, work, values, meta)

    def _finish(self, work: Any, values: Any, meta: Meta) -> Value:
        guarded(self.name, work.wait)
        out = received(values, meta.device)
        evaluate(out)
        found: Value = out._node.data
        return found

    def agree(self, calls: Sequence[tuple[Any, Meta]]) -> Callable[[], None]:
        """Compare the calls of each group with those that its other processes make."""
        dist = torch_world("jit")
        groups = list(dict.fromkeys([call.group for call, _ in calls]))
        waits = []
        for group in groups:
            own = [(call, meta) for call, meta in calls if call.group is group]
            lines = [f"{call.name} {call.how} of {tuple(meta.shape)} {meta.dtype.name}" for call, meta in own]
            waits.append(agree_on_plan(dist, group, lines, own[0][1].device))

        def wait() -> None:
            for each in waits:
                each()

        return wait


def traced(tensor: Tensor, name: str, how: Any, group: Any) -> Tensor:
    """The result of a collective of torch's, as a node of the function that is being traced."""
    with mode(recorder=None):
        node = apply(OPS["collective"], (placed(read(tensor)),), (Collective(name, how, group),))
    return Tensor(node)
