"""What a kernel did on a simulated GPU: instructions by kind and by source line, memory, LDS, branches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.atomic import write_atomic
from pyflame.core.cached import cached_property
from pyflame.core.targets import TARGETS
from pyflame.engine.aot.resources import HEAD, KernelResources, read_resources, row
from pyflame.engine.sections import Section, percent
from pyflame.engine.sim.run import Array, Run, check_target
from pyflame.runtime.rocm.metadata import read_metadata
from pyflame.runtime.rocm.occupancy import limits, occupancy
from pyflame.runtime.sim.decode.families import FAMILIES, SCALAR, family
from pyflame.runtime.sim.decode.inst import COUNTED, PAIRED
from pyflame.runtime.sim.decode.names import known
from pyflame.runtime.sim.interpreter import interpreter

_SHOWN = 8  # elements of an output
_BRANCH = "s_cbranch_"
_UNIFORM = ("s_cbranch_scc0", "s_cbranch_scc1")  # decided for the whole wave: they cannot diverge


@dataclass(frozen=True)
class Instruction:
    """An instruction that ran, and what it did in all waves together."""

    address: int  # in the code object
    text: str
    family: str
    file: str  # "" where the line is not known
    line: int
    steps: int  # how often a wave ran it
    lanes: int  # lanes that were on
    lines: int  # cache lines of 128 bytes touched
    least: int  # … that the bytes of its lanes fill
    passes: int  # of the LDS, if no lanes were in each other's way
    conflicts: int  # further passes
    taken: int  # of branches
    divergent: int  # branches that some lanes of a wave wanted to take and others not

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""


@dataclass(frozen=True)
class Line:
    """A line of the source, and what its instructions did."""

    file: str
    line: int
    text: str
    steps: int
    vector_steps: int  # … of instructions that work on lanes
    lanes: int  # lanes that were on in those
    lines: int
    conflicts: int
    divergent: int


@dataclass(frozen=True)
class Trace:
    """A kernel's run. `print(trace.table())` shows it; numbers are of all waves together."""

    kernel: str
    target: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    wave_size: int
    steps: int  # instructions that waves ran; a dual one counts once
    seconds: float  # of the host
    outputs: dict[str, Array]  # what the kernel left in its arguments, by parameter
    unwritten: dict[str, int]  # elements of outputs that nothing has written
    instructions: tuple[Instruction, ...]
    lines: tuple[Line, ...]  # by file and number; empty where the kernel has no debug information
    source: tuple[str, ...]  # the file's lines
    file: str
    resources: KernelResources
    notes: tuple[str, ...] = ()

    @property
    def waves(self) -> int:
        return int(np.prod(self.grid)) * -(-int(np.prod(self.block)) // self.wave_size)

    @cached_property
    def mix(self) -> dict[str, int]:
        """Instructions of waves by family, those that ran."""
        found = dict.fromkeys((*FAMILIES, "other"), 0)
        for i in self.instructions:
            found[i.family] += i.steps
        return {name: steps for name, steps in found.items() if steps}

    @property
    def coalescing(self) -> tuple[Instruction, ...]:
        """Accesses of lanes to global memory: `lines` against `least`."""
        return tuple(i for i in self.instructions if i.lines and i.family not in SCALAR)

    @property
    def conflicts(self) -> tuple[Instruction, ...]:
        """Accesses to the LDS: `conflicts` beside `passes`."""
        return tuple(i for i in self.instructions if i.passes)

    @property
    def divergence(self) -> tuple[Instruction, ...]:
        """Branches that lanes decide: `divergent` of `steps`."""
        return tuple(i for i in self.instructions if i.text.startswith(_BRANCH) and not i.text.startswith(_UNIFORM))

    @property
    def lanes_on(self) -> float:
        """The share of lanes that were on in instructions that work on lanes; 1.0 where no wave has idle lanes."""
        vector = [i for i in self.instructions if i.family not in SCALAR]
        return _share(sum(i.lanes for i in vector), self.wave_size * sum(i.steps for i in vector), 1.0)

    # --- as tables ----------------------------------------------------------------------------------------------------

    def head(self) -> str:
        blocks, threads = (" x ".join(map(str, _trimmed(n))) for n in (self.grid, self.block))
        return (
            f"{self.kernel} on sim:{self.target}: {blocks} blocks of {threads} threads, {self.waves} waves of "
            f"{self.wave_size}; {self.steps:,} wave-instructions, {percent(self.lanes_on)} of the lanes on"
        )

    def sections(self, whole_source: bool = False) -> list[Section]:
        """The tables, in the order in which they are shown. `whole_source`: lines without instructions too."""
        made = [self._outputs(), self._mix(), self._lines(whole_source), self._coalescing(), self._conflicts()]
        return [s for s in (*made, self._divergence(), self._resources()) if s.rows]

    def table(self, whole_source: bool = False) -> str:
        """All of it as text."""
        shown = "\n\n".join(str(section) for section in self.sections(whole_source))
        return "\n".join([self.head(), "", shown, *("\n" + note for note in self.notes), ""])

    __str__ = table

    def _outputs(self) -> Section:
        rows = [
            (name, a.dtype.name, " x ".join(map(str, a.shape)) or "1", _first(a), str(self.unwritten[name] or "-"))
            for name, a in self.outputs.items()
        ]
        return Section("outputs", ("name", "dtype", "shape", "first elements", "never written"), rows, "lllll")

    def _mix(self) -> Section:
        rows = []
        for name, steps in self.mix.items():
            lanes = sum(i.lanes for i in self.instructions if i.family == name)
            on = "" if name in SCALAR else percent(lanes / (steps * self.wave_size))
            rows.append((name, f"{steps:,}", percent(steps / self.steps), on))
        return Section("instruction mix", ("family", "instructions", "share", "lanes on"), rows)

    def _lines(self, whole: bool) -> Section:
        head = ("line", "instructions", "share", "lanes on", "cache lines", "LDS conflicts", "divergent", "source")
        known = {(line.file, line.line): line for line in self.lines}
        if whole:
            empty = (
                Line(self.file, n, t, *[0] * 6) for n, t in enumerate(self.source, 1) if (self.file, n) not in known
            )
            known |= {(line.file, line.line): line for line in empty}
        rows = []
        for line in sorted(known.values(), key=lambda line: (line.file != self.file, line.file, line.line)):
            place = str(line.line) if line.file == self.file else f"{line.file}:{line.line}"
            numbers = ("" if not n else f"{n:,}" for n in (line.lines, line.conflicts, line.divergent))
            on = percent(line.lanes / (line.vector_steps * self.wave_size)) if line.vector_steps else ""
            count = (f"{line.steps:,}", percent(line.steps / self.steps)) if line.steps else ("", "")
            rows.append((place, *count, on, *numbers, line.text))
        attributed = sum(line.steps for line in self.lines)
        rest = "" if attributed == self.steps else f"{self.steps - attributed:,} instructions belong to no line"
        return Section(self.file, head, rows, "rrrrrrrl", rest if self.lines else "")

    def _coalescing(self) -> Section:
        rows = [
            (f"{i.address:#x}", i.text, i.place, f"{i.steps:,}", _mean(i.lines, i.steps), _mean(i.least, i.steps),
             percent(i.least / i.lines))
            for i in self.coalescing
        ]  # fmt: skip
        note = "cache lines of 128 bytes per instruction; least: what the bytes of the lanes fill"
        head = ("address", "instruction", "line", "times", "lines each", "least", "efficiency")
        return Section("global memory", head, rows, "lllrrrr", note)

    def _conflicts(self) -> Section:
        rows = [
            (f"{i.address:#x}", i.text, i.place, f"{i.steps:,}", f"{i.passes:,}", f"{i.conflicts:,}",
             f"{(i.passes + i.conflicts) / i.passes:.2f}-way")
            for i in self.conflicts
        ]  # fmt: skip
        head = ("address", "instruction", "line", "times", "passes", "conflicts", "serialised")
        note = "32 banks of 4 bytes; conflicts: further passes, because lanes wanted different words of one bank"
        return Section("LDS", head, rows, "lllrrrr", note)

    def _divergence(self) -> Section:
        rows = [
            (f"{i.address:#x}", i.text, i.place, f"{i.steps:,}", f"{i.taken:,}", f"{i.divergent:,}",
             percent(i.divergent / i.steps))
            for i in self.divergence
        ]  # fmt: skip
        head = ("address", "branch", "line", "times", "taken", "divergent", "share")
        return Section("branches that lanes decide", head, rows, "lllrrrr", "divergent: the lanes did not agree")

    def _resources(self) -> Section:
        return Section("resources", HEAD, [row(self.resources)], "l" + "r" * (len(HEAD) - 2) + "l")

    # --- as JSON ------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        outputs = {
            name: {
                "dtype": a.dtype.name,
                "shape": list(a.shape),
                "first": _numbers(a),
                "never_written": self.unwritten[name],
            }
            for name, a in self.outputs.items()
        }
        plain = {k: getattr(self, k) for k in ("kernel", "target", "grid", "block", "shared", "wave_size", "steps",
                                               "seconds", "waves", "lanes_on", "mix", "notes")}  # fmt: skip
        return {
            **plain,
            "outputs": outputs,
            "resources": self.resources.to_json(),
            "lines": [asdict(line) for line in self.lines],
            "instructions": [asdict(i) for i in self.instructions],
        }

    def save(self, path: str | Path) -> Path:
        """Write all numbers as JSON; of outputs, the first elements."""
        file = Path(path)
        write_atomic(file, json.dumps(self.to_json(), indent=1) + "\n")
        return file


def instructions(target: str) -> dict[str, tuple[str, ...]]:
    """The scalar and vector instructions that a simulated GPU runs, by family, as GFX9 names them.

    >>> "v_fma_f32" in instructions("gfx1100")["VALU f32"]
    True
    """
    check_target(target)
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for name in sorted(known(target, interpreter(TARGETS[target].wave_size).forms)):
        if name.startswith(("s_", "v_")):
            found[family(name)].append(name)
    return {name: tuple(names) for name, names in found.items() if names}


def trace(run: Run) -> Trace:
    """Run a kernel and look at what it did."""
    started = time.perf_counter()
    run.go()
    seconds = time.perf_counter() - started
    kernel, source = run.source.kernel, run.source
    instructions = tuple(_instructions(run))
    threads = int(np.prod(run.block))
    found = read_resources(kernel.code, {kernel.name: threads}, kernel.target)[kernel.name]
    if run.shared:
        told = read_metadata(kernel.code)[kernel.name]
        limit, lds = limits(kernel.target.name, told.wave_size, told.wgp_mode), told.lds_bytes + run.shared
        waves = occupancy(limit, told.vgprs, told.sgprs, lds, threads, told.wave_size)
        found = replace(found, lds_bytes=lds, occupancy=waves)
    return Trace(
        kernel=kernel.name,
        target=kernel.target.name,
        grid=run.grid,
        block=run.block,
        shared=run.shared,
        wave_size=run.code.lanes,
        steps=run.machine.steps,
        seconds=seconds,
        outputs=run.outputs,
        unwritten=run.unwritten,
        instructions=instructions,
        lines=tuple(_by_line(run, instructions)),
        source=tuple(source.rows),
        file=source.file,
        resources=found,
        notes=tuple(filter(None, [run.missing_lines])),
    )


def _instructions(run: Run) -> Iterable[Instruction]:
    code, counts = run.code, run.machine.counts
    for number, (line, text) in enumerate(zip(code.lines, code.texts, strict=True)):
        if not counts[number].steps or code.insts[number].flags & PAIRED:  # the last half of a dual one stands for it
            continue
        place = run.source.place(run.frames.get(line.address, ()))
        file, where = (Path(place[0]).name, place[1]) if place else ("", 0)
        told = {name: int(getattr(counts[number], name)) for name in COUNTED}
        yield Instruction(line.address, text, family(line.name), file, where, **told)


def _by_line(run: Run, instructions: Sequence[Instruction]) -> Iterable[Line]:
    places = {f"{Path(f).name}:{n}": (f, n) for frames in run.frames.values() for f, n in frames}
    for place in sorted({i.place for i in instructions if i.line}, key=lambda p: places[p]):
        here = [i for i in instructions if i.place == place]
        vector = [i for i in here if i.family not in SCALAR]

        def total(key: Callable[[Instruction], int], some: Sequence[Instruction] = here) -> int:
            return sum(map(key, some))

        yield Line(
            here[0].file,
            here[0].line,
            run.source.line(*places[place]),
            total(lambda i: i.steps),
            total(lambda i: i.steps, vector),
            total(lambda i: i.lanes, vector),
            total(lambda i: i.lines, vector),
            total(lambda i: i.conflicts),
            total(lambda i: i.divergent),
        )


def _share(part: int, whole: int, otherwise: float) -> float:
    return part / whole if whole else otherwise


def _mean(total: int, steps: int) -> str:
    return f"{total / steps:.4g}"


def _trimmed(size: Sequence[int]) -> Sequence[int]:
    """Without ones at the end."""
    return size[: max(n for n in range(1, 4) if n == 1 or size[n - 1] > 1)]


def _first(array: Array) -> str:
    shown = " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in _numbers(array))
    return shown + (" ..." if array.size > _SHOWN else "")


def _numbers(array: Array) -> list[Any]:
    first = array.reshape(-1)[:_SHOWN]
    return list((first if first.dtype.kind in "iufb" else first.astype(np.float32)).tolist())
