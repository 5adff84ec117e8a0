"""Kernels to code objects on AMD: hiprtc where it is installed and new enough for the GPU, else a clang."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

from pyflame.core import knobs
from pyflame.core.device import Target
from pyflame.core.errors import HIPCompilationError, PyFlameError, ROCmNotAvailableError
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.driver import Bindings
from pyflame.runtime.gpu.rtc import Names, RtcCompiler
from pyflame.runtime.rocm.clang import ClangHip, find_clang
from pyflame.runtime.rocm.driver import load_hip, no_bindings
from pyflame.runtime.rocm.errors import CAUSES, refusal
from pyflame.runtime.rocm.find import teach_bindings
from pyflame.runtime.rocm.metadata import CODE_OBJECT_VERSION
from pyflame.runtime.sources import include_dir

FLAGS = ("-std=c++17", "-O3", "-fwrapv", "-fno-math-errno", "-w")
_OLD_HIP = 6  # before it, hiprtc ends the process when it is asked for a target it does not know
_OLD_TARGETS = ("gfx906", "gfx908", "gfx90a", "gfx1010", "gfx1030")


def load_hiprtc() -> Any:
    """AMD's bindings to hiprtc."""
    try:
        teach_bindings()
        return importlib.import_module("rocm.bindings.hiprtc")
    except ImportError as error:
        raise no_bindings("hiprtc", error) from error


class Hiprtc(RtcCompiler):
    """hiprtc. `hiprtc`, `hip`: modules to use in place of AMD's bindings. `first`: whether it comes before clang, as it
    does if it is no old one, or if its runtime has a GPU, which must load the code."""

    extension = ".hsaco"
    uncontracted = "-ffp-contract=off"
    names = Names(
        "hiprtcCreateProgram",
        "hiprtcCompileProgram",
        "hiprtcDestroyProgram",
        "hiprtcGetProgramLogSize",
        "hiprtcGetProgramLog",
        "hiprtcGetCodeSize",
        "hiprtcGetCode",
    )

    def __init__(self, hiprtc: Any = None, hip: Any = None, cache: DiskCache | None = None) -> None:
        load = load_hiprtc if hiprtc is None else lambda: hiprtc
        call = Bindings("rocm", load, {}, ROCmNotAvailableError, ROCmNotAvailableError)
        major, minor = call("hiprtcVersion")
        # hiprtc's own number stood still for years; the runtime's tells which compiler it brings.
        runtime = Bindings(
            "rocm", load_hip if hip is None else lambda: hip, CAUSES, ROCmNotAvailableError, ROCmNotAvailableError
        )
        number = int(runtime("hipRuntimeGetVersion"))
        self.hip_major = number // 10_000_000
        self.first = self.hip_major >= _OLD_HIP or runtime.raw("hipGetDeviceCount")[-1] > 0
        super().__init__(call, f"hiprtc {major}.{minor} of HIP {number}", FLAGS, cache)

    def knows(self, target: Target) -> bool:
        """Whether it may be asked for this target at all."""
        return self.hip_major >= _OLD_HIP or target.name in _OLD_TARGETS

    def options(self, target: Target) -> list[bytes]:
        given = [
            f"--offload-arch={target.name}",
            *FLAGS,
            *([f"-mcode-object-version={CODE_OBJECT_VERSION}"] if self.hip_major >= _OLD_HIP else []),
            f"-DPF_WAVE={target.wave_size}",
            f"-I{include_dir()}",
            f"-I{include_dir().parent}",
        ]
        return [option.encode() for option in given]

    def compile(self, source: str, target: Target, options: Sequence[str] = ()) -> bytes:
        if not self.knows(target):
            raise HIPCompilationError(
                f"[compile] expected a hiprtc that knows {target.name} but got {self.version}, which would end the "
                "process; install a newer ROCm, or clang-17 or newer"
            )
        return super().compile(source, target, options)

    def _refusal(self, message: str, log: str, target: Target) -> HIPCompilationError:
        return refusal(message, log, target)

    def _text(self, raw: bytes) -> Any:
        return ctypes.create_string_buffer(raw)  # the bindings would keep every bytes object for ever

    def _room(self, nbytes: int) -> bytearray:
        return bytearray(nbytes)

    def _own(self, program: Any) -> Any:
        return program.createRef()


def find_compiler(target: Target, cache: DiskCache | None = None) -> KernelCompiler:
    """The compiler for a target: the clang named in PYFLAME_HIP_CLANG, else hiprtc, else any clang."""
    if knobs.HIP_CLANG.text():
        return ClangHip(cache=cache)
    try:
        hiprtc = Hiprtc(cache=cache)
        missing = "" if hiprtc.knows(target) else f"{hiprtc.version} does not know {target.name}"
    except PyFlameError as error:
        missing = str(error)
    clang = find_clang()
    if not missing and (hiprtc.first or clang is None):
        return hiprtc
    if clang is None:
        raise HIPCompilationError(
            f"[compile] expected hiprtc or a clang with the AMDGPU target but found neither ({missing}); install ROCm, "
            f"or clang-17 or newer, or name one in {knobs.HIP_CLANG.name}"
        )
    return ClangHip(cache=cache)
