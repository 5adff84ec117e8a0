"""The system's C compiler, its flags for this CPU, and compiled kernels as function addresses.

A kernel alone costs about 50 ms, one of fifty in a file 8 ms.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pyflame.core import knobs
from pyflame.core.errors import CompileError
from pyflame.runtime.cache import DiskCache, digest
from pyflame.runtime.cpu import arm, prebuilt
from pyflame.runtime.cpu.headers import INTRINSICS, ReadHeaders
from pyflame.runtime.kernels import KernelTable
from pyflame.runtime.sources import explain_failure, include_dir, scratch_folder

# No -ffast-math: it flushes denormals for the whole process. -fwrapv: integer overflow wraps, as in NumPy.
BASE_FLAGS = (
    "-O2", "-std=gnu11", "-shared", "-fPIC", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-fwrapv", "-fno-semantic-interposition", "-w",
)  # fmt: skip
# Hand-written templates bring macros and gain from -O3; generated loops vectorise as well without it. In these every
# number must have the same bits wherever it is computed again (`x == amax(x)`), so none is contracted: pf_math.h says
# where it wants an FMA.
_TEMPLATE_FLAGS, _GENERATED_FLAGS = ("-O3",), ("-ffp-contract=off",)
# gcc's names; clang vectorises at -O2 by itself and does not know the second.
_VECTORISE = ("-ftree-vectorize", "-fvect-cost-model=dynamic")
_ISA_FLAGS = {
    "avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c", "bmi2": "-mbmi2", "avx512f": "-mavx512f",
    "avx512bw": "-mavx512bw", "avx512dq": "-mavx512dq", "avx512vl": "-mavx512vl", "avx512_bf16": "-mavx512bf16",
    "avx512_fp16": "-mavx512fp16", "avx512_vnni": "-mavx512vnni", "amx_tile": "-mamx-tile", "amx_bf16": "-mamx-bf16",
    "amx_int8": "-mamx-int8",
}  # fmt: skip
# Compilers turn these on by themselves with what is built on them: who refuses one gets none of those.
_BASES = {
    **{name: "avx512f" for name in _ISA_FLAGS if name.startswith("avx512")},
    "amx_bf16": "amx_tile",
    "amx_int8": "amx_tile",
}
# aarch64: what -march is extended by. NEON ("asimd") is a part of it.
_ARM_EXTENSIONS = {
    "asimd": "simd", "atomics": "lse", "asimdhp": "fp16", "asimddp": "dotprod", "asimdfhm": "fp16fml", "bf16": "bf16",
    "i8mm": "i8mm", "sve256": "sve", "sve512": "sve",
}  # fmt: skip


def cpu_flags() -> tuple[str, ...]:
    """The instruction sets of this CPU that kernels use, as Linux names them; SVE with the length of its vectors."""
    present = arm.features() if platform.machine() == "aarch64" else _cpuinfo_flags()
    return tuple(name for name in (*_ISA_FLAGS, *_ARM_EXTENSIONS) if name in present)


def _cpuinfo_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    return set(next((row for row in text.splitlines() if row.startswith("flags")), "").split())


def _isa_options(isa: Sequence[str]) -> list[str]:
    """The compiler's options for these instruction sets. Never `native`: what is compiled is found again by them."""
    extensions = [_ARM_EXTENSIONS[name] for name in isa if name in _ARM_EXTENSIONS]
    options = [_ISA_FLAGS[name] for name in isa if name in _ISA_FLAGS]
    if "avx512f" in isa:
        options.append("-mprefer-vector-width=512")
    if extensions:
        # gcc has the intrinsics of dot products for 8.2 and later only; a CPU with them has what 8.2 asks for.
        options.append("-march=" + "+".join(("armv8.2-a" if "asimddp" in isa else "armv8-a", *extensions)))
    # Vectors in C of this length become SVE's; the code is wrong for any other.
    options += [f"-msve-vector-bits={name.removeprefix('sve')}" for name in isa if name.startswith("sve")]
    return options


def level_flags(level: str) -> list[str]:
    """What kernels of a wheel are compiled with, beside -O3."""
    used = next(levels[level][1] for levels in prebuilt.LEVELS.values() if level in levels)
    return [*BASE_FLAGS, *_VECTORISE, *_isa_options(used)]


def include_flags() -> list[str]:
    return [f"-I{include_dir()}", f"-I{include_dir().parent}"]


def kernel_files() -> bytes:
    """All that the texts of kernels may include."""
    folder = include_dir()
    return b"".join(p.read_bytes() for p in sorted([*folder.glob("*.h"), *folder.parent.glob("*.c")]))


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


class CompilerC(KernelTable[int]):
    """A C compiler and the kernels it has made, in memory and on disk, as addresses."""

    batch = 24
    extension = ".so"
    head = '#include "pf_abi.h"\n#include "pf_math.h"\n#include "pf_half.h"\n#include "pf_philox.h"\n\n'
    damaged = (OSError, AttributeError)

    def __init__(self, path: str, cache: DiskCache | None = None) -> None:
        self.path = path
        self.cache = cache or DiskCache()
        self.version, self.isa, flags = self._probe()
        self.flags = (*flags, *knobs.CPU_FLAGS.text().split())
        headers = kernel_files()
        super().__init__(self.cache, digest(self.version, " ".join((*self.flags, *_GENERATED_FLAGS)), headers))
        gcc = "clang" not in self.version
        self._headers = ReadHeaders(path, self.cache, digest(self.version, headers)) if gcc else None
        level = None if knobs.CPU_FLAGS.text() else prebuilt.level_of(self.isa)
        name = prebuilt.library_name(level, level_flags(level), headers) if level else ""
        self._prebuilt = prebuilt.open_library(prebuilt.folder() / name) if level else None

    def _probe(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The compiler's version, what it knows of this CPU's instruction sets, and the flags for that.

        Remembered on disk for this very binary.
        """
        real = os.path.realpath(self.path)
        status = os.stat(real)
        isa, extras = cpu_flags(), list(_VECTORISE)
        wanted = [*BASE_FLAGS, *extras, *_isa_options(isa)]
        name = digest("probe isa", real, str(status.st_mtime_ns), str(status.st_size), *wanted)
        known = self.cache.read(name)
        if known is None:
            version = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=False).stdout
            if not self._accepts(wanted):
                extras = [flag for flag in extras if self._accepts([*BASE_FLAGS, flag])]
                known_isa = {one for one in isa if self._accepts([*BASE_FLAGS, *_isa_options((one,))])}
                isa = tuple(one for one in isa if {one, _BASES.get(one, one)} <= known_isa)
            known = json.dumps([version.strip(), isa, [*BASE_FLAGS, *extras, *_isa_options(isa)]]).encode()
            self.cache.write(name, known)
        version, isa, flags = json.loads(known)
        return version, tuple(isa), tuple(flags)

    def _accepts(self, flags: Sequence[str]) -> bool:
        with scratch_folder() as folder:
            source = folder / "probe.c"
            source.write_text("int pf_probe;\n")
            command = [self.path, *flags, str(source), "-o", str(folder / "probe.so")]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def open(self, library: str) -> ctypes.CDLL | None:
        path = self.cache.find(library)
        return None if path is None else ctypes.CDLL(str(path))

    def _from_package(self, key: str, text: str, suffixes: Sequence[str]) -> bool:
        if self._prebuilt is None:
            return False
        name = prebuilt.kernel_name(text)
        try:
            found = {key + suffix: self._find(self._prebuilt, name + suffix) for suffix in suffixes}
        except AttributeError:  # not one of the wheel's
            return False
        self._functions.update(found)
        return True

    def _find(self, library: ctypes.CDLL, name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    def build(self, source: str) -> bytes:
        """Compile one C source to a shared object."""
        with scratch_folder() as folder:
            file = folder / "kernels.c"
            out = folder / "kernels.so"
            file.write_text(source)
            template = "#define" in source
            flags = [*self.flags, *(_TEMPLATE_FLAGS if template else _GENERATED_FLAGS), *include_flags()]
            command = [self.path, *flags, str(file), "-o", str(out), "-lm"]
            read = self._read_headers(source, template, flags)
            done = _ran([*command, *read])
            if done.returncode and read:
                done = _ran(command)
                if not done.returncode and self._headers is not None:
                    self._headers.give_up()
            if done.returncode:
                raise CompileError(f"[compile] {self.path} refused a kernel:\n{explain_failure(done.stderr, source)}")
            return out.read_bytes()

    def _read_headers(self, source: str, template: bool, flags: Sequence[str]) -> list[str]:
        if self._headers is None or not source.startswith(self.head):
            return []
        return self._headers.options(self.head + INTRINSICS * template, flags)


def _ran(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # In a session of its own: Ctrl-C is for us, and kernels of other threads are compiled meanwhile.
    return subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
