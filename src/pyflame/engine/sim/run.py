"""Runs of one kernel on a simulated GPU of its own: what `pf.sim.trace` and `pf.sim.step` share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core import knobs
from pyflame.core.cached import cached_property
from pyflame.core.errors import ArgumentError, ArgumentTypeError, suggest
from pyflame.engine.user.kernels import UserKernel, compile_for_target, extent, misfit, number_word, shared_bytes
from pyflame.engine.user.prototype import Parameter, find_prototype, kernel_names
from pyflame.runtime.sim.checks import SIMULATED as TARGETS
from pyflame.runtime.sim.decode.lines import Frame, find_symbolizer, source_frames
from pyflame.runtime.sim.device import wanted_checks
from pyflame.runtime.sim.faults import SimulationFault
from pyflame.runtime.sim.machine import COUNT, Machine
from pyflame.runtime.sim.memory import Memory
from pyflame.runtime.sim.modes import wanted_modes
from pyflame.runtime.sim.stop import Stop
from pyflame.runtime.sources import include_dir

__all__ = [
    "LIMIT",
    "TARGETS",
    "Run",
    "SimulationFault",
    "Source",
    "Unwritten",
    "check_target",
    "element_type",
    "parameter_name",
]

_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
LIMIT = 1_000_000_000  # instructions of all waves: minutes

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Unwritten:
    """Memory of a shape and a dtype that nothing has written yet: a kernel that reads it is stopped."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Source:
    """A kernel that was built, with its text: "" where only the code is at hand."""

    kernel: UserKernel
    text: str = ""
    file: str = "kernel.hip"

    @staticmethod
    def build(text: str, name: str | None, target: str, file: str = "", options: Sequence[str] = ()) -> Source:
        """Compile with debug information. `name` may be left out where the text has one kernel. `file`: its path."""
        check_target(target)
        if name is None:
            names = kernel_names(text)
            if len(names) != 1:
                raise ArgumentError(
                    f"[sim] expected a source with one kernel, or kernel= naming one of several, but it has "
                    f"{', '.join(names) or 'none'}"
                )
            name = names[0]
        shown = os.path.basename(file) or "kernel.hip"
        folder = [f"-I{os.path.dirname(os.path.abspath(file))}"] if file else []
        numbered = f"#line 1 {json.dumps(shown)}\n{text}"
        return Source(compile_for_target(numbered, name, target, ["-g", *folder, *options]), text, shown)

    @staticmethod
    def of(kernel: UserKernel) -> Source:
        """A kernel that was built already; its lines are known if that was with -g, their text is not."""
        check_target(kernel.target.name)
        return Source(kernel)

    @cached_property
    def rows(self) -> list[str]:
        return self.text.splitlines()

    def line(self, file: str, number: int) -> str:
        """The text of a line, of the source or of a header that it includes."""
        rows = self.rows if Path(file).name == self.file else _header(file)
        return rows[number - 1].rstrip() if 0 < number <= len(rows) else ""

    def place(self, frames: Sequence[Frame]) -> Frame | None:
        """The innermost line that is not PyFlame's own: a call of __syncthreads(), not what it expands to."""
        ours = str(include_dir())
        return next((frame for frame in frames if not frame[0].startswith(ours)), None)


def check_target(target: object) -> None:
    """Raise if a target is not simulated."""
    if target not in TARGETS:
        raise ArgumentError(
            f"[sim] expected one of {', '.join(TARGETS)} as target but got {target!r}{suggest(str(target), TARGETS)}"
        )


def _header(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # it is only shown


def parameter_name(parameter: Parameter, position: int) -> str:
    """The name of a parameter in the prototype; `argument 2` for one without.

    >>> parameter_name(find_prototype("__global__ void f(float* __restrict__ out) {}", "f")[0], 0)
    'out'
    """
    found = _NAME.search(parameter.text)
    plain = parameter.text.partition("*")
    named = found is not None and (not plain[1] or plain[2].strip(" *").split()[-1:] == [found[1]])
    if found is None or not named or found[1] in ("__restrict__", "__restrict", "const"):
        return f"argument {position}"
    return found[1]


def element_type(text: str) -> np.dtype[Any] | None:
    """What a C type, or the pointee of a parameter, is in NumPy; None where it is not known here.

    >>> element_type("unsigned short"), element_type("const float* x"), element_type("struct mine")
    (dtype('uint16'), dtype('float32'), None)
    """
    pointee = text.partition("*")[0].partition("[")[0]
    name = "" if "*" not in text and "[" in text else " p"  # `float x[]` brings its own
    return find_prototype(f"__global__ void k({pointee}{name})", "k")[0].number


@dataclass
class Run:
    """A launch that has been prepared: its own machine, memory and arguments.

    `arguments`: NumPy arrays, `Unwritten`, numbers, None for a null pointer. Arrays are copied; what the kernel leaves
    in those that it may write to is in `outputs`. One array given twice is one buffer.
    """

    source: Source
    grid: Any
    block: Any
    arguments: Sequence[Any]
    shared: int = 0
    seed: int = 0
    checks: str = "all"
    limit: int = LIMIT
    machine: Machine = field(init=False)
    outputs: dict[str, Array] = field(default_factory=dict)
    unwritten: dict[str, int] = field(default_factory=dict)  # elements of outputs that nothing has written

    def __post_init__(self) -> None:
        built = self.source.kernel
        name = built.name
        self.grid, self.block = extent(name, "grid", self.grid), extent(name, "block", self.block)
        self.shared = shared_bytes(name, self.shared)
        if not isinstance(self.limit, int) or self.limit < 1:
            raise ArgumentError(f"[{name}] expected a limit of at least 1 instruction but got {self.limit!r}")
        self._memory = Memory(knobs.SIM_MEMORY_MB.integer() << 20, self.seed)
        self.machine = Machine(
            built.target.name, self._memory, checks=wanted_checks(self.checks, "checks") | COUNT, seed=self.seed,
            modes=wanted_modes(),
            step_limit=self.limit,
        )  # fmt: skip
        self.kernel = self.machine.load(built.code).kernels[name]
        self.code = self.machine.code(self.kernel)
        if len(self.arguments) != len(built.parameters):
            wanted = ", ".join(p.text for p in built.parameters)
            raise ArgumentTypeError(
                f"[{name}] expected {len(built.parameters)} arguments ({wanted}) but got {len(self.arguments)}"
            )
        self._placed: dict[int, int] = {}  # id of an array -> address
        self._written: list[tuple[str, int, Any]] = []
        raw = bytearray(max((p.offset + p.nbytes for p in self.kernel.params), default=0))
        for position, (param, value) in enumerate(zip(self.kernel.params, self.arguments, strict=True)):
            word = self._word(position, value)
            raw[param.offset : param.offset + param.nbytes] = (word & (1 << 64) - 1).to_bytes(8, "little")[
                : param.nbytes
            ]
        self._raw = bytes(raw)

    def _word(self, position: int, value: Any) -> int:
        """An argument as a number: its own, or its address."""
        built = self.source.kernel
        parameter = built.parameters[position]
        if not parameter.pointer:
            if isinstance(value, (np.ndarray, Unwritten)):
                raise misfit(built, position, f"an array of {value.dtype.name} with shape {value.shape}")
            return number_word(built, position, value)
        if value is None:
            return 0
        if not isinstance(value, (np.ndarray, Unwritten)):
            raise misfit(built, position, f"{type(value).__name__} {value!r}"[:80], "give a NumPy array or a tensor")
        wanted = element_type(parameter.text)
        if wanted not in (None, value.dtype) and value.dtype not in [d.numpy for d in parameter.dtypes]:
            raise misfit(built, position, f"an array of {value.dtype.name}", "give one of its type")
        address = self._placed.get(id(value))
        if address is None:
            address = self._placed[id(value)] = self._place(value)
        if not parameter.const and address:
            self._written.append((parameter_name(parameter, position), address, value))
        return address

    def _place(self, value: Any) -> int:
        nbytes = int(np.prod(value.shape, dtype=np.int64)) * value.dtype.itemsize
        if not nbytes:
            return 0
        address = self._memory.allocate(nbytes)
        if isinstance(value, np.ndarray):
            dense = np.ascontiguousarray(value)
            self._memory.view(address, nbytes, write=True)[:] = dense.reshape(-1).view(np.uint8)
        return address

    def go(self, stop: Stop | None = None) -> None:
        """Run it. A fault raises SimulationFault."""
        self.machine.launch(self.kernel, self.grid, self.block, self.shared, self._raw, stop)
        for name, address, value in self._written:
            nbytes = int(np.prod(value.shape, dtype=np.int64)) * value.dtype.itemsize
            self.outputs[name] = self._memory.view(address, nbytes).copy().view(value.dtype).reshape(value.shape)
            touched = self._memory.written(address, nbytes).reshape(-1, value.dtype.itemsize)
            self.unwritten[name] = int((touched.min(axis=1) == 0).sum())

    @property
    def waves(self) -> int:
        """Waves of a block."""
        return -(-int(np.prod(self.block)) // self.code.lanes)

    @cached_property
    def frames(self) -> dict[int, tuple[Frame, ...]]:
        """address -> the lines that it comes from."""
        return source_frames(self.source.kernel.code, sorted({line.address for line in self.code.lines}))

    @property
    def missing_lines(self) -> str:
        """Why there are no source lines, where there are none."""
        if self.frames:
            return ""
        if find_symbolizer() is None:
            return "llvm-symbolizer was not found: source lines are unknown"
        return "the kernel was built without -g: source lines are unknown"
