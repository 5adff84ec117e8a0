"""How long a kernel would take on a GPU at best: an estimate from published peaks, never a measurement.

    the longer of   bytes / bandwidth   and   flops / peak of the units that its inner loop uses

In a loop of matrix instructions vector instructions are issued beside them. Where those take more cycles than the
matrix units do, they bound the loop, and the peak is less by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Gpu:
    """A GPU's published figures. Flops are dense, per clock and compute unit, by type."""

    name: str
    target: str
    units: int
    ghz: float
    gb_per_second: int
    simds: int  # per compute unit
    lanes: int  # of a SIMD
    matrix: Mapping[str, int]
    vector: Mapping[str, int]
    source: str

    def tflops(self, per_clock: int) -> float:
        """A peak in TFLOP/s."""
        return per_clock * self.units * self.ghz / 1e3

    @property
    def text(self) -> str:
        """The figures and where they are from."""
        peaks = [f"{kind} {self.tflops(n):.4g}" for kind, n in self.matrix.items()]
        others = [f"{kind} {self.tflops(n):.4g}" for kind, n in self.vector.items()]
        return (
            f"{self.name}: {self.units} CUs at {self.ghz} GHz, {self.gb_per_second} GB/s; TFLOP/s of matrix units: "
            f"{', '.join(peaks)}; of vector units: {', '.join(others)}. Source: {self.source}"
        )


_CDNA2 = {"f64": 256, "f32": 256, "f16": 1024, "bf16": 1024, "i8": 1024}
_CDNA3 = {"f64": 256, "f32": 256, "xf32": 1024, "f16": 2048, "bf16": 2048, "f8": 4096, "i8": 4096}
_CDNA4 = {"f64": 128, "f32": 256, "f16": 4096, "bf16": 4096, "f8": 8192, "i8": 8192}
_RDNA3 = {"f16": 512, "bf16": 512, "i8": 512}
_RDNA4 = {"f16": 1024, "bf16": 1024, "f8": 2048, "i8": 2048}
_MATRIX_CORES = "gpuopen.com/learn/amd-lab-notes/amd-lab-notes-matrix-cores-readme"
_CDNA = "ROCm blog on matrix core programming for CDNA 3 and 4"
_RDNA = "gpuopen.com/learn/using_matrix_core_amd_rdna4 (per clock and CU), amd.com product page"

GPUS = (
    Gpu("MI250X, one of its two dies", "gfx90a", 110, 1.7, 1638, 4, 16, _CDNA2, {"f64": 128, "f32": 128},
        f"{_MATRIX_CORES} (per clock and CU), AMD Instinct MI250X data sheet"),
    Gpu("MI300X", "gfx942", 304, 2.1, 5300, 4, 16, _CDNA3, {"f64": 128, "f32": 256},
        f"AMD CDNA 3 white paper, {_CDNA} (f16 8x and f8 16x of f32), AMD Instinct MI300X data sheet"),
    Gpu("MI355X", "gfx950", 256, 2.4, 8000, 4, 16, _CDNA4, {"f64": 128, "f32": 256},
        f"{_CDNA} (f16 16x and f8 32x of f32), AMD Instinct MI355X data sheet"),
    Gpu("RX 7900 XTX", "gfx1100", 96, 2.5, 960, 2, 32, _RDNA3, {"f32": 256}, _RDNA),
    Gpu("RX 9070 XT", "gfx1201", 64, 2.97, 640, 2, 32, _RDNA4, {"f32": 256}, _RDNA),
)  # fmt: skip
BY_TARGET = {gpu.target: gpu for gpu in GPUS}


@dataclass(frozen=True)
class Estimate:
    """Seconds at best, and what bounds them."""

    gpu: str
    seconds: float
    bound: str

    @property
    def text(self) -> str:
        """One cell of a table.

        >>> Estimate("MI300X", 2.5e-5, "memory").text
        '25 us, memory'
        """
        time = f"{self.seconds * 1e6:.3g} us" if self.seconds < 1e-3 else f"{self.seconds * 1e3:.3g} ms"
        return f"{time}, {self.bound}"


def estimate(gpu: Gpu, flops: int, nbytes: int, dtype: str, loop: Mapping[str, int]) -> Estimate:
    """The roofline of a kernel. `dtype`: f64 or f32, in which vector units compute; `loop`: its inner loop.

    >>> estimate(BY_TARGET["gfx942"], 10**6, 53 * 10**6, "f32", {"vector": 9}).text
    '10 us, memory'
    """
    memory = Estimate(gpu.name, nbytes / gpu.gb_per_second / 1e9, "memory")
    kinds = {kind.split()[1] for kind in loop if kind.startswith("matrix")}
    peaks, kind = (gpu.matrix, min(kinds)) if kinds else (gpu.vector, dtype)
    if kind not in peaks:
        return Estimate(gpu.name, memory.seconds, f"memory; no peak of {kind} is published")
    seconds, unit = flops / gpu.tflops(peaks[kind]) / 1e12, f"{'matrix' if kinds else 'vector'} {kind}"
    if kinds and (share := _vector_share(gpu, loop)) > 1:
        seconds, unit = seconds * share, "vector instructions beside matrix"
    return memory if memory.seconds >= seconds else Estimate(gpu.name, seconds, unit)


def _vector_share(gpu: Gpu, loop: Mapping[str, int]) -> float:
    """Cycles in which a SIMD issues vector instructions, for each in which its matrix unit works."""
    wave = 64 if gpu.lanes == 16 else 32
    matrix = 0.0
    for kind, count in loop.items():
        if kind.startswith("matrix"):
            _, dtype, shape = kind.split()
            matrix += count * 2 * prod(map(int, shape.split("x"))) / (gpu.matrix[dtype] / gpu.simds)
    return loop.get("vector", 0) * (wave / gpu.lanes) / matrix
