"""The OpenBLAS in NumPy's wheels: addresses of its GEMMs, which take 64-bit integers and have a prefix of their own."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_SYMBOLS = {"float32": "scipy_cblas_sgemm64_", "float64": "scipy_cblas_dgemm64_"}


@dataclass(frozen=True)
class Blas:
    """A BLAS library: its name and the address of cblas_?gemm per dtype."""

    name: str
    functions: dict[str, int]


def find_openblas() -> Blas | None:
    """NumPy's OpenBLAS, or None where NumPy was built otherwise."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("libscipy_openblas64_*.so*")):
        library = ctypes.CDLL(str(path))
        if all(hasattr(library, symbol) for symbol in _SYMBOLS.values()):
            functions = {d: ctypes.cast(getattr(library, s), ctypes.c_void_p).value or 0 for d, s in _SYMBOLS.items()}
            return Blas(path.name, functions)
    return None
