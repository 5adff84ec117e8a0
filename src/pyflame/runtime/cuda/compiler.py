"""Kernels to cubins by NVRTC, through NVIDIA's `cuda.bindings`."""

from __future__ import annotations

import importlib
from typing import Any

from pyflame.core.device import Target
from pyflame.core.errors import NotAvailableError
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.gpu.driver import Bindings
from pyflame.runtime.gpu.rtc import Names, RtcCompiler
from pyflame.runtime.sources import include_dir

FLAGS = ("--std=c++17", "--disable-warnings")


def load_nvrtc() -> Any:
    """NVIDIA's bindings to NVRTC."""
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise NotAvailableError(
            f"[cuda] expected NVIDIA's bindings to NVRTC but got: {error}; pip install 'pyflame-rocm[cuda]'"
        ) from error


class Nvrtc(RtcCompiler):
    """NVRTC. `nvrtc`: a module to use in place of NVIDIA's bindings."""

    extension = ".cubin"
    uncontracted = "--fmad=false"
    names = Names(
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcDestroyProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
    )

    def __init__(self, nvrtc: Any = None, cache: DiskCache | None = None) -> None:
        load = load_nvrtc if nvrtc is None else lambda: nvrtc
        call = Bindings("cuda", load, {}, NotAvailableError, NotAvailableError)
        major, minor = call("nvrtcVersion")
        super().__init__(call, f"NVRTC {major}.{minor}", FLAGS, cache)

    def options(self, target: Target) -> list[bytes]:
        # Hopper's own instructions are to be had under a name of their own.
        own = "a" if target.matrix_core == "wgmma" else ""
        given = [
            f"--gpu-architecture={target.name}{own}",
            *FLAGS,
            f"-DPF_WAVE={target.wave_size}",
            f"--include-path={include_dir()}",
            f"--include-path={include_dir().parent}",
        ]
        return [option.encode() for option in given]

    def _text(self, raw: bytes) -> bytes:
        return raw

    def _room(self, nbytes: int) -> bytes:
        # The bindings write into the bytes they are given, so they must be bytes of nobody else.
        return b" " * nbytes if nbytes > 1 else b""

    def _own(self, program: Any) -> Any:
        return program
