"""A fault in words: which kernel, instruction, source line and thread, and what lies at the address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyflame.runtime.sim.decode.inst import Fault, Launch
from pyflame.runtime.sim.decode.lines import source_frames
from pyflame.runtime.sim.faults import SimulationFault

if TYPE_CHECKING:
    from pyflame.runtime.sim.elf import Kernel
    from pyflame.runtime.sim.machine import Code
    from pyflame.runtime.sim.memory import Memory

_ADDRESS, _UNINITIALISED, _RACE, _BARRIER, _LIMIT, _INSTRUCTION, _ALIGNMENT, _DIVERGENT = range(1, 9)
_GLOBAL, _LDS, _SCRATCH, _FLAT, _CODE = range(5)
_KINDS = {
    _ADDRESS: "illegal address",
    _UNINITIALISED: "uninitialised read",
    _RACE: "race",
    _BARRIER: "barrier",
    _LIMIT: "limit",
    _INSTRUCTION: "illegal instruction",
    _ALIGNMENT: "illegal address",
    _DIVERGENT: "barrier",
}
_SEVERAL = 0xFFFFFFFF


def explain(launch: Launch, kernel: Kernel, code: Code, memory: Memory) -> SimulationFault:
    """The exception for a fault of the interpreter."""
    fault = launch.fault
    what, way_out = _describe(launch, kernel, code, memory)
    where = _instruction(fault.inst, code, kernel)
    return SimulationFault(_KINDS[fault.kind], f"[{kernel.name}] {what}; {where}, {_thread(launch, code)}; {way_out}")


def _describe(launch: Launch, kernel: Kernel, code: Code, memory: Memory) -> tuple[str, str]:
    """What was expected and what happened; the way out."""
    fault = launch.fault
    kind = fault.kind
    if kind == _ADDRESS and fault.space == _CODE:
        return (
            f"expected to go on inside the kernel's code but got the address {fault.address:#x}",
            "check function pointers, and that every path returns",
        )
    if kind == _ADDRESS:
        return _outside(fault, launch, memory)
    if kind == _UNINITIALISED:
        return (
            f"expected memory that was written before it is read but got {_place(fault, memory)}, which nothing has "
            "written",
            "initialise it, or look for the write or the barrier that is missing",
        )
    if kind == _RACE and fault.other_inst:
        return _unordered(launch, kernel, code, memory)
    if kind == _RACE:
        return _overwritten(fault, memory) if fault.space == _GLOBAL else _race(fault)
    if kind == _BARRIER:
        return (
            f"expected every wave of the block to reach the barrier but wave {fault.other} has ended while wave "
            f"{fault.wave} waits",
            "let all threads of a block reach the same __syncthreads(), also those that have nothing to do",
        )
    if kind == _DIVERGENT:
        return (
            f"expected every thread of a wave to reach the barrier in {_instruction(fault.other, code, kernel)} but "
            f"lane {fault.lane} went around it",
            "move __syncthreads() out of the branch or the loop that only some threads take",
        )
    if kind == _LIMIT:
        return (
            f"expected the launch to end within {launch.step_limit} instructions but it did not",
            "look for a loop that does not end, or raise the step limit",
        )
    if kind == _ALIGNMENT:
        return (
            f"expected an address that is a multiple of {min(fault.bytes, 4) if not fault.write else fault.bytes} but "
            f"got {_place(fault, memory)}",
            "align the data",
        )
    return _not_run(fault, code)


def _outside(fault: Fault, launch: Launch, memory: Memory) -> tuple[str, str]:
    access = f"{'a write' if fault.write else 'a read'} of {fault.bytes} byte{'s' if fault.bytes != 1 else ''}"
    if fault.space == _LDS:
        return (
            f"expected {access} within the block's {launch.lds_bytes} bytes of LDS but got byte {fault.address}",
            "check the index, and the size of __shared__ and dynamic LDS",
        )
    if fault.space == _SCRATCH:
        return (
            f"expected {access} within the thread's {launch.scratch_bytes} bytes of stack but got byte {fault.address}",
            "check the index into local arrays",
        )
    return (
        f"expected {access} inside an allocation but got {memory.describe(fault.address)}",
        "check the index against the size of the buffer",
    )


def _race(fault: Fault) -> tuple[str, str]:
    others = "several other waves have" if fault.other == _SEVERAL else f"wave {fault.other} has"
    mine = "writes" if fault.write else "reads"
    theirs = "written" if fault.other_write else "read"
    return (
        f"expected a barrier between two waves' accesses to byte {fault.address} of the LDS but wave {fault.wave} "
        f"{mine} what {others} {theirs} since the last one",
        "put __syncthreads() between them",
    )


def _overwritten(fault: Fault, memory: Memory) -> tuple[str, str]:
    return (
        f"expected one thread to store a result but got {_place(fault, memory)}, where another thread of the launch "
        "has stored another value, with no barrier between",
        "check the index, or use an atomic",
    )


def _unordered(launch: Launch, kernel: Kernel, code: Code, memory: Memory) -> tuple[str, str]:
    """A race in global memory, with the other access."""
    fault, (x, y, _) = launch.fault, launch.grid
    n, mine, theirs = fault.other_group, *("written" if w else "read" for w in (fault.write, fault.other_write))
    wave = "several waves" if fault.other == _SEVERAL else f"wave {fault.other}"
    who = "several blocks have" if n == _SEVERAL else f"block {(n % x, n // x % y, n // x // y)}, {wave}, has"
    return (
        f"expected a barrier, or a release and an acquire, between two accesses to {_place(fault, memory)}, one a "
        f"write, but it is {mine} after {who} {theirs} it by {_instruction(fault.other_inst - 1, code, kernel)}",
        "let one thread write it, use atomics for all of it, or within a block put __syncthreads() between them",
    )


def _not_run(fault: Fault, code: Code) -> tuple[str, str]:
    problem = code.problems.get(fault.inst)
    if problem is not None:
        return (
            f"expected an instruction that the simulator knows but got one it does not: {problem}",
            "write the kernel without it, or report the instruction",
        )
    if fault.space == _GLOBAL:
        return (
            "expected a linear buffer but got a swizzled descriptor, or one that adds the lane's number",
            "make the descriptor without them",
        )
    return "expected to run to the end but came to a trap", "look for __builtin_trap() or abort() in the source"


def _place(fault: Fault, memory: Memory) -> str:
    if fault.space == _LDS:
        return f"byte {fault.address} of the LDS"
    if fault.space == _SCRATCH:
        return f"byte {fault.address} of the thread's stack"
    return memory.describe(fault.address)


def _thread(launch: Launch, code: Code) -> str:
    """Who did it."""
    fault = launch.fault
    wave = f"block {tuple(fault.group)}, wave {fault.wave}"
    if fault.kind in (_BARRIER, _LIMIT, _INSTRUCTION) or (fault.space == _CODE and fault.kind != _DIVERGENT):
        return wave
    n = fault.wave * code.lanes + fault.lane
    x, y, _ = launch.block
    return f"{wave}, lane {fault.lane}, thread {(n % x, n // x % y, n // x // y)}"


def _instruction(number: int, code: Code, kernel: Kernel) -> str:
    if number >= len(code.lines):
        return "behind the last instruction"
    line = code.lines[number]
    source = source_line(kernel.module.code, line.address)
    return f"`{line.text}` at {line.address:#x}{f' ({source})' if source else ''}"


def source_line(code: bytes, address: int) -> str | None:
    """`file:line` of an instruction if the code object was built with -g, with the lines that it was inlined into.

    >>> source_line(code, 0x1a40)  # doctest: +SKIP
    'reduce.hip:12, inlined at reduce.hip:40'
    """
    frames = [f"{Path(file).name}:{line}" for file, line in source_frames(code, [address]).get(address, ())]
    return ", inlined at ".join(frames) or None
