"""A recorded graph on a device: its nodes made anew there, and evaluated some at a time."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceFaultError, PyFlameError
from pyflame.core.state import mode
from pyflame.doctor.closeness import Array
from pyflame.doctor.verify.record import Recording
from pyflame.engine.evaluate import evaluate
from pyflame.ir import Node, copy_to, signature
from pyflame.ir.node import Meta
from pyflame.ir.opdef import CONST, COPY, LEAF, MOVEMENT
from pyflame.tensor import Tensor


class DeviceGraph:
    """The nodes of a recording on one device. `made` knows those that are there."""

    def __init__(self, recording: Recording, device: DeviceId) -> None:
        self.recording, self.device = recording, device
        self.made: dict[Node, Node] = {}
        self.errors: dict[Node, str] = {}  # nodes that the device could not compute

    def node(self, node: Node) -> Node:
        """A node on this device, over sources that are made already or are made now."""
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [s for s in top.srcs if s not in self.made]
            if top in self.made or not missing:
                stack.pop()
                if top not in self.made:
                    self.made[top] = self._make(top)
            else:
                stack += missing
        return self.made[node]

    def _make(self, node: Node) -> Node:
        if node.op.kind == LEAF:
            return copy_to(self.recording.inputs.get(node, node), self.device, commit=True)
        if node.op.kind == CONST:
            drawn = self.recording.numbers.get(node)
            return node if drawn is None else Node(node.op, (), (), node.meta, node.sig, drawn)
        sources = tuple([self.made[s] for s in node.srcs])
        return sources[0] if node.op.kind == COPY else placed_anew(node, sources, self.device)

    def over(self, node: Node, values: DeviceGraph) -> Node:
        """A node on this device over the values that another one has for its sources."""
        below: dict[Node, Node] = {}

        def source(of: Node) -> Node:
            if of not in below:
                if of.op.kind == MOVEMENT and values.made[of].op.kind != LEAF:
                    below[of] = placed_anew(of, tuple([source(s) for s in of.srcs]), self.device)
                else:
                    there = values.made[of]
                    below[of] = there if of.op.kind == CONST else copy_to(there, self.device, commit=True)
            return below[of]

        return placed_anew(node, tuple([source(s) for s in node.srcs]), self.device)


def placed_anew(node: Node, sources: tuple[Node, ...], device: DeviceId) -> Node:
    """The same op on another device."""
    meta = Meta(node.meta.shape, node.meta.dtype, device, True)
    made = Node(node.op, sources, node.attrs, meta, signature(node.op.name, node.attrs, meta), node.data)
    made.line = node.line
    return made


def computed(nodes: Sequence[Node], device: DeviceId) -> dict[Node, str]:
    """Evaluate nodes of a device together; where that fails one by one. Gives those that failed, and why."""
    failed: dict[Node, str] = {}
    with mode(device=device, recorder=None, tracer=None, autocast=None, eager=False):
        try:
            evaluate(nodes)
        except DeviceFaultError:
            raise
        except PyFlameError:
            for node in nodes:
                try:
                    evaluate([node])
                except DeviceFaultError:
                    raise
                except PyFlameError as error:
                    failed[node] = str(error)
    return failed


def array_of(node: Node) -> Array:
    """The values of an evaluated node."""
    return Tensor(node).numpy()
