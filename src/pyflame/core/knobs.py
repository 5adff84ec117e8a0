"""Every environment variable that PyFlame reads, typed, in one place. Values are read when first used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pyflame.core.errors import ArgumentError


@dataclass(frozen=True)
class Knob:
    """One environment variable: its name, kind, default and meaning."""

    name: str
    default: str
    doc: str

    def text(self) -> str:
        return os.environ.get(self.name, self.default)

    def integer(self) -> int:
        value = self.text()
        try:
            return int(value)
        except ValueError:
            raise ArgumentError(
                f"[{self.name}] expected a whole number but got {value!r}; unset it for {self.default}"
            ) from None


DEVICE = Knob("PYFLAME_DEVICE", "", "device to start on, such as cpu or rocm:0; empty: cpu")
DEBUG = Knob(
    "PYFLAME_DEBUG", "0", "1 prints each plan, 2 each launch with its time and GB/s, 4 also the generated source"
)
CACHE_DIR = Knob("PYFLAME_CACHE_DIR", "", "folder of compiled kernels; empty: the user's cache folder")
CACHE_MB = Knob("PYFLAME_CACHE_MB", "1024", "size in MB above which the least recently used kernels are removed")
CC = Knob("PYFLAME_CC", "", "C compiler for CPU kernels; empty: cc, gcc or clang, whichever is found first")
HIP_CLANG = Knob("PYFLAME_HIP_CLANG", "", "clang with the AMDGPU target, for building without hiprtc; empty: search")
THREADS = Knob("PYFLAME_THREADS", "0", "worker threads of the CPU device; 0: one per core this process may use")
MAX_PENDING = Knob("PYFLAME_MAX_PENDING", "200000", "nodes a thread may build before the newest one is evaluated")
MAX_FUSED = Knob("PYFLAME_MAX_FUSED", "128", "ops in one generated kernel")
PLAN_CACHE = Knob("PYFLAME_PLAN_CACHE", "1024", "plans kept in memory")

ALL = (DEVICE, DEBUG, CACHE_DIR, CACHE_MB, CC, HIP_CLANG, THREADS, MAX_PENDING, MAX_FUSED, PLAN_CACHE)


def cache_dir() -> Path:
    """The folder of compiled kernels."""
    if CACHE_DIR.text():
        return Path(CACHE_DIR.text())
    import platformdirs  # imported here: it is needed by the first compile only

    return Path(platformdirs.user_cache_dir("pyflame", appauthor=False))
