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
    assert launch.kernel.anchor is not None
    spec = specs().get((launch.kernel.anchor.op.name, launch.implementation))
    names = spec.variants(launch, planned_target(device)) if spec is not None else ()
    if len(names) < 2 or device.capturing or not may_time():
        return launch, []
    candidates = [Candidate(names[0]), *(Candidate(name, "own", n + 1) for n, name in enumerate(names[1:]))]
    whole = alone(plan, number)
    buffers: list[TrialBuffers] = []

    def measure(candidate: Candidate) -> float:
        buffers[:] = buffers or [TrialBuffers(device, whole)]
        tried = whole.copy()
        tried.launches[0] = replace(tried.launches[0], variant=candidate.run or 0)
        return Trial(buffers[0], tried, {}).seconds()

    try:
        choice = tuner().choose(candidates, key, measure, lambda candidate, first: Verdict(0.0, 0.0))
    except OutOfMemoryError:
        return launch, ["no memory was left to time its blocks"]
    return replace(launch, variant=names.index(choice.name)), [choice.text]
