"""matmul through a BLAS library: a candidate beside the own GEMM, without epilogues.

The own micro-kernel reaches about what OpenBLAS does where the CPU has NEON, AVX2 or more, and fuses what follows; on
older CPUs its plain C does not, and the library wins.
"""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.ir.node import Node
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

_CTYPE = {"float32": "float", "float64": "double"}


def supports(node: Node) -> bool:
    """Floats of one dtype, at most one batch axis, and large enough that a call into a library is nothing."""
    x, y = node.srcs
    plain = x.ndim == y.ndim and x.ndim <= 3 and x.shape[:-2] == y.shape[:-2]
    return node.dtype.name in _CTYPE and plain and node.size * x.shape[-1] > 1 << 18


def prior(node: Node, target: Target) -> float:
    if not supports(node):
        return 0.0
    return 0.9 if {"avx2", "asimd"} & set(target.isa) else 1.1


def blas_spec(library: str, functions: dict[str, int]) -> KernelSpec:
    """The candidate for a library whose GEMMs have these addresses."""

    def source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
        anchor = launch.kernel.anchor
        assert anchor is not None
        a, _ = launch.operands
        *batch, m, n = anchor.meta.shape
        args = (functions[a.dtype.name], m, n, a.shape[-1])
        kernel = "PF_KERNEL(PF_KEY_0) { pf_blas(buf, arg, begin, end); }"
        text = f'#define PF_T {_CTYPE[a.dtype.name]}\n#include "blas.c"\n{kernel}\n'
        return Source(text, (Phase("_0", prod(batch), max(1, prod(batch))),), args)

    return kernel(KernelSpec("matmul", "openblas", source, why=f"{library} has the higher prior here", prior=prior))
