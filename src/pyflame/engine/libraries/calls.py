"""What each vendor library offers for a launch: the calls that would do it, best guess first.

An offer opens nothing new and runs nothing. Trying it out, comparing and timing are `engine/libraries/decide.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import Any, Protocol

from pyflame.core.state import state
from pyflame.engine.libraries.products import PROMISED, Conv, Gemm
from pyflame.ir.kernel import Launch, LibraryCall
from pyflame.libs.gemm import GemmSpec

WORKSPACE = 32 << 20  # bytes that a library may ask for
PROPOSALS = 3  # of a library that are tried
CONV_WORKSPACE = 256 << 20  # gradients of convolutions are sums of parts
CONV_PROPOSALS = 6  # engines differ more than tiles of a product do


class GemmLibrary(Protocol):
    """A library's products. `reproducible`: whether they have the same bits in every run."""

    name: str
    version: str
    reproducible: bool

    def offers(self, gemm: Gemm) -> list[LibraryCall]: ...


class ConvLibrary(Protocol):
    """A library's convolutions. `launch` is the convolution's own, and stores what the library leaves."""

    name: str
    version: str
    reproducible: bool

    def offers(self, conv: Conv, launch: Launch) -> list[LibraryCall]: ...


class LtProducts:
    """cuBLASLt and hipBLASLt: `lt` is a `libs.lt.LtMatmul`."""

    def __init__(self, lt: Any) -> None:
        self.lt = lt
        self.name, self.version, self.reproducible = lt.name, lt.version, lt.reproducible

    def offers(self, gemm: Gemm) -> list[LibraryCall]:
        if gemm.spec.gradient:  # hipBLASLt has no alternative implementation (pytorch/pytorch issue 182952)
            return []
        proposed = (WORKSPACE, PROPOSALS, gemm.aligned)
        for spec in _precisions(gemm.spec):
            found = self.lt.workspaces(spec, *proposed)
            if found:
                return [self._call(gemm, spec, rank, size, proposed) for rank, size in enumerate(found)]
        return []

    def _call(self, gemm: Gemm, spec: GemmSpec, rank: int, size: int, proposed: tuple[Any, ...]) -> LibraryCall:
        matmul, has_bias, has_addend, offsets = self.lt.matmul, spec.bias, gemm.addend, gemm.offsets

        def start(addresses: Sequence[int], workspace: int, stream: int) -> None:
            a, b, c = addresses[:3]
            bias = addresses[3] if has_bias else 0
            for to_a, to_b, to_c in offsets:
                addend = addresses[-1] + to_c if has_addend else 0
                matmul(
                    spec, a + to_a, b + to_b, c + to_c, bias, stream, workspace, size, rank, addend, proposed
                )  # fmt: skip

        return LibraryCall(self.name, self.version, gemm.buffers, gemm.alignment, size, start, rank, spec.activation)


class RocblasProducts:
    """rocBLAS: no bias and no activation."""

    reproducible = True  # without atomics

    def __init__(self, blas: Any) -> None:
        self.blas = blas
        self.name, self.version = blas.name, blas.version

    def offers(self, gemm: Gemm) -> list[LibraryCall]:
        spec = next((s for s in _precisions(gemm.spec) if self.blas.supports(s)), None)
        if spec is None:
            return []

        def start(addresses: Sequence[int], workspace: int, stream: int) -> None:
            a, b, c = addresses[:3]
            for to_a, to_b, to_c in gemm.offsets:
                addend = addresses[-1] + to_c if gemm.addend else 0
                self.blas.matmul(spec, a + to_a, b + to_b, c + to_c, 0, stream, workspace, WORKSPACE, addend)

        return [LibraryCall(self.name, self.version, gemm.buffers, gemm.alignment, WORKSPACE, start)]


def _precisions(spec: GemmSpec) -> list[GemmSpec]:
    """TF32 where it is allowed, else float32."""
    return [spec, replace(spec, tf32=False)] if spec.tf32 else [spec]


class CudnnConvolutions:
    """cuDNN. Algorithms whose results vary from run to run are left out."""

    reproducible = True

    def __init__(self, dnn: Any) -> None:
        self.dnn = dnn
        self.name, self.version = dnn.name, dnn.version

    def offers(self, conv: Conv, launch: Launch) -> list[LibraryCall]:
        if not self.dnn.supports(conv.spec) or not _aligned(conv, launch):
            return []
        proposed = self.dnn.propose(conv.direction, conv.spec)
        fit = [p for p in proposed if p.workspace <= CONV_WORKSPACE and p.deterministic]
        return [self._call(conv, launch, rank, plan) for rank, plan in enumerate(fit[:CONV_PROPOSALS])]

    def _call(self, conv: Conv, launch: Launch, rank: int, plan: Any) -> LibraryCall:
        size = plan.workspace

        def start(addresses: Sequence[int], workspace: int, stream: int) -> None:
            self.dnn.convolve(plan, *_places(conv, addresses), stream, workspace, size)

        return LibraryCall(self.name, self.version, _buffers(launch), _alignment(conv), size, start, rank)


class MiopenConvolutions:
    """MIOpen, which searches when a problem is first met and keeps what it finds: in deterministic work among what does
    not vary."""

    reproducible = True

    def __init__(self, dnn: Any) -> None:
        self.dnn = dnn
        self.name, self.version = dnn.name, dnn.version

    def offers(self, conv: Conv, launch: Launch) -> list[LibraryCall]:
        spec = replace(conv.spec, tf32=False)
        if not self.dnn.supports(spec) or not _aligned(conv, launch):
            return []
        deterministic = state.deterministic
        size = min(self.dnn.workspace_size(conv.direction, spec, deterministic), CONV_WORKSPACE)

        def start(addresses: Sequence[int], workspace: int, stream: int) -> None:
            self.dnn.convolve(conv.direction, spec, *_places(conv, addresses), stream, workspace, size, deterministic)

        return [LibraryCall(self.name, self.version, _buffers(launch), _alignment(conv), size, start)]


def _buffers(launch: Launch) -> tuple[int, int, int]:
    """Kernel buffer numbers of the two sources and of the result."""
    return 0, 1, launch.kernel.stores[0][1].buffer


def _aligned(conv: Conv, launch: Launch) -> bool:
    """Whether operands begin where libraries want them to, in buffers that do."""
    first, second, out = (launch.buffers[n][1] for n in _buffers(launch))
    return not (first % PROMISED or (second - conv.back) % PROMISED or out % PROMISED)


def _alignment(conv: Conv) -> tuple[int, int, int]:
    """Of the addresses in the launch, of which the second may lie behind the operand's begin."""
    return PROMISED, gcd(PROMISED, conv.back), PROMISED


def _places(conv: Conv, addresses: Sequence[int]) -> tuple[int, int, int]:
    """The addresses of x, w and y."""
    first, second = conv.sources
    at = {first: addresses[0], second: addresses[1] - conv.back}
    (written,) = {"x", "w", "y"} - at.keys()
    at[written] = addresses[2]
    return at["x"], at["w"], at["y"]
