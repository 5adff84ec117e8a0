"""HIP kernels to code objects by any clang with the AMDGPU target: no ROCm, no device libraries, no GPU needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache

from pyflame.core import knobs
from pyflame.core.device import Target
from pyflame.core.errors import HIPCompilationError
from pyflame.runtime.cache import DiskCache, digest
from pyflame.runtime.gpu.compiler import PREFIX, KernelCompiler
from pyflame.runtime.rocm.errors import refusal
from pyflame.runtime.rocm.find import CLANGS
from pyflame.runtime.rocm.metadata import CODE_OBJECT_VERSION
from pyflame.runtime.sources import explain_failure, include_dir, scratch_folder

# Device code only, as a bare ELF; neither HIP's headers nor its device libraries. -fwrapv: integers wrap, as in NumPy.
# -fsigned-char: HIP takes the `char` of the CPU it is compiled on, and that of aarch64 is unsigned. Code objects of
# version 5 are those that HIP 6.0 and newer load; a clang of today would make the next version.
FLAGS = (
    "-x", "hip", "-std=c++17", "-O3", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib",
    "-fwrapv", "-fsigned-char", "-fno-math-errno", "-w", f"-mcode-object-version={CODE_OBJECT_VERSION}",
)  # fmt: skip


def find_clang() -> str | None:
    """Path of a clang that builds for AMD GPUs, or None."""
    chosen = knobs.HIP_CLANG.text()
    if chosen:
        return shutil.which(chosen)
    return next((path for path in map(shutil.which, CLANGS) if path and _has_amdgpu(path)), None)


@lru_cache(maxsize=16)
def _has_amdgpu(path: str) -> bool:
    done = subprocess.run([path, "-print-targets"], capture_output=True, text=True, check=False)
    return bool(re.search(r"^\s*amdgcn\b", done.stdout, re.MULTILINE))


def _version(path: str, cache: DiskCache) -> str:
    """The compiler's version, remembered on disk for this very binary."""
    real = os.path.realpath(path)
    status = os.stat(real)
    name = digest("hip version", real, str(status.st_mtime_ns), str(status.st_size))
    known = cache.read(name)
    if known is not None:
        return str(json.loads(known))
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    cache.write(name, json.dumps(version).encode())
    return version


class ClangHip(KernelCompiler):
    """A clang, as a compiler of code objects (ELF)."""

    extension = ".hsaco"
    uncontracted = "-ffp-contract=off"

    def __init__(self, path: str | None = None, cache: DiskCache | None = None) -> None:
        found = path or find_clang()
        if found is None:
            raise HIPCompilationError(
                "[compile] expected a clang with the AMDGPU target but found none; install clang-17 or newer, or ROCm, "
                f"or name one in {knobs.HIP_CLANG.name}"
            )
        self.path = found
        cache = cache or DiskCache()
        super().__init__(_version(found, cache), " ".join(FLAGS), cache)

    def command(self, target: Target, file: str, out: str, options: Sequence[str] = ()) -> list[str]:
        """How a file is compiled for a target."""
        defines = [f"--offload-arch={target.name}", f"-DPF_WAVE={target.wave_size}"]
        folders = [f"-I{include_dir()}", f"-I{include_dir().parent}"]
        return [self.path, *FLAGS, *defines, *folders, *options, file, "-o", out]

    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        text = PREFIX + source
        with scratch_folder() as folder:
            file, out = folder / "kernels.hip", folder / "kernels.hsaco"
            file.write_text(text)
            command = self.command(target, str(file), str(out), options)
            # in a session of its own: Ctrl-C is for us, and kernels of other threads are compiled meanwhile
            done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
            if done.returncode:
                said = explain_failure(done.stderr, text)
                raise refusal(f"[compile] {self.path} refused a kernel for {target.name}:\n{said}", done.stderr, target)
            return out.read_bytes()
