"""Launches of a plan that may run beside each other, for captured graphs.

Small launches leave most of a GPU idle. The longest chain of launches that wait for each other is one branch, the rest
is the other: beside the chain of gradients, which are computed layer by layer, weights' gradients and their updates.
Both keep the plan's order. A launch waits for those of the other branch that touched the same memory: that it reads
what they wrote, or that it writes to memory which the plan uses again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyflame.engine.merge import SENTINEL, Place, places
from pyflame.ir.kernel import Launch, Plan

PRODUCTS = ("matmul", "conv_general")  # anchors that write to nothing but what their kernels store
LEAST_GAIN = 1.1  # of the time that branches save, as a whole to the longest chain
_ERRORS = -2  # the error record, as memory; the arena is -1

# About how long a launch takes, for finding the longest chain: to start it, bytes, operations.
_START, _PER_BYTE, _PER_FLOP = 2e-6, 1 / 2e12, 1 / 5e13


@dataclass(frozen=True)
class Step:
    """A launch, whether it is in the side branch, and the launch of the other branch that it waits for; -1: none."""

    launch: int
    side: bool
    after: int


def steps(plan: Plan) -> list[Step]:
    """All launches, in order. None is in the side branch where that would save little."""
    needs = dependencies(plan)
    done: list[float] = []
    for launch, before in zip(plan.launches, needs, strict=True):
        own = _START + launch.nbytes * _PER_BYTE + launch.flops * _PER_FLOP
        done.append(own + max((done[n] for n in before), default=0.0))
    chain = _chain(needs, done)
    total = sum(_START + x.nbytes * _PER_BYTE + x.flops * _PER_FLOP for x in plan.launches)
    if not done or total < LEAST_GAIN * max(done):
        chain = set(range(len(done)))
    waited = {False: -1, True: -1}  # by branch: up to where the other one is known to be done
    out = []
    for number, before in enumerate(needs):
        side = number not in chain
        last = max((n for n in before if (n not in chain) != side), default=-1)
        out.append(Step(number, side, last if last > waited[side] else -1))
        waited[side] = max(waited[side], last)
    return out


def _chain(needs: list[set[int]], done: list[float]) -> set[int]:
    """The launches that the last one to be done waits for, each by way of the latest before it."""
    chain: set[int] = set()
    at = max(range(len(done)), key=done.__getitem__, default=-1)
    while at >= 0:
        chain.add(at)
        at = max(needs[at], key=done.__getitem__, default=-1)
    return chain


def dependencies(plan: Plan) -> list[set[int]]:
    """For each launch the earlier ones that it must wait for, short of those that they wait for in turn."""
    at = places(plan)
    known: dict[int, list[tuple[int, int, int, bool]]] = {}  # by memory: from, to, launch, whether it writes
    needs = []
    for number, launch in enumerate(plan.launches):
        before: set[int] = set()
        for memory, low, high, written in _touched(launch, at):
            uses = known.setdefault(memory, [])
            before |= {n for start, end, n, wrote in uses if start < high and low < end and (written or wrote)}
            if written:  # who comes next waits for this launch, which waits for them
                uses[:] = [use for use in uses if use[0] < low or high < use[1]]
            uses.append((low, high, number, written))
        needs.append(before - {number})
    return needs


def _touched(launch: Launch, at: list[Place]) -> Iterator[tuple[int, int, int, bool]]:
    """Memory that a launch uses: which, from, to, and whether it may write there."""
    anchor = launch.kernel.anchor
    anything = anchor is not None and (launch.overwrites_input or anchor.op.name not in PRODUCTS)
    written = {launch.buffers[access.buffer][0] for _, access in launch.kernel.stores}
    for buffer in dict.fromkeys(buffer for buffer, _ in launch.buffers):
        yield *at[buffer], anything or buffer in written
    if anything or launch.kernel.checked:
        yield _ERRORS, 0, SENTINEL, True
