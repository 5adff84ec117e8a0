"""Whether all processes of a group call the same collective with tensors that fit together.

torch does not look: gloo hangs, or mixes bytes of different meanings. Here each process first tells the others in a
short line what it is about to do. PYFLAME_CHECK_COLLECTIVES=0 leaves that out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from pyflame.collectives.world import guarded, torch_device
from pyflame.core import knobs
from pyflame.core.device import DeviceId
from pyflame.core.errors import CollectiveError, DTypeError, PyFlameError, ShapeError
from pyflame.core.optional import optional
from pyflame.tensor import Tensor

_LENGTH = 192  # bytes of a line


def agree(dist: Any, group: Any, op: str, name: str, tensor: Tensor, *more: Any) -> None:
    """Raise on every process unless all call `op` with this shape, dtype and `more`. The error names the tensor."""
    if knobs.CHECK_COLLECTIVES.choice("0", "1") == "0" or dist.get_rank(group) < 0:
        return
    mine = [op, str(tuple(tensor.shape)), tensor.dtype.name, *map(str, more)]
    lines = [line.split("|") for line in _begin_lines(dist, group, op, "|".join(mine), tensor._node.meta.device)()]
    for rank, line in enumerate(lines):
        if line != lines[0]:
            raise _difference(op, name, lines[0], line, rank)


def agree_on_plan(dist: Any, group: Any, calls: list[str], device: DeviceId | None) -> Callable[[], None]:
    """Begin to compare the collectives of a jitted function on a device. What it gives waits, and raises on every
    process unless all have these, in this order."""
    if knobs.CHECK_COLLECTIVES.choice("0", "1") == "0" or dist.get_rank(group) < 0:
        return lambda: None
    lines = _begin_lines(dist, group, "jit", f"jit|{hashlib.sha256(repr(calls).encode()).hexdigest()}", device)

    def wait() -> None:
        found = lines()
        if len(set(found)) > 1:
            raise _plan_difference(dist, group, calls, [line.partition("|")[0] for line in found])

    return wait


def _plan_difference(dist: Any, group: Any, calls: list[str], ops: list[str]) -> CollectiveError:
    """The error for processes that would not do the same."""
    if set(ops) == {"jit"}:
        found: list[Any] = [None] * len(ops)
        guarded("jit", lambda: dist.all_gather_object(found, calls, group))
    else:
        found = [[f"in {op}" if op != "jit" else "in a jitted function"] for op in ops]
    rank, other = next((r, other) for r, other in enumerate(found) if other != found[0])
    pairs = list(zip_longest(found[0], other, fillvalue="missing"))
    number = next(n for n, (a, b) in enumerate(pairs) if a != b)
    return CollectiveError(
        f"[jit] expected the same collectives on all processes but number {number} is {pairs[number][0]} on rank 0 and "
        f"{pairs[number][1]} on rank {rank} of the group"
    )


def _begin_lines(dist: Any, group: Any, op: str, line: str, device: DeviceId | None) -> Callable[[], list[str]]:
    """Send a line to all processes, from the device whose tensors follow; what it gives waits for theirs."""
    torch = optional("torch", "torch", op)
    mine = torch.frombuffer(bytearray(line.encode()[:_LENGTH].ljust(_LENGTH)), dtype=torch.uint8)
    mine = mine.to(torch_device(group, device))
    found = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    work = guarded(op, lambda: dist.all_gather(found, mine, group=group, async_op=True))

    def wait() -> list[str]:
        guarded(op, work.wait)
        return [bytes(one.cpu().numpy()).decode().rstrip() for one in found]

    return wait


def _difference(op: str, name: str, first: list[str], other: list[str], rank: int) -> PyFlameError:
    """The error for two lines that differ: of the kind of the first part that does."""
    kinds: list[tuple[type[PyFlameError], str, int]] = [
        (CollectiveError, "call", 0), (ShapeError, f"shape of {name}", 1), (DTypeError, f"dtype of {name}", 2),
    ]  # fmt: skip
    for kind, what, part in kinds:
        if first[part] != other[part]:
            return kind(
                f"[{op}] expected the same {what} on all processes but got {first[part]} on rank 0 and {other[part]} "
                f"on rank {rank} of the group"
            )
    return CollectiveError(
        f"[{op}] expected the same options on all processes but got {first[3:]} on rank 0 and {other[3:]} on rank "
        f"{rank} of the group"
    )
