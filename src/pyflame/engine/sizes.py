"""In how many sizes a launch has come: where there are many, more will come than trying each out is worth."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from pyflame.core.locks import lock
from pyflame.ir.kernel import Launch

FEW_SIZES = 8  # that are tried out
MAX_KEPT = 4096

_seen: OrderedDict[tuple[Any, ...], set[int]] = OrderedDict()  # sizes, by launches without them
_lock = lock()


def has_many_sizes(launch: Launch) -> bool:
    """Whether it came in many sizes that differ in one number only, which may stand in several places; this one counts.

    So the layers of a network are few sizes each, and a text that grows is many."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    shapes, dtypes = [value.shape for value in launch.operands], [value.dtype for value in launch.operands]
    most = 0
    with _lock:
        for size in {size for shape in shapes for size in shape}:
            others = tuple([tuple([-1 if n == size else n for n in shape]) for shape in shapes])
            sizes = _seen.setdefault((anchor.op, *dtypes, others), set())
            _seen.move_to_end((anchor.op, *dtypes, others))
            if len(sizes) <= FEW_SIZES:
                sizes.add(size)
            most = max(most, len(sizes))
        while len(_seen) > MAX_KEPT:
            _seen.popitem(last=False)
    return most > FEW_SIZES


def forget_sizes() -> None:
    """Forget all sizes."""
    with _lock:
        _seen.clear()
