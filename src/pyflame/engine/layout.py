"""What a GPU is given for a plan, before there is a GPU: the arguments of every kernel and library call, in order.

A launch takes kernel arguments of 8 bytes: the addresses of its buffers, its scratch, the uniforms and the error
record, then the numbers of its phase. An address is a byte of a slot (`engine/binding.py`); one that a kernel does not
need is 0. The runner adds the addresses of a run's memory; an ahead-of-time file names buffers in their place.
"""

from __future__ import annotations

from typing import NamedTuple

from pyflame.engine.binding import Slots
from pyflame.ir.kernel import ERRORS, NUMBER, UNIFORMS, CompiledKernel, GpuPhase, GpuSource, LibraryCall, Plan, Way

NOTHING = (0, 0)  # an argument that is 0
ERROR_BYTES = 24  # of the error record


class Work(NamedTuple):
    """A kernel or a library's call of one launch. `kernel_args`: (1 + slot, byte offset), or (0, number)."""

    launch: int
    kernel_args: tuple[tuple[int, int], ...]
    alignment: tuple[int, ...]  # that its arguments must have, for as many as it is promised
    phase: GpuPhase | None = None  # of a text with several
    scratch: int = -1  # which argument is the address of scratch that all launches share


def scratch_bytes(source: Way) -> int:
    """The memory of its own that a launch needs while it runs."""
    if isinstance(source, LibraryCall):
        return source.workspace
    return 0 if isinstance(source, CompiledKernel) else source.scratch_bytes


def lay_out(plan: Plan, slots: Slots) -> list[Work]:
    """All work of a plan for a GPU."""
    out: list[Work] = []
    uniforms = (slots.arena + 3, 0) if plan.uniforms else NOTHING
    errors = (slots.arena + 4, 0) if plan.checks else NOTHING
    for number, (launch, source) in enumerate(zip(plan.launches, plan.sources, strict=True)):
        if isinstance(source, CompiledKernel):
            known = {UNIFORMS: uniforms, ERRORS: errors}
            kernel_args = [
                (0, value) if buffer == NUMBER else known.get(buffer) or _kernel_arg(slots, buffer, value)
                for buffer, value in source.kernel_args
            ]
            out.append(Work(number, tuple(kernel_args), ()))
            continue
        needs = scratch_bytes(source)
        slot, offset = slots.scratch_place(number)
        scratch = (slot + 1, offset) if needs else NOTHING
        shared = bool(needs and slots.scratch_bytes)
        if isinstance(source, LibraryCall):
            kernel_args = [_kernel_arg(slots, *launch.buffers[b]) for b in source.buffers]
            out.append(
                Work(number, (*kernel_args, scratch), source.alignment, None, len(kernel_args) if shared else -1)
            )
            continue
        assert isinstance(source, GpuSource)
        kernel_args = [_kernel_arg(slots, *place) for place in launch.buffers[: source.buffers]]
        for phase in source.phases:
            numbers = [(0, value) for value in phase.args]
            whole = (*kernel_args, scratch, uniforms, errors, *numbers)
            alignment = source.alignment[: source.buffers]
            out.append(Work(number, whole, alignment, phase, len(kernel_args) if shared else -1))
    return out


def _kernel_arg(slots: Slots, buffer: int, offset: int) -> tuple[int, int]:
    slot, start = slots.place(buffer, offset)
    return slot + 1, start
