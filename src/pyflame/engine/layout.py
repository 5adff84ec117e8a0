"""What a GPU is given for a plan, before there is a GPU: the words of every kernel and library call, in order.

A launch takes 8-byte words: the addresses of its buffers, its scratch, the uniforms and the error record, then its
arguments. An address is a byte of a slot (`engine/binding.py`); one that a kernel does not need is 0. The runner adds
the addresses of a run's memory; an ahead-of-time file names buffers in their place.
"""

from __future__ import annotations

from typing import NamedTuple

from pyflame.engine.binding import Slots
from pyflame.ir.kernel import ERRORS, NUMBER, UNIFORMS, CompiledKernel, GpuPhase, GpuSource, LibraryCall, Plan, Way

NOTHING = (0, 0)  # a word that is 0
ERROR_BYTES = 24  # of the error record


class Work(NamedTuple):
    """A kernel or a library's call of one launch. `words`: (1 + slot, byte offset), or (0, number)."""

    launch: int
    words: tuple[tuple[int, int], ...]
    alignment: tuple[int, ...]  # that its words must have, for as many as it is promised
    phase: GpuPhase | None = None  # of a text with several
    scratch: int = -1  # which word is the address of scratch that all launches share


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
            words = [
                (0, value) if buffer == NUMBER else known.get(buffer) or _word(slots, buffer, value)
                for buffer, value in source.words
            ]
            out.append(Work(number, tuple(words), ()))
            continue
        needs = scratch_bytes(source)
        slot, offset = slots.scratch_place(number)
        scratch = (slot + 1, offset) if needs else NOTHING
        shared = bool(needs and slots.scratch_bytes)
        if isinstance(source, LibraryCall):
            words = [_word(slots, *launch.buffers[b]) for b in source.buffers]
            out.append(Work(number, (*words, scratch), source.alignment, None, len(words) if shared else -1))
            continue
        assert isinstance(source, GpuSource)
        words = [_word(slots, *place) for place in launch.buffers[: source.buffers]]
        for phase in source.phases:
            numbers = [(0, value) for value in phase.args]
            whole = (*words, scratch, uniforms, errors, *numbers)
            alignment = source.alignment[: source.buffers]
            out.append(Work(number, whole, alignment, phase, len(words) if shared else -1))
    return out


def _word(slots: Slots, buffer: int, offset: int) -> tuple[int, int]:
    slot, start = slots.place(buffer, offset)
    return slot + 1, start
