"""A simulated GPU: loads code objects and runs their kernels, instruction by instruction.

>>> machine = Machine("gfx942", Memory(1 << 20))
>>> module = machine.load(code)  # doctest: +SKIP
>>> machine.launch(module.kernels["twice"], (1, 1, 1), (64, 1, 1), 0, arguments)  # doctest: +SKIP
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, NotAvailableError
from pyflame.core.targets import TARGETS
from pyflame.runtime.rocm.disassembly import disassemble, find_objdump
from pyflame.runtime.rocm.metadata import CODE_OBJECT_VERSION
from pyflame.runtime.sim.checks import COUNT, RACES, SIMULATED, UNINITIALISED
from pyflame.runtime.sim.decode import ordering
from pyflame.runtime.sim.decode.decoder import Decoder
from pyflame.runtime.sim.decode.inst import AGPR_ROW, ROWS, Counts, Inst, Launch, Program
from pyflame.runtime.sim.decode.text import Line, Undecodable, read_listing
from pyflame.runtime.sim.elf import Kernel, Module, Param
from pyflame.runtime.sim.interpreter import interpreter
from pyflame.runtime.sim.memory import Memory
from pyflame.runtime.sim.modes import DIES, INTERLEAVE, STALE, STORES_MARKED, WRITES_BACK, Modes
from pyflame.runtime.sim.report import explain
from pyflame.runtime.sim.stop import Stop

__all__ = ["COUNT", "RACES", "UNINITIALISED", "Kernel", "Machine", "Module", "Param"]

_STEP_LIMIT = 20_000_000_000
_DYNAMIC_STACK = 8 * 1024  # more of a stack for kernels whose calls the compiler cannot count
# Bits of the kernel descriptor's properties in the order in which they take user SGPRs, and how many each takes.
_SCRATCH, _DISPATCH, _KERNARG, _PRIVATE_SIZE, _WAVE32 = 1 << 0, 1 << 1, 1 << 3, 1 << 6, 1 << 10
_USER_SGPRS = ((_SCRATCH, 4), (_DISPATCH, 2), (1 << 2, 2), (_KERNARG, 2), (1 << 4, 2), (1 << 5, 2), (_PRIVATE_SIZE, 1))
# What gfx90a reaches scratch through: at address 0, interleaved by lanes (bits 63 and 119), without an end.
_SCRATCH_BUFFER = 1 << 63 | 0xFFFFFFFF << 64 | 1 << 119

_SCALAR_LINES = 4096  # of the scalar cache (isa/caches.c)
_SCALAR_LINE = np.dtype([("tag", np.uint64), ("data", np.uint8, 64), ("present", np.uint8, 64), ("written", np.uint64)])

Three = tuple[int, int, int]


@cache
def _decoder(lanes: int, target: str) -> Decoder:
    """One for all code objects: it remembers the lines that it has seen."""
    return Decoder(interpreter(lanes).forms, target)


class Code:
    """The instructions of a module, decoded."""

    def __init__(self, module: Module, target: str, lanes: int) -> None:
        objdump = find_objdump()
        if objdump is None:
            raise NotAvailableError(
                "[sim] expected llvm-objdump to read machine code but found none; install llvm-17 or newer"
            )
        self.lanes = lanes
        listing, _ = read_listing(disassemble(module.code, objdump))
        decoder = _decoder(lanes, target)
        decoder.begin()
        self.start = listing[0][0].address
        self.nbytes = listing[-1][0].address + listing[-1][0].nbytes - self.start
        self.lines: list[Line] = []  # of each instruction, its first half
        self.texts: list[str] = []  # … and all of it
        self.problems: dict[int, str] = {}  # instructions that cannot be run, and why
        self.numbers: dict[int, int] = {}  # address -> instruction
        decoded: list[Inst] = []
        for halves in listing:
            self.numbers[halves[0].address] = len(decoded)
            try:
                made = decoder.decode(halves)
            except Undecodable as problem:
                made = [decoder.illegal(halves[0])]
                self.problems[len(decoded)] = str(problem)
            decoded.extend(made)
            self.lines.extend([halves[0]] * len(made))
            self.texts.extend([" :: ".join(half.text for half in halves)] * len(made))
        self.insts = (Inst * len(decoded))(*decoded)
        self.by_address = (ctypes.c_int32 * (self.nbytes // 4 + 1))(*[-1] * (self.nbytes // 4 + 1))
        for address, number in self.numbers.items():
            self.by_address[(address - self.start) // 4] = number
        for inst in self.insts:
            if inst.target:  # so far an address
                inst.target = self.numbers.get(inst.target, len(decoded))
        self.program = Program(self.insts, len(decoded), self.by_address, self.start, self.nbytes, module.base)


class Machine:
    """A simulated GPU of one target, over its memory.

    `checks`: UNINITIALISED reports reads of memory that nothing has written, RACES two waves of a block that touch the
    same LDS byte between barriers and two threads that store different values in one place, COUNT fills `counts`.
    Bounds are always checked. `seed` orders blocks and waves. `modes`: as in modes.py.
    """

    def __init__(
        self,
        target: str,
        memory: Memory,
        *,
        checks: int = UNINITIALISED | RACES,
        seed: int = 0,
        step_limit: int = _STEP_LIMIT,
        modes: Modes = frozenset(),
        code_objects: int = CODE_OBJECT_VERSION,
    ) -> None:
        if target not in SIMULATED:
            raise ArgumentError(f"[sim] expected one of {', '.join(SIMULATED)} but got {target!r}")
        self.target = TARGETS[target]
        self.memory = memory
        self.checks = checks
        self.seed = seed
        self.step_limit = step_limit
        self.steps = 0  # instructions that waves have run so far
        self.counts: Any = None  # of the last launch with COUNT, one per instruction
        self.generation = int(target[3:-2])
        self.code_objects = code_objects  # newest version that can be loaded
        self._modes = INTERLEAVE * ("interleave" in modes) | STALE * bool(modes & {"stale", "replay"})
        self._modes |= STORES_MARKED * (target in ordering.STORES_MARKED) | WRITES_BACK * (target in DIES)
        self._dies = DIES.get(target, 0) if "stale" in modes else 0
        self._scalar_cache = np.zeros(_SCALAR_LINES if self._modes & STALE else 0, _SCALAR_LINE)
        self._codes: dict[tuple[int, int], Code] = {}
        self._reserved: dict[int, int] = {}  # bytes -> address of memory for launches

    def load(self, code: bytes) -> Module:
        """Place a code object in memory."""
        return Module(code, self.memory, self.code_objects)

    def unload(self, module: Module) -> None:
        for lanes in (32, 64):
            self._codes.pop((module.base, lanes), None)
        self.memory.free(module.base)

    def code(self, kernel: Kernel) -> Code:
        """The instructions of the module that a kernel belongs to."""
        lanes = 32 if kernel.properties & _WAVE32 else 64
        key = (kernel.module.base, lanes)
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = Code(kernel.module, self.target.name, lanes)
        return found

    def acquire(self, address: int = 0, nbytes: int = 64 * _SCALAR_LINES) -> None:
        """Invalidate the scalar cache, or its lines of some memory."""
        if len(self._scalar_cache):
            first, last = address // 64, (address + nbytes - 1) // 64
            self._scalar_cache[np.arange(first, last + 1) % _SCALAR_LINES] = 0

    def launch(
        self, kernel: Kernel, grid: Three, block: Three, dynamic_lds: int, kernarg: bytes, stop: Stop | None = None,
        acquire: bool = True,
    ) -> None:  # fmt: skip
        """Run a kernel to its end, or to where it shall stop. `kernarg`: the explicit arguments as it wants them.
        `acquire`: the scalar cache is invalidated first."""
        threads = block[0] * block[1] * block[2]
        lds = -(-kernel.static_lds // 4) * 4 + dynamic_lds
        if not 0 < threads <= kernel.max_threads or lds > self.target.lds_bytes or min(grid) < 0:
            raise ArgumentError(
                f"[{kernel.name}] expected 1 to {kernel.max_threads} threads and at most {self.target.lds_bytes} bytes "
                f"of LDS per block but got {threads} and {lds}; make the block or its LDS smaller"
            )
        lanes = 32 if kernel.properties & _WAVE32 else 64
        code = self.code(kernel)
        scratch = kernel.scratch_bytes + (_DYNAMIC_STACK if kernel.metadata.dynamic_stack else 0)
        # The compiler reads up to 16 bytes at once where a kernel asks for 12.
        dispatch, arguments = self._reserve(64), self._reserve(-(-max(kernel.kernarg_bytes, 8) // 16) * 16)
        packet = struct.pack("<HHHHHHIIIIIQQQQ", 0, 3, *block, 0, *(g * b for g, b in zip(grid, block, strict=True)),
                             scratch, lds, 0, arguments, 0, 0)  # fmt: skip
        self.memory.view(dispatch, len(packet), write=True)[:] = memoryview(packet)
        self._place_arguments(kernel, arguments, kernarg, grid, block, dynamic_lds)
        launch = Launch()
        launch.program = ctypes.pointer(code.program)
        spans, launch.span_count = self.memory.spans()
        launch.spans = ctypes.addressof(spans)
        launch.entry = code.numbers[kernel.entry]
        launch.grid, launch.block = tuple(grid), tuple(block)
        launch.vgprs = ROWS
        launch.used_vgprs, launch.used_agprs = min(kernel.metadata.vgprs, AGPR_ROW), kernel.metadata.agprs
        launch.lds_bytes, launch.scratch_bytes = lds, scratch
        launch.sgprs, launch.user_sgprs = self._user_sgprs(kernel, dispatch, arguments, scratch), kernel.user_sgprs
        launch.group_ids, launch.mode, launch.generation = kernel.group_ids, kernel.mode, self.generation
        if self.target.name != "gfx90a":  # the others find their scratch by themselves
            launch.group_ids &= 7
        if (
            self.generation >= 12
        ):  # groups are told elsewhere; the mode has neither IEEE nor DX10 clamp, which is always on
            launch.group_ids, launch.mode = 0, kernel.mode & 0xFF | 1 << 8
        launch.checks, launch.seed, launch.step_limit = self.checks, self.seed, self.step_limit
        launch.modes, launch.dies = self._modes, self._dies
        if len(self._scalar_cache):
            launch.scalar_cache = self._scalar_cache.ctypes.data
            for address, nbytes in [(0, 64 * _SCALAR_LINES)] if acquire else [(dispatch, 64), (arguments, 4096)]:
                self.acquire(address, nbytes)
        if self.checks & COUNT:
            self.counts = (Counts * len(code.insts))()
            launch.counts = self.counts
        room = None if stop is None else stop.prepare(launch, len(code.insts), lanes)
        self.seed += 1  # the next launch runs in another order
        status = interpreter(lanes).run(launch)
        self.steps += launch.steps
        if status == 1:
            raise explain(launch, kernel, code, self.memory)
        if status == 2:
            raise MemoryError("[sim] expected host memory for the state of a launch but got none")
        if status == 3 and stop is not None and room is not None:
            stop.fill(launch, room, lanes)

    def _reserve(self, nbytes: int) -> int:
        """Memory of the machine's own for a launch: kept, as spans are sorted anew after every allocation."""
        address = self._reserved.get(nbytes)
        if address is None or self.memory.find(address) is None:
            address = self._reserved[nbytes] = self.memory.allocate(nbytes)
        return address

    def _user_sgprs(self, kernel: Kernel, dispatch: int, arguments: int, scratch: int) -> Any:
        """What the first scalar registers hold when a wave starts."""
        words: list[int] = []
        values = {_SCRATCH: _SCRATCH_BUFFER, _DISPATCH: dispatch, _KERNARG: arguments, _PRIVATE_SIZE: scratch}
        for bit, count in _USER_SGPRS:
            if kernel.properties & bit:
                value = values.get(bit, 0)
                words += [value >> 32 * n & 0xFFFFFFFF for n in range(count)]
        first, count = kernel.preload
        preloaded = self.memory.view(arguments, kernel.kernarg_bytes)[4 * first : 4 * (first + count)]
        words += list(struct.unpack(f"<{len(preloaded) // 4}I", preloaded.tobytes()))
        return (ctypes.c_uint32 * 32)(*words[:32])

    def _place_arguments(
        self, kernel: Kernel, address: int, given: bytes, grid: Sequence[int], block: Sequence[int], dynamic_lds: int
    ) -> None:
        raw = bytearray(-(-max(kernel.kernarg_bytes, 8) // 16) * 16)
        raw[: len(given)] = given
        values = {
            "hidden_grid_dims": 3 if grid[2] * block[2] > 1 else 2 if grid[1] * block[1] > 1 else 1,
            "hidden_dynamic_lds_size": dynamic_lds,
        }
        for d, axis in enumerate("xyz"):
            values[f"hidden_block_count_{axis}"] = grid[d]
            values[f"hidden_group_size_{axis}"] = block[d]
        for param in kernel.hidden:  # the rest, remainders and offsets, is 0: grids are whole numbers of blocks
            raw[param.offset : param.offset + param.nbytes] = values.get(param.kind, 0).to_bytes(param.nbytes, "little")
        self.memory.view(address, len(raw), write=True)[:] = memoryview(bytes(raw))
