"""Plan -> what a GPU's runner takes: slots of memory, kernel arguments and launches, all of them integers.

Nothing of it is memory or an address yet, so it can be made with traced numbers (`engine/resize.py`) and filled with
others afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from pyflame.core.cached import cached_property
from pyflame.engine.binding import Binding, twin
from pyflame.engine.layout import Work, lay_out, scratch_bytes
from pyflame.engine.texts import gpu_texts
from pyflame.ir.kernel import CompiledKernel, LibraryCall, Plan
from pyflame.runtime.base import GpuDevice, Launch, Program

Given = Launch | tuple[LibraryCall, int]  # a kernel, or a call and its first argument
Shape = tuple[Any, Any, int]  # blocks, their threads, dynamic LDS


class GpuLayout:
    """The integers of a plan's run. Kernel arguments are those of all launches behind each other."""

    def __init__(self, plan: Plan, device: GpuDevice) -> None:
        self.plan = plan
        self.device = device
        self.launches = len(plan.launches)
        self._sources = plan.sources
        self.texts = gpu_texts(plan.sources)
        scratch = [scratch_bytes(source) for source in plan.sources]
        self.binding = Binding(
            plan,
            lambda sizes: [device.allocate(n) for n in sizes],
            device.copy,
            scratch=scratch,
            exact=device.pool.exact,
        )
        self._works = lay_out(plan, self.binding)
        self._starts = [0, *accumulate(len(work.kernel_args) for work in self._works)]
        self.slots = [slot for work in self._works for slot, _ in work.kernel_args]
        self.constants = [number for work in self._works for _, number in work.kernel_args]
        self.alignment = [1] * len(self.slots)
        for work, start in zip(self._works, self._starts, strict=False):
            self.alignment[start : start + len(work.alignment)] = work.alignment
        self._shapes = [self._shape(work) for work in self._works]

    def _shape(self, work: Work) -> Shape:
        source, phase = self._sources[work.launch], work.phase
        if isinstance(source, CompiledKernel):
            return source.grid, source.block, source.dynamic_lds
        return ((phase.grid, 1, 1), (phase.block, 1, 1), phase.dynamic_lds) if phase is not None else ((), (), 0)

    @property
    def scratch_at(self) -> list[tuple[int, int]]:
        """Launches that use scratch, and the arguments that say where it is."""
        found = zip(self._works, self._starts, strict=False)
        return [(work.launch, start + work.scratch) for work, start in found if work.scratch >= 0]

    @cached_property
    def programs(self) -> list[Program | LibraryCall]:
        """What each piece of work is done by. Kernels are compiled here, if need be, and loaded."""
        compiled = self.device.functions(self.texts)
        symbols = iter([symbol for functions in compiled for symbol in functions])
        loaded = self._loaded([s for s in self._sources if isinstance(s, CompiledKernel)])
        out: list[Program | LibraryCall] = []
        for work in self._works:
            source = self._sources[work.launch]
            if isinstance(source, LibraryCall):
                out.append(source)
            elif isinstance(source, CompiledKernel):
                out.append(loaded[source.code, source.name])
            else:
                symbol = next(symbols)
                name = f"{self.plan.launches[work.launch].name} ({symbol.name})"  # as `explain` names it
                out.append(symbol.named(name, awaits=True))  # as all texts of ours do
        return out

    def compile(self) -> None:
        """Have all that `with_numbers` shares with other extents."""
        _ = self.programs

    def _loaded(self, kernels: Sequence[CompiledKernel]) -> dict[tuple[bytes, str], Program]:
        """The functions of code objects, by code and name."""
        names: dict[bytes, dict[str, None]] = {}
        for kernel in kernels:
            names.setdefault(kernel.code, {})[kernel.name] = None
        return {(code, p.name): p for code, wanted in names.items() for p in self.device.load(code, list(wanted))}

    def given(self) -> Iterator[tuple[int, Given]]:
        """All work in order, as the device is given it, and whose launch it is."""
        for work, start, program, shape in zip(self._works, self._starts, self.programs, self._shapes, strict=False):
            yield work.launch, (program, start) if isinstance(program, LibraryCall) else (program, *shape, start)

    def numbers(self) -> tuple[Any, ...]:
        """All that may differ in a plan for other extents."""
        return tuple(self.constants), tuple(self.alignment), tuple(self._shapes), self.binding.numbers()

    def with_numbers(self, plan: Plan, numbers: tuple[Any, ...]) -> GpuLayout:
        """The same for a plan of other extents."""
        out = twin(self)
        out.plan = plan
        out.constants, out.alignment, out._shapes, bound = numbers
        out.binding = self.binding.with_numbers(plan, bound)
        return out
