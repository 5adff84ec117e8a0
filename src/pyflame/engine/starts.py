"""Where assignments begin: a number that a plan is given at each run, and no part of the key of a graph."""

from __future__ import annotations

from pyflame.core.device import CPU
from pyflame.core.shape import start_of
from pyflame.ir import Node, signature

# By the signature of an assignment: the signature without where it begins, and that place in elements; () where the
# place stays a part of the key. For C, which looks here (known.c).
STARTS: dict[int, tuple[int, ...]] = {}
_MAX_KNOWN = 10_000


def start_of_assignment(node: Node) -> tuple[int, ...]:
    """What is put down above. Backwards nothing begins, and a CPU's plan alone takes addresses as they come."""
    (region,) = node.attrs
    if node.meta.device != CPU or any(step < 0 for _, step, _ in region):
        return ()
    without = signature("assign", tuple([(step, count) for _, step, count in region]), node.meta)
    return without, start_of(region, node.shape)


def learn_start(node: Node) -> None:
    """Put it down."""
    if len(STARTS) >= _MAX_KNOWN:
        STARTS.clear()
    STARTS[node.sig] = start_of_assignment(node)
