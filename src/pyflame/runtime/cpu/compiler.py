"""The system's C compiler, its flags for this CPU, and compiled kernels as function addresses.

A plan's missing kernels are compiled in files of up to BATCH and in parallel: a kernel alone costs about 50 ms, one of
fifty in a file 8 ms. A small entry per kernel names the shared object that holds it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyflame.core import knobs
from pyflame.core.errors import CompileError
from pyflame.runtime.cache import DiskCache, digest, stats
from pyflame.runtime.sources import explain_failure, include_dir

BATCH = 24
# No -ffast-math: it flushes denormals for the whole process. -fwrapv: integer overflow wraps, as in NumPy.
BASE_FLAGS = (
    "-O2", "-std=gnu11", "-shared", "-fPIC", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-fwrapv", "-fno-semantic-interposition", "-w",
)  # fmt: skip
# gcc's names; clang vectorises at -O2 by itself and does not know the second.
_VECTORISE = ("-ftree-vectorize", "-fvect-cost-model=dynamic")
_ISA_FLAGS = {
    "avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c", "bmi2": "-mbmi2", "avx512f": "-mavx512f",
    "avx512bw": "-mavx512bw", "avx512dq": "-mavx512dq", "avx512vl": "-mavx512vl", "avx512_bf16": "-mavx512bf16",
    "avx512_fp16": "-mavx512fp16", "avx512_vnni": "-mavx512vnni", "amx_tile": "-mamx-tile", "amx_bf16": "-mamx-bf16",
    "amx_int8": "-mamx-int8",
}  # fmt: skip


def cpu_flags() -> tuple[str, ...]:
    """The instruction sets of this CPU that kernels use, as the kernel names them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    line = next((row for row in text.splitlines() if row.startswith("flags")), "")
    present = set(line.split())
    return tuple(name for name in _ISA_FLAGS if name in present)


def find_compiler() -> str | None:
    """Path of the C compiler, or None."""
    chosen = knobs.CC.text()
    if chosen:
        return shutil.which(chosen)
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return path
    return None


class CompilerC:
    """A C compiler and the kernels it has made, in memory and on disk."""

    def __init__(self, path: str, cache: DiskCache | None = None) -> None:
        self.path = path
        self.cache = cache or DiskCache()
        self._functions: dict[str, int] = {}
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._lock = threading.RLock()
        self.version, self.flags = self._probe()
        folder = include_dir()
        headers = b"".join(p.read_bytes() for p in sorted([*folder.glob("*.h"), *folder.parent.glob("*.c")]))
        self._salt = digest(self.version, " ".join(self.flags), headers)

    def _probe(self) -> tuple[str, tuple[str, ...]]:
        """The compiler's version and which of the wanted flags it knows; remembered on disk for this very binary."""
        real = os.path.realpath(self.path)
        status = os.stat(real)
        name = digest(
            "probe", real, str(status.st_mtime_ns), str(status.st_size), " ".join(cpu_flags()), " ".join(BASE_FLAGS)
        )
        known = self.cache.read(name)
        if known is not None:
            version, flags = json.loads(known)
            return version, tuple(flags)
        version = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        wanted = [*_VECTORISE, *(_ISA_FLAGS[f] for f in cpu_flags())]
        if "avx512f" in cpu_flags():
            wanted.append("-mprefer-vector-width=512")
        if platform.machine() in ("aarch64", "arm64"):
            wanted.append("-mcpu=native")
        flags = [*BASE_FLAGS, *wanted]
        if not self._accepts(flags):
            flags = [*BASE_FLAGS, *(f for f in wanted if self._accepts([*BASE_FLAGS, f]))]
        self.cache.write(name, json.dumps([version, flags]).encode())
        return version, tuple(flags)

    def _accepts(self, flags: Sequence[str]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.c"
            source.write_text("int pf_probe;\n")
            command = [self.path, *flags, str(source), "-o", str(Path(folder) / "probe.so")]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def key(self, text: str) -> str:
        """The name of a kernel with this text, compiled as we compile."""
        return digest(self._salt, text)

    def functions(self, texts: Sequence[tuple[str, Sequence[str]]]) -> list[list[int]]:
        """Addresses of each text's functions. A text defines functions PF_KEY<suffix>; suffixes are given with it."""
        keys = [self.key(text) for text, _ in texts]
        with self._lock:
            missing: dict[str, tuple[str, Sequence[str]]] = {}
            for key, (text, suffixes) in zip(keys, texts, strict=True):
                if all(key + s in self._functions for s in suffixes):
                    stats.memory_hits += 1
                elif key in missing:  # the same text again, perhaps with other functions of it
                    missing[key] = (text, tuple(dict.fromkeys((*missing[key][1], *suffixes))))
                else:
                    if self._from_disk(key, suffixes):
                        stats.disk_hits += 1
                    else:
                        stats.misses += 1
                        missing[key] = (text, suffixes)
            self._compile_missing(missing)
            return [
                [self._functions[key + s] for s in suffixes] for key, (_, suffixes) in zip(keys, texts, strict=True)
            ]

    def forget(self) -> int:
        """Forget every kernel, in memory and on disk; gives the bytes freed. Code stays loaded: a plan may run it."""
        with self._lock:
            self._functions.clear()
            return self.cache.clear()

    def _from_disk(self, key: str, suffixes: Sequence[str]) -> bool:
        entry = self.cache.read(key + ".kernel")
        if entry is None:
            return False
        library = entry.decode()
        path = self.cache.find(library)
        if path is None:
            return False
        try:
            self._load(library, path, key, suffixes)
        except (OSError, AttributeError):
            return False
        return True

    def _load(self, library: str, path: Path, key: str, suffixes: Sequence[str]) -> None:
        if library not in self._libraries:
            self._libraries[library] = ctypes.CDLL(str(path))
        for suffix in suffixes:
            function = getattr(self._libraries[library], f"k{key}{suffix}")
            self._functions[key + suffix] = ctypes.cast(function, ctypes.c_void_p).value or 0

    def _compile_missing(self, missing: dict[str, tuple[str, Sequence[str]]]) -> None:
        if not missing:
            return
        started = time.perf_counter()
        keys = list(missing)
        jobs = max(1, min(len(os.sched_getaffinity(0)), -(-len(keys) // 4)))
        size = min(BATCH, -(-len(keys) // jobs))
        # A text with macros of its own is a file of its own.
        single = [key for key in keys if "#define" in missing[key][0]]
        small = [key for key in keys if key not in single]
        batches = [[key] for key in single] + [small[i : i + size] for i in range(0, len(small), size)]
        with ThreadPoolExecutor(jobs) as workers:
            list(workers.map(lambda batch: self._compile_batch(batch, missing), batches))
        stats.compiles += len(keys)
        stats.compile_seconds += time.perf_counter() - started

    def _compile_batch(self, keys: Sequence[str], missing: dict[str, tuple[str, Sequence[str]]]) -> None:
        parts = ['#include "pf_abi.h"\n#include "pf_math.h"\n#include "pf_half.h"\n#include "pf_philox.h"\n']
        parts += [missing[key][0].replace("PF_KEY", "k" + key) for key in keys]
        library = digest(*sorted(keys)) + ".so"
        path = self.cache.write(library, self.build("\n".join(parts)))
        for key in keys:
            self._load(library, path, key, missing[key][1])
            self.cache.write(key + ".kernel", library.encode())

    def build(self, source: str) -> bytes:
        """Compile one C source to a shared object."""
        with tempfile.TemporaryDirectory(prefix="pyflame-") as folder:
            file = Path(folder) / "kernels.c"
            out = Path(folder) / "kernels.so"
            file.write_text(source)
            # Hand-written templates bring macros and gain from -O3; generated loops vectorise as well without it.
            level = ["-O3"] if "#define" in source else []
            folders = [f"-I{include_dir()}", f"-I{include_dir().parent}"]
            command = [self.path, *self.flags, *level, *folders, str(file), "-o", str(out), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileError(f"[compile] {self.path} refused a kernel:\n{explain_failure(done.stderr, source)}")
            return out.read_bytes()
