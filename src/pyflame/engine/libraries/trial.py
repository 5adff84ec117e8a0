"""A launch tried out on memory of its own: how long it takes, and whether a library does what our kernel does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from statistics import median
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, float16
from pyflame.core.errors import CompileError
from pyflame.engine.binding import Held
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.libraries.tuner import Verdict, compare
from pyflame.engine.pieces import fetched, gathered, pieces
from pyflame.engine.planned_target import planned_target
from pyflame.engine.texts import gpu_sources, gpu_texts
from pyflame.engine.value import Value
from pyflame.ir.kernel import Draft, Launch, LibraryCall
from pyflame.runtime.base import GpuDevice
from pyflame.runtime.gpu.driver import KernelArguments
from pyflame.runtime.kernels import Ahead

FENCE = 4096  # bytes around each buffer that nobody may write
FILL = 0xFF  # NaN as any float: what was not written is no number
PERIOD = 262_139  # a prime: numbers that repeat so fall differently into each row of a matrix
ROUNDS = 5
SINGLE = 3  # runs by themselves before: another program on the GPU may get in between one
SECONDS = 1e-3  # of one round
MOST = 50  # launches in a round
FLOPS_OF_A_BYTE = 64  # of a launch that waits for memory, at most
PIECES, PIECE = 256, 4096  # of a result that are compared, and their bytes; of a smaller one all
HOPELESS, LATE = 2.0, 50e-6  # so many times as long as another, and a slow launch: not worth rounds
BEHIND = 1.2  # so many times as long as another in a round: not worth the others


class TrialBuffers:
    """Memory for the buffers of a plan of one launch, each between fences. Inputs hold numbers, all else is filled.

    `nan`: the first number of the first input is none, and what follows from it must be none either.
    """

    def __init__(self, device: GpuDevice, plan: Draft, nan: bool = False) -> None:
        self.device = device
        self.plan = plan
        self._starts: list[int] = []
        self._spans: list[tuple[int, int]] = []  # begin and end of the memory that is a buffer's
        end = FENCE
        for before, behind in reach(plan):
            start = end + -(-before // FENCE) * FENCE
            self._starts.append(start)
            self._spans.append((start - before, start + behind))
            end = start + -(-max(behind, 1) // FENCE) * FENCE + FENCE
        self._block = device.allocate(end)
        self._end = end
        device.fill(self._block.address, FILL, end)
        for (begin, behind), buffer in zip(self._spans, plan.buffers, strict=True):
            if buffer.role == "input" and buffer.dtype is not None:
                self._fill(self._block.address + begin, behind - begin, buffer.dtype)
        if nan:
            kind = plan.launches[0].operands[0].dtype.numpy
            device.upload(self._address(0), np.array([np.nan]).astype(kind).tobytes())

    def make_subnormal(self) -> None:
        """Fill all inputs in float16 with subnormals, but for the second operand: results that they make are none."""
        spared, _ = self.plan.launches[0].buffers[1]
        for number, ((begin, behind), buffer) in enumerate(zip(self._spans, self.plan.buffers, strict=True)):
            if buffer.role == "input" and buffer.dtype is float16 and number != spared:
                self._fill(self._block.address + begin, behind - begin, float16, subnormal=True)

    def _address(self, number: int) -> int:
        """Of a kernel's buffer."""
        buffer, offset = self.plan.launches[0].buffers[number]
        return int(self._block.address) + self._starts[buffer] + offset

    def _fill(self, address: int, nbytes: int, dtype: DType, subnormal: bool = False) -> None:
        """Send one period of numbers and double it on the device: large operands would take the host seconds."""
        block = _subnormals() if subnormal else _numbers(dtype)
        done = min(nbytes, len(block))
        self.device.upload(address, block[:done])
        while done < nbytes:
            size = min(done, nbytes - done)
            self.device.copy(address + done, address, size)
            done += size

    def held(self, executable: GpuRunner) -> Held:
        """The memory as an executable's slots."""
        binding = executable.binding
        shared = list(binding.slot_of)[: len(binding.positions) + len(binding.output_sizes)]
        return [*(Value(self._block, self._starts[number]) for number in shared), *binding.hold_own()]

    def clear(self, number: int) -> None:
        """Forget what was written to a kernel's buffer."""
        buffer, _ = self.plan.launches[0].buffers[number]
        self.device.fill(self._block.address + self._starts[buffer], FILL, self.plan.buffers[buffer].nbytes)

    def result(self, number: int, dtype: DType) -> np.ndarray[Any, Any]:
        """What lies in a kernel's buffer: all of it, or pieces from its begin to its end."""
        buffer, offset = self.plan.launches[0].buffers[number]
        nbytes = self.plan.buffers[buffer].nbytes - offset
        parts = [(0, nbytes)] if nbytes <= PIECES * PIECE else pieces(nbytes, PIECE, PIECES)
        return gathered(self.device, self._address(number), parts).view(dtype.numpy)

    def trespassed(self) -> str:
        """Where somebody has written who may not; empty: nowhere."""
        begins, ends = zip(*self._spans, strict=True)
        for number, (end, begin) in enumerate(zip([0, *ends], [*begins, self._end], strict=True)):
            if (fetched(self.device, self._block.address + end, begin - end) != FILL).any():
                side = "before its first" if number == 0 else f"behind its buffer number {number}"
                return f"it wrote {side} of {len(self._starts)}"
        return ""


def reach(plan: Draft) -> list[tuple[int, int]]:
    """Bytes before and from the address of each buffer that the launch touches.

    An input may be a view that somebody evaluated: with gaps it is longer than its elements, and the address of a
    flipped one is that of its first element, not of its lowest.
    """
    launch = plan.launches[0]
    found = [(0, buffer.nbytes) for buffer in plan.buffers]
    extents = [extent for scope in launch.kernel.loops for extent in scope]
    accesses = [a for i in launch.kernel.instrs if (a := i.access) is not None and a.buffer >= 0]
    views = [(a.buffer, extents, a.strides, a.offset, a.dtype) for a in accesses]
    views += [(v.buffer, list(v.shape), v.strides, 0, v.dtype) for v in launch.operands]
    for buffer, shape, strides, offset, dtype in views:
        number, base = launch.buffers[buffer]
        steps = [stride * (size - 1) for stride, size in zip(strides, shape, strict=False)]
        lowest, highest = offset + sum(min(s, 0) for s in steps), offset + sum(max(s, 0) for s in steps)
        before, behind = found[number]
        found[number] = (
            max(before, -base - lowest * dtype.itemsize),
            max(behind, base + (highest + 1) * dtype.itemsize),
        )
    return found


class Trial:
    """One way to run a plan of one launch, on trial buffers. Its launches may have been divided, its buffers not."""

    def __init__(self, trial_buffers: TrialBuffers, plan: Draft, calls: Mapping[int, LibraryCall]) -> None:
        self.device = trial_buffers.device
        self._cold = cold_bytes(trial_buffers.plan, self.device.properties.l2_bytes)
        sources = gpu_sources(plan.launches, planned_target(trial_buffers.device), calls)
        self._executable = GpuRunner(plan.finish(sources), trial_buffers.device)
        held = self._held = trial_buffers.held(self._executable)
        self._workspace, at = self._executable.workspace()
        if plan.uniforms:
            self._executable.upload(at[2], _constants(plan))
        self._kernel_args = KernelArguments(self._executable.kernel_args(held, at))

    def start(self) -> None:
        self._executable.launch(self._kernel_args)

    def seconds(self, best: float = math.inf) -> float:
        """The median of several rounds on the GPU. A round is a graph: nothing times the host, which also compiles.

        `best`: how long another takes. What is far behind gets no rounds, but the best of a few single runs.
        """
        self.start()
        once = max(min(self._times((self.start,), 1, SINGLE)), 1e-7)
        if once > HOPELESS * best + LATE:
            return once
        repeats = max(1, min(MOST, int(SECONDS / once)))
        if not self._cold:
            return self._round((self.start,), repeats, BEHIND * best)
        room = self.device.allocate(self._cold)
        forget = partial(self.device.fill, room.address, 0, self._cold)
        return max(self._round((forget, self.start), repeats) - self._round((forget,), repeats), 1e-7)

    def _round(self, work: Sequence[Callable[[], None]], repeats: int, most: float = math.inf) -> float:
        """The time of all these, once. More than `most` need not be known well."""
        return median(self._times(work, repeats, ROUNDS, most))

    def _times(
        self, work: Sequence[Callable[[], None]], repeats: int, rounds: int, most: float = math.inf
    ) -> list[float]:
        """Those of rounds, as a share of one."""
        with self.device.capture() as graph:
            for _ in range(repeats):
                for part in work:
                    part()
        graph.replay()
        taken: list[float] = []
        while len(taken) < rounds and min(taken, default=0.0) <= most:
            taken.append(_timed(self.device, graph.replay) / repeats)
        return taken


def compile_ahead(device: GpuDevice, ahead: Ahead, launches: Sequence[Launch], soon: bool = False) -> None:
    """Begin to compile the kernels of all these launches, so that trials of them find theirs. `soon`: first of all."""
    with suppress(CompileError):  # whoever needs that kernel compiles it again, and says so
        ahead.add(gpu_texts(gpu_sources(launches, planned_target(device))), soon)


def cold_bytes(plan: Draft, l2_bytes: int) -> int:
    """Bytes to write before each run, so that L2 forgets a weight that it would still have from the run before, and has
    not in a model: for launches that wait for memory, and for what L2 may keep of it. 0 for all others."""
    launch, nbytes = plan.launches[0], sum(buffer.nbytes for buffer in plan.buffers)
    return l2_bytes if launch.flops < FLOPS_OF_A_BYTE * nbytes and nbytes < 4 * l2_bytes else 0


def _constants(plan: Draft) -> list[float | int]:
    """Numbers for a plan's uniforms, by their slots, as a caller brings them."""
    floats = {value: is_float for source, value, is_float in plan.uniforms if source == "slot"}
    return [0.5 if floats.get(slot, True) else 1 for slot in range(max(floats, default=-1) + 1)]


def _timed(device: GpuDevice, work: Callable[[], None]) -> float:
    start = device.event(timing=True).record()
    work()
    return device.event(timing=True).record().seconds_since(start)


@lru_cache(maxsize=16)
def _numbers(dtype: DType) -> bytes:
    """A period of numbers: normal ones (zeros raise a GPU's clock and hide errors), or small whole ones."""
    rng = np.random.default_rng(PERIOD)
    if dtype.is_float:
        return rng.standard_normal(PERIOD, np.float32).astype(dtype.numpy).tobytes()
    return rng.integers(0, 2, PERIOD).astype(dtype.numpy).tobytes()


@lru_cache(maxsize=1)
def _subnormals() -> bytes:
    """A period of float16's subnormals, of both signs."""
    bits = np.random.default_rng(PERIOD).integers(1, 1024, PERIOD, np.uint16)
    bits[::2] |= 0x8000
    return bits.tobytes()


def verdict(
    device: GpuDevice,
    plan: Draft,
    call: LibraryCall,
    dtype: str,
    terms: int,
    looser: float = 1.0,
    subnormals: bool = False,
) -> Verdict:
    """How far a library's result is from our own kernel's.

    `plan`: of one launch, a product's; `dtype` and `terms`: what is summed, and how much of it; `looser`: by how much
    more than sums in another order an algorithm may be off; `subnormals`: whether they are compared as well.
    """
    trial_buffers = TrialBuffers(device, plan, nan=bool(call.extra))
    found = _difference(trial_buffers, plan, call, dtype, terms, looser)
    if found.right and subnormals:
        trial_buffers.make_subnormal()
        found = _difference(trial_buffers, plan, call, dtype, terms, looser)
        found = replace(found, where=f"with subnormals {found.where}")
    return found


def _difference(
    trial_buffers: TrialBuffers, plan: Draft, call: LibraryCall, dtype: str, terms: int, looser: float
) -> Verdict:
    ((_, store),) = plan.launches[0].kernel.stores
    Trial(trial_buffers, plan, {}).start()
    want = trial_buffers.result(store.buffer, store.dtype)
    trial_buffers.clear(store.buffer)
    Trial(trial_buffers, plan, {0: call}).start()
    got = trial_buffers.result(store.buffer, store.dtype)
    trespass = trial_buffers.trespassed()
    if trespass:
        return Verdict(float("inf"), 0.0, trespass)
    found = compare(got, want, dtype, terms)
    return Verdict(found.error, found.allowed * looser, found.where)
