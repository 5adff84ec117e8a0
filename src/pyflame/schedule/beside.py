"""Launches that write a few lines, and small ones before or behind them that need nothing of them, become one launch.

Each takes a GPU longer to start than to do. Blocks of the one launch do the work of one or the other: a decoder's
queries, keys and values are turned and kept in its cache at once.
"""

from __future__ import annotations

from dataclasses import replace

from pyflame.ir.kernel import Access, Instr, Kernel, Launch

SMALL_BYTES = 1 << 20  # that several launches move together
WINDOW = 4  # launches to look back for one to run beside
MAX_INSTRS = 96  # of them together: a launch has room for so many parameters


def beside(launches: list[Launch], launch: Launch) -> int:
    """Let one of the last launches do another, where that changes nothing; gives its number, -1 where none can."""
    for number in range(len(launches) - 1, max(-1, len(launches) - 1 - WINDOW), -1):
        other = launches[number]
        if not _flat(launch) or not _flat(other) or not _independent(other, launch):
            break
        if _worth_it(other, launch):
            launches[number] = _together(other, launch)
            return number
    return -1


def _flat(launch: Launch) -> bool:
    return launch.kernel.anchor is None and launch.kernel.depth == 1


def _worth_it(first: Launch, second: Launch) -> bool:
    """Whether one of them writes lines, and both are small."""
    lines = any(part.kernel.line is not None for part in (*(first.parts or (first,)), second))
    instrs = len(first.kernel.instrs) + len(second.kernel.instrs)
    return lines and instrs <= MAX_INSTRS and first.nbytes + second.nbytes <= SMALL_BYTES


def _together(first: Launch, second: Launch) -> Launch:
    parts = (*(first.parts or (first,)), second)
    kernel = _all_of(first.kernel, second.kernel, len(first.buffers))
    moved = tuple((len(first.buffers) + buffer, start) for buffer, start in second.starts)
    return replace(
        first,
        name="_".join(dict.fromkeys(kernel.ops))[:60],
        kernel=kernel,
        buffers=first.buffers + second.buffers,
        ops=kernel.ops,
        nbytes=first.nbytes + second.nbytes,
        flops=first.flops + second.flops,
        why=f"{len(parts)} small launches side by side",
        overwrites_input=first.overwrites_input or second.overwrites_input,
        starts=first.starts + moved,
        parts=parts,
    )


def _independent(first: Launch, second: Launch) -> bool:
    """Whether neither writes what the other uses, and none that finds a bad index could keep the other from writing."""
    for one, other in ((first, second), (second, first)):
        written = {one.buffers[access.buffer][0] for _, access in one.kernel.stores}
        if any(buffer in written for buffer, _ in other.buffers):
            return False
    found = [_checked(launch) for launch in (first, second)]
    return not all(found) or found[0] == found[1]


def _checked(launch: Launch) -> set[tuple[object, ...]]:
    """What a launch checks: two that check the same find the same."""
    found: set[tuple[object, ...]] = set()
    for instr in launch.kernel.instrs:
        if instr.check >= 0 and instr.access is not None:
            same = instr.kind == "line"
            found.add((launch.buffers[instr.access.buffer], instr.dynamic) if same else (instr.check,))
    return found


def _all_of(first: Kernel, second: Kernel, buffers: int) -> Kernel:
    """What two kernels compute and store, the second one's buffers behind those of the first."""
    values = len(first.instrs)

    def moved(access: Access) -> Access:
        return access._replace(buffer=access.buffer + buffers) if access.buffer >= 0 else access

    def instr(i: Instr) -> Instr:
        args = tuple([values + a for a in i.args])
        return i._replace(args=args, access=None if i.access is None else moved(i.access))

    return replace(
        first,
        instrs=first.instrs + tuple([instr(i) for i in second.instrs]),
        stores=first.stores + tuple([(values + v, moved(a)) for v, a in second.stores]),
        ops=first.ops + second.ops,
        flops=first.flops + second.flops,
    )
