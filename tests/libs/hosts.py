"""Libraries whose work is NumPy's, on the memory and in the order of an emulated GPU (tests/emulated.py).

They are opened, described, searched, tried out and captured like real ones; what they get wrong is said beforehand.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from pyflame.libs.conv import ConvSpec
from pyflame.libs.rocm.hipblaslt import HipBlasLt
from tests.libs.numpy_lt import BLAS, HIP, Lt

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
Spoil = Callable[[np.ndarray[Any, Any]], None]


def host_lt(driver: Any, spoil: Spoil = lambda result: None) -> HipBlasLt:
    """PyFlame's hipBLASLt over a module that computes with NumPy when the driver's stream gets there."""
    return HipBlasLt(Lt(give=lambda work, *_: driver._do(work), spoil=spoil), BLAS, HIP)


class SimLt(Lt):
    """The module on simulated GPUs: their memory, their streams, and, in the mode `handles`, who may use a handle."""

    def __init__(self, hip: Any) -> None:
        def give(work: Callable[[], None], handle: int, stream: int) -> None:
            (status,) = hip.start_library(stream, "hipblasLtMatmul", work, handle)
            assert status == 0, hip.explain()

        super().__init__(give=give)
        self.hip = hip

    def _use(self, handle: int, stream: int) -> None:
        assert handle in self.streams

    def _memory(self, address: int, nbytes: int, write: bool = False) -> Any:
        return self.hip.owner(address).memory.view(address, nbytes, write)


def array_at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    kind = np.dtype(DTYPES[dtype])
    raw = (ctypes.c_char * (int(np.prod(shape)) * kind.itemsize)).from_address(address)
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, kind), shape, [s * kind.itemsize for s in strides])


def convolution(spec: ConvSpec, x: Any, w: Any, y: Any, direction: str) -> np.ndarray[Any, Any]:
    """By definition, a tap of the kernel at a time, in float64. What the direction makes is not read."""
    s = spec.flat
    x, w, y = (np.asarray(v, np.float64).reshape(s.shape(n)) for v, n in ((x, "x"), (w, "w"), (y, "y")))
    groups, letters = s.groups, "xyz"[: len(s.size)]
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in s.padding)])
    shapes = {
        "forward": (s.batch, groups, s.filters // groups, *s.y[2:]),
        "backward_data": (s.batch, groups, s.channels // groups, *padded.shape[2:]),
        "backward_filter": (groups, s.filters // groups, *s.w[1:]),
    }
    out = np.zeros(shapes[direction])
    x_groups = padded.reshape(shapes["backward_data"])
    w_groups, y_groups = w.reshape(shapes["backward_filter"]), y.reshape(shapes["forward"])
    for tap in itertools.product(*map(range, s.kernel)):
        index = tuple(
            slice(t * d, t * d + (n - 1) * st + 1, st)
            for t, d, st, n in zip(tap, s.dilation, s.stride, y.shape[2:], strict=True)
        )
        window, at = (slice(None),) * 3 + index, (slice(None),) * 3 + tap
        if direction == "forward":
            out += np.einsum("ngc...,gkc->ngk...", x_groups[window], w_groups[at])
        elif direction == "backward_data":
            out[window] += np.einsum("ngk...,gkc->ngc...", y_groups, w_groups[at])
        else:
            out[at] = np.einsum(f"ngk{letters},ngc{letters}->gkc", y_groups, x_groups[window])
    if direction == "backward_data":
        inner = tuple(slice(p, p + n) for p, n in zip(s.padding, s.size, strict=True))
        return out.reshape(padded.shape)[(slice(None), slice(None), *inner)]
    return out.reshape(s.shape({"forward": "y", "backward_filter": "w"}[direction]))


class HostDnn:
    """Convolutions with the interface of `libs.rocm.miopen.ROCmDNN`. Keeps the problems it was given."""

    name, version = "HostDNN", "1.0"

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.asked: list[tuple[str, ConvSpec]] = []
        self.deterministic = False  # whether the last one was to be

    def supports(self, spec: ConvSpec) -> bool:
        return spec.dtype in ("float32", "float16", "bfloat16")

    def workspace_size(self, direction: str, spec: ConvSpec, deterministic: bool) -> int:
        return 512

    def convolve(
        self, direction: str, spec: ConvSpec, x: int, w: int, y: int, stream: int, workspace: int, workspace_bytes: int,
        deterministic: bool,
    ) -> None:  # fmt: skip
        assert workspace and workspace_bytes == 512
        self.deterministic = deterministic
        self.asked.append((direction, spec))

        def work() -> None:
            places = {"x": x, "w": w, "y": y}
            at = {n: array_at(a, spec.shape(n), spec.strides(n), spec.dtype) for n, a in places.items()}
            result = at[{"forward": "y", "backward_data": "x", "backward_filter": "w"}[direction]]
            result[...] = convolution(spec, at["x"], at["w"], at["y"], direction).reshape(result.shape)

        self.driver._do(work)
