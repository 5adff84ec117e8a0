"""Which of our own kernel's variants does a launch: timed once on a real GPU, and remembered.

A kernel names the ways worth timing (`KernelSpec.variants`), best guess first: blocks of a product and cuts of its k.
They are ours, so none is checked against another. Where nothing may be timed the best guess stays.
"""

from __future__ import annotations

from dataclasses import replace

from pyflame.core.errors import OutOfMemoryError
from pyflame.engine.libraries.trial import Trial, TrialBuffers
from pyflame.engine.libraries.tuner import Candidate, Key, Verdict, may_time, tuner
from pyflame.engine.planned_target import planned_target
from pyflame.ir.kernel import Draft, Launch
from pyflame.kernels import specs
from pyflame.runtime.base import GpuDevice
from pyflame.schedule.split import alone


def with_variant(plan: Draft, number: int, device: GpuDevice, key: Key) -> tuple[Launch, list[str]]:
    """The launch with its fastest variant, and what to say of it."""
    launch = plan.launches[number]
    candidates = _candidates(launch, device)
    if not candidates:
        return launch, []
    whole = alone(plan, number)
    buffers: list[TrialBuffers] = []

    def measure(candidate: Candidate, best: float) -> float:
        buffers[:] = buffers or [TrialBuffers(device, whole)]
        tried = whole.copy()
        tried.launches[0] = replace(tried.launches[0], variant=candidate.run)
        return Trial(buffers[0], tried, {}).seconds(best)

    try:
        choice = tuner().choose(candidates, key, measure, lambda candidate, first: Verdict(0.0, 0.0))
    except OutOfMemoryError:
        return launch, ["no memory was left to time its blocks"]
    winner = next(c for c in candidates if c.name == choice.name)
    return replace(launch, variant=winner.run), [choice.text]


def tried_variants(plan: Draft, number: int, device: GpuDevice, key: Key) -> list[Launch]:
    """What `with_variant` runs to decide; nothing where it knows."""
    (launch,) = alone(plan, number).launches
    candidates = _candidates(launch, device)
    return [] if tuner().knows(candidates, key) else [replace(launch, variant=c.run) for c in candidates]


def _candidates(launch: Launch, device: GpuDevice) -> list[Candidate]:
    """The launch's variants, by number, best guess first; none where there is nothing to time."""
    assert launch.kernel.anchor is not None
    spec = specs().get((launch.kernel.anchor.op.name, launch.implementation))
    names = spec.variants(launch, planned_target(device)) if spec is not None else ()
    if len(names) < 2 or device.capturing or not may_time():
        return []
    return [Candidate(names[0], run=0), *(Candidate(name, "own", n + 1) for n, name in enumerate(names[1:]))]
