"""A loop's state that stays where it is: a replay that wrote all new values where the old ones lay finds the same nodes
at the next call, and need not look at them one by one again.

What is remembered is held. Whoever wants to overwrite such memory asks for it back (`engine/ownership.py`).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from operator import is_

from pyflame.engine.ownership import LISTED, lend
from pyflame.engine.value import Value
from pyflame.ir import Node
from pyflame.tensor import Tensor


class Steady:
    """State after a replay. `cells`: those whose values must be the same, `owners`: those whose gradients must.

    `values`: the plan's inputs, but for arguments. `written`: nodes that the plan overwrites, if nobody else can see
    their memory; `replaced`: gradients that it overwrites.
    """

    def __init__(
        self,
        cells: Sequence[Tensor],
        owners: Sequence[Tensor],
        values: list[Value],
        written: Sequence[Node],
        replaced: Sequence[Tensor],
    ) -> None:
        self._cells, self._owners = cells, owners  # engine/jitted_call.c reads `parts` and `_values`
        self._values: list[Value] | None = values
        self._nodes = [cell._node for cell in cells]
        self._grads = [owner._grad for owner in owners]
        self._present = [grad for grad in self._grads if grad is not None]
        self._grad_nodes = [grad._node for grad in self._present]
        data = [node.data for node in written]
        self._things = [*written, *replaced, *data, *[value.storage for value in data]]
        # nodes: their tensor and a list here; gradients: their owner and two lists; values: their node and `values`
        counts = [2] * len(written) + [3] * len(replaced) + [2] * len(data) + [1] * len(data)
        self._counts = [LISTED + n for n in counts]
        held_by = struct.pack(f"={len(counts)}q", *[1 + n for n in counts])  # as C counts, which has no list of its own
        self.parts = cells, self._nodes, owners, self._grads, self._present, self._grad_nodes, self._things, held_by
        self.ids = frozenset(map(id, [*self._nodes, *self._grad_nodes]))
        lend(self)

    def let_go(self) -> None:
        """Hold nothing any more, and serve nobody."""
        self._values = None
        for held in (self._nodes, self._grads, self._present, self._grad_nodes, self._things):
            held.clear()

    def inputs(self, arguments: Sequence[tuple[int, Node]]) -> list[Value] | None:
        """The plan's inputs with these arguments; None where anything is not as it was.

        An argument that is state as well must be fed in the usual way, which sees that two read it.
        """
        if (
            self._values is None
            or [cell._node for cell in self._cells] != self._nodes
            or not all(map(is_, [owner._grad for owner in self._owners], self._grads))
            or [grad._node for grad in self._present] != self._grad_nodes
            or list(map(sys.getrefcount, self._things)) != self._counts
        ):
            return None
        values = self._values.copy()
        for position, node in arguments:
            if id(node) in self.ids:
                return None
            values[position] = node.data
        return values
