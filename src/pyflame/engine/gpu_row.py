"""What gpu_run.c must know of a plan for a GPU to run it in one step (engine/known.py).

Where the driver's functions can be called from C, that is how the launches are given: a table of kernels, with
libraries' calls between them. Else the runner gives them, in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyflame.ir.kernel import LibraryCall
from pyflame.runtime.base import GpuDevice

if TYPE_CHECKING:
    from pyflame.engine.gpu import GpuRunner

_NO_LIBRARY = -1
MOST_SENT = 4096  # bytes of uniforms
_PLACES = 4  # behind those of inputs and outputs: arena, scratch, uniforms and error record


def gpu_row(runner: GpuRunner, runs: Sequence[Any], sigs: tuple[int, ...]) -> tuple[Any, ...]:
    """The row of a plan, whose results have these signatures. `runs`: lists of kernels, and libraries' calls."""
    device, binding = runner.device, runner.binding
    launches = _launches(runner, runs) if runs else None
    outputs = len(binding.output_sizes)
    counts = len(binding.positions), outputs, len(binding.views), runner.scratch_start, len(binding.uniforms)
    head = 0, 0, 0, 0, len(binding.positions) + outputs + _PLACES, *counts, 0
    words = binding.as_words(head, [-1] * outputs)
    sizes = list(binding.output_sizes)
    if launches is not None and (workspace := runner.uniforms_start + _sent_bytes(runner)):
        sizes.append(workspace)  # else the runner takes it
    pool = device.pool
    classes, take = tuple(map(pool.size_class, sizes)), partial(pool.take_all, stream=device.chosen.handle)
    guards = device, "forked", False, device, "fault", None, pool, "captures", 0
    return words, classes, sigs, binding.strides, take, runner, guards, runner.start_at, launches


def _launches(runner: GpuRunner, runs: Sequence[Any]) -> tuple[Any, ...] | None:
    """Its launches as C gives them; None where the driver cannot be called from there."""
    device = runner.device
    native = device.native_calls
    if native is None or _sent_bytes(runner) > MOST_SENT:
        return None
    kernels: list[int] = []
    stages: list[tuple[int, int, int, int]] = []  # so many kernels; then a library's call, its first argument, how many
    libraries: list[Callable[[list[int]], None]] = []
    names: list[str] = []
    for run in runs:
        if isinstance(run, list):
            for function, grid, block, dynamic_lds, start in run:
                kernels += (int(function.handle), *grid, *block, dynamic_lds, start)
                names.append(function.name)
            stages.append((len(run), _NO_LIBRARY, 0, 0))
        else:
            call, start = run
            stages.append((0, len(libraries), start, len(call.buffers) + 1))
            libraries.append(partial(_begin, device, call))
    driver = struct.pack("=8q", *native, device.chosen.handle, runner.uniforms_start)
    table = struct.pack(f"={len(kernels)}q", *kernels)
    order = b"".join(struct.pack("=4q", *stage) for stage in stages)
    given = tuple(libraries), tuple(names), device.remember_all
    fixed = runner.sent(runner.binding.pack_uniforms(())) if runner.plan.uniforms and not runner.varies else None
    checks = (runner.record, runner.watch) if runner.plan.checks else (None, None)
    return driver, table, order, *runner.argument_table, *given, fixed, device.stage, *checks


def _sent_bytes(runner: GpuRunner) -> int:
    """Of the uniforms that each run sends anew."""
    return 8 * len(runner.plan.uniforms) if runner.varies else 0


def _begin(device: GpuDevice, call: LibraryCall, numbers: list[int]) -> None:
    *addresses, workspace = numbers
    device.start(call.name, partial(call.start, addresses, workspace))
