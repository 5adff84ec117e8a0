"""`evaluate` for the rooms above: nodes in, leaves out.

`engine/evaluate.py` brings planning, fusion and code generation, a third of what importing pyflame would cost: it is
imported when something is first computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from pyflame.ir import Node


@cache
def _engine() -> Callable[[Sequence[Node]], None]:
    from pyflame.engine.evaluate import evaluate

    return evaluate


def evaluate(nodes: Sequence[Node]) -> None:
    """Compute these nodes: see `engine/evaluate.py`."""
    _engine()(nodes)
