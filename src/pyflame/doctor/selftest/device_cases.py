"""Cases of the machine side: copies, memory, streams and random numbers."""

from __future__ import annotations

import numpy as np

from pyflame.core import philox
from pyflame.core.device import CPU
from pyflame.core.dtype import ALL, float32
from pyflame.core.errors import OutOfMemoryError
from pyflame.core.generator import default_generator
from pyflame.core.state import mode
from pyflame.doctor.selftest.bench import Bench, Skip
from pyflame.tensor import Tensor, memory
from pyflame.tensor.creation import arange, empty, full, ones
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.modes import eval
from pyflame.tensor.random import rand, randint, randn, randperm
from pyflame.tensor.streams import Event, Stream

# --- copies -----------------------------------------------------------------------------------------------------------


def copies_bytes(bench: Bench) -> None:
    """Every dtype to the device and back, in sizes around what copies are split at."""
    for dtype in ALL:
        for size in (1, 3, 257) if bench.small else (1, 3, 257, 65_537):
            raw = bench.random.integers(0, 2 if dtype.name == "bool_" else 256, size * dtype.itemsize, np.uint8)
            array = raw.view(dtype.numpy)
            bench.same(f"{size} of {dtype.name}", bench.here(array).numpy(), array)


def copies_views(bench: Bench) -> None:
    """Transposed, sliced, flipped and expanded: what lies otherwise in memory than it reads."""
    array = bench.normal(7, 11, 5, dtype=float32)
    x = bench.here(array)
    bench.same("transposed", x.permute(2, 0, 1), np.ascontiguousarray(array.transpose(2, 0, 1)))
    bench.same("a slice with steps", x[1:6:2, ::3], np.ascontiguousarray(array[1:6:2, ::3]))
    bench.same("flipped", x.flip(0), np.ascontiguousarray(array[::-1]))
    bench.same("expanded", x[:, :1].expand(7, 4, 5), np.repeat(array[:, :1], 4, 1))
    bench.same("on the device and back to the CPU", x.clone().to("cpu"), array)


def copies_large(bench: Bench) -> None:
    array = bench.random.integers(0, 256, (1 << 12) if bench.small else (16 << 20), np.uint8)
    x = bench.here(array)
    bench.same("there and back", x.numpy(), array)
    bench.same("from memory to memory of the device", (x + 0).numpy(), array)


# --- memory -----------------------------------------------------------------------------------------------------------


def memory_counts(bench: Bench) -> None:
    """What is allocated is counted, and given back when nobody holds it."""
    name, size = str(bench.device), 1 << 20
    before = memory.memory_allocated(name)
    memory.reset_peak_memory_stats(name)
    held = [full((size,), float(n), device=name).clone() for n in range(3)]
    eval(*held)
    bench.true("three tensors of 4 MB are counted", memory.memory_allocated(name) - before >= 12 << 20)
    for n, x in enumerate(held):
        bench.same(f"tensor {n} holds its own number", x[::4097], np.full(len(range(0, size, 4097)), n, np.float32))
    del held, x
    bench.true("they are given back", memory.memory_allocated(name) - before < 4 << 20)
    bench.true("the peak remembers them", memory.max_memory_allocated(name) - before >= 12 << 20)


def memory_reuse(bench: Bench) -> None:
    """Blocks that come and go do not write over each other."""
    kept: dict[int, tuple[Tensor, int]] = {}
    for step in range(12 if bench.small else 200):
        at, size = step % 7, int(bench.random.integers(1, 5000))
        kept[at] = (arange(size, device=str(bench.device)) + step, step)
        eval(kept[at][0])
    for at, (x, step) in kept.items():
        bench.same(f"block {at}", x, np.arange(x.shape[0], dtype=np.int64) + step)


def memory_exhausted(bench: Bench) -> None:
    """A request for more than there is raises an error that can be caught, and the device goes on."""
    total = memory.memory_info(str(bench.device))[1]
    try:
        eval(empty(max(4 * total, 1 << 46), dtype="uint8", device=str(bench.device)))
        bench.fail(f"{max(4 * total, 1 << 46):,} bytes were given where there are {total:,}")
    except OutOfMemoryError:
        pass
    array = bench.normal(1000, dtype=float32)
    bench.same("an addition after it", bench.here(array) + 1, array + np.float32(1))


# --- streams ----------------------------------------------------------------------------------------------------------


def _streams(bench: Bench) -> tuple[Stream, Stream]:
    if bench.device.kind == "cpu":
        raise Skip("the CPU has no streams")
    return Stream(str(bench.device)), Stream(str(bench.device))


def streams_order(bench: Bench) -> None:
    """What one stream computes and another reads, ordered by an event."""
    one, other = _streams(bench)
    array = bench.normal(64, 64, dtype=float32) / 8
    x = bench.here(array)
    eval(x)
    for turn in range(2 if bench.small else 20):
        with one:
            y = x @ x + turn
            eval(y)
        other.wait_event(one.record_event())
        with other:
            z = y * 2 - y
            eval(z)
        other.synchronize()
        bench.check(f"turn {turn}", z, array.astype(np.float64) @ array + turn, terms=64)


def streams_events(bench: Bench) -> None:
    """Times of events run forward, and a finished stream says so."""
    one, _ = _streams(bench)
    begin, end = Event(str(bench.device), True), Event(str(bench.device), True)
    begin.record(one)
    with one:
        eval(bench.here(bench.normal(256, dtype=float32)).exp())
    end.record(one)
    one.synchronize()
    bench.true("the stream is idle once it was waited for", one.query())
    bench.true(f"{begin.elapsed_time(end)} ms lie between two events", begin.elapsed_time(end) >= 0)


# --- random numbers ---------------------------------------------------------------------------------------------------


def random_bits(bench: Bench) -> None:
    """Uniforms, whole numbers, permutations and dropout's mask have the CPU's bits; the CPU's own uniforms those of
    their definition."""
    size = 1000 if bench.small else 100_003

    def drawn() -> dict[str, Tensor]:
        default_generator.manual_seed(1234)
        return {
            "rand": rand(size),
            "rand in float64": rand(size, dtype="float64"),
            "rand in bfloat16": rand(size, dtype="bfloat16"),
            "randint": randint(-5, 1 << 40, (size,)),
            "randperm": randperm(997),
            "dropout": F["dropout"](ones(size), 0.3),
        }

    got = {what: t.numpy() for what, t in drawn().items()}
    bench.same("rand by its definition", got["rand"], philox.random_uniform_f32(1234, 0, size))
    bench.same("rand in float64 by its definition", got["rand in float64"], philox.random_uniform_f64(1234, 1, size))
    with mode(device=CPU):
        for what, want in drawn().items():
            bench.same(what, got[what], want)


def random_normals(bench: Bench) -> None:
    """Normal numbers are within 4 ulp of the CPU's, and have the right mean and width."""
    size = 2000 if bench.small else 200_000

    def drawn() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        default_generator.manual_seed(99)
        return randn(size).numpy()

    got = drawn()
    with mode(device=CPU):
        bench.check("against the CPU", got, drawn(), looser=1 / 17)
    bench.true(f"mean {got.mean():.4f} is near 0", abs(float(got.mean())) < 5 / size**0.5)
    bench.true(f"width {got.std():.4f} is near 1", abs(float(got.std()) - 1) < 5 / size**0.5)
