"""Kernels that a wheel brings along: the hand-written ones of common programs, which take a compiler longest.

`tools/prebuild.py` makes one library per level of instruction sets. Its name is a digest of flags and of all that texts
include, as in the disk cache, but not of the compiler: the user's may be any. It ends in its SHA-256. A function in
it is called `k<digest of its text><suffix>`. What is missing, damaged or needs a newer libc is compiled as ever.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from pathlib import Path

from pyflame.runtime.cache import digest
from pyflame.runtime.sources import include_dir

_AVX2 = ("avx2", "fma", "f16c", "bmi2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_NEON_DOT = ("asimd", "atomics", "asimdhp", "asimddp")
# By machine, best first: what makes plans lay out panels for a level (`isa_of` in kernels/matmul.py), and all that its
# kernels may use. A CPU with the first and without the rest gets none: those of a lower level have other panels.
LEVELS: dict[str, dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "x86_64": {
        "amx": (("amx_bf16", "amx_int8", "avx512f"), (*_AVX512, "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")),
        "avx512": (("avx512f",), _AVX512),
        "avx2": (("avx2", "fma"), _AVX2),
    },
    "aarch64": {
        "sve256_mmla": (("sve256",), (*_NEON_DOT, "i8mm", "bf16", "sve256")),
        "neon_mmla": (("i8mm", "bf16"), (*_NEON_DOT, "i8mm", "bf16")),
        "neon_dot": (("asimddp",), _NEON_DOT),
        "neon": (("asimd",), ("asimd",)),
    },
}


def level_of(isa: Sequence[str]) -> str | None:
    """The level whose kernels fit plans for these instruction sets.

    >>> level_of(("asimd", "atomics", "asimdhp", "asimddp"))
    'neon_dot'
    """
    present = set(isa)
    if "sve512" in present:  # rare, so compiled where it is: none of the levels has its panels
        return None
    for levels in LEVELS.values():
        for name, (marks, used) in levels.items():
            if present.issuperset(marks):
                return name if present.issuperset(used) else None
    return None


def folder() -> Path:
    """Where a wheel has its libraries."""
    return include_dir().parent / "prebuilt"


def library_name(level: str, flags: Sequence[str], headers: bytes) -> str:
    """Of what these flags make of the kernels' files."""
    return f"{level}-{digest(*flags, headers)}.so"


def kernel_name(text: str) -> str:
    """What stands for PF_KEY in the text of a kernel in a library."""
    return "k" + digest(text)


def signed(code: bytes) -> bytes:
    """A library as it is kept: the loader ignores what stands behind it."""
    return code + hashlib.sha256(code).digest()


def open_library(path: Path) -> ctypes.CDLL | None:
    """A library of a wheel; None if there is none, or it is damaged or not for this system."""
    try:
        raw = path.read_bytes()
        return ctypes.CDLL(str(path)) if raw == signed(raw[: -hashlib.sha256().digest_size]) else None
    except OSError:
        return None
