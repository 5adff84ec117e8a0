"""Runs GPU programs on an NVIDIA GPU through NVIDIA's own bindings: NVRTC compiles, the driver launches.

A test's means, not a runtime: everything happens on the default stream of the first GPU.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import CompileError
from pyflame.core.targets import TARGETS
from pyflame.runtime.sources import explain_failure, include_dir
from tests.gpu.gemm_cases import Build, check
from tests.gpu.programs import Call, Program, named, symbol

try:
    from cuda.bindings import driver, nvrtc
except ImportError as error:
    driver = nvrtc = None
    _missing = f"cuda.bindings cannot be imported: {error}"

BATCH = 40  # kernels of a file: most of a small file's time goes into the headers
COMPILERS = 8
FAULTS = (214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719)  # after which a context does nothing more
HEAD = '#include "pf_gpu.h"\n'


def done(result: tuple[Any, ...]) -> Any:
    """What a call of the driver or of NVRTC gave behind its status."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"the GPU's driver says {status.name}")
    return values[0] if values else None


@functools.cache
def absent() -> str:
    """Why there is no GPU to be had, or nothing."""
    if driver is None:
        return _missing
    try:
        done(driver.cuInit(0))
        return "" if done(driver.cuDeviceGetCount()) > 0 else "there is no NVIDIA GPU"
    except RuntimeError as error:  # the bindings raise it too, for a driver that is not installed
        return f"there is no NVIDIA GPU: {error}"


def ended() -> str:
    """The fault that has ended this thread's context, or nothing."""
    if driver is None:
        return ""
    (status,) = driver.cuCtxSynchronize()
    return status.name if int(status) in FAULTS else ""


class Prepared:
    """A program whose memory lies on the GPU."""

    def __init__(self, gpu: Nvidia, program: Program) -> None:
        self.program = program
        image = program.image
        functions = [gpu.function(call.function) for call in program.calls]
        self.memory = done(driver.cuMemAlloc(image.nbytes))
        done(driver.cuMemcpyHtoD(self.memory, image.ctypes.data, image.nbytes))
        self._calls = [self._bound(f, call) for f, call in zip(functions, program.calls, strict=True)]

    def _bound(self, function: Any, call: Call) -> tuple[Any, ...]:
        kernel_args = call.placed(int(self.memory))
        places = np.arange(len(kernel_args), dtype=np.uint64) * np.uint64(8) + np.uint64(kernel_args.ctypes.data)
        # The driver reads each word through its own pointer. Both arrays must outlive the launch.
        if call.dynamic_lds:
            kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            done(driver.cuFuncSetAttribute(function, kind, call.dynamic_lds))
        return function, call.grid, call.block, call.dynamic_lds, int(places.ctypes.data), places, kernel_args

    def launch(self) -> None:
        for function, grid, block, lds, parameters, *_ in self._calls:
            done(driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, lds, 0, parameters, 0))

    def image(self) -> np.ndarray[Any, Any]:
        """The memory as it is now. Waits for the launches."""
        done(driver.cuCtxSynchronize())
        out = np.empty_like(self.program.image)
        done(driver.cuMemcpyDtoH(out.ctypes.data, self.memory, out.nbytes))
        return out

    def close(self) -> None:
        done(driver.cuMemFree(self.memory))

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Nvidia:
    """The first GPU, and the kernels compiled for it."""

    def __init__(self) -> None:
        done(driver.cuInit(0))
        self.device = done(driver.cuDeviceGet(0))
        self.context = done(driver.cuDevicePrimaryCtxRetain(self.device))
        done(driver.cuCtxSetCurrent(self.context))
        attributes = driver.CUdevice_attribute
        major = self.attribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self.attribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        units = self.attribute(attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.name = done(driver.cuDeviceGetName(256, self.device)).split(b"\0")[0].decode()
        hopper = (major, minor) == (9, 0)
        lds = self.attribute(attributes.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        core = TARGETS["sm_90"].matrix_core if hopper else "mma"
        self.target = replace(TARGETS["sm_90"], workers=units, lds_bytes=lds, matrix_core=core)
        self.options = [
            f"--gpu-architecture=sm_{major}{minor}{'a' if hopper else ''}".encode(),
            b"--std=c++17",
            f"-DPF_WAVE={self.target.wave_size}".encode(),
            f"--include-path={include_dir()}".encode(),
            f"--include-path={include_dir().parent}".encode(),
            b"--disable-warnings",
        ]
        self.functions: dict[str, Any] = {}
        self.refused: dict[str, CompileError] = {}
        self.modules: list[Any] = []

    def attribute(self, which: Any) -> int:
        return int(done(driver.cuDeviceGetAttribute(which, self.device)))

    def build(self, programs: Iterable[Program]) -> None:
        """Compile and load what these programs call and nobody has called before."""
        suffixes = {s.text: [p.suffix for p in s.phases] for program in programs for s in program.sources}
        known = self.functions.keys() | self.refused.keys()
        missing = [t for t, ends in suffixes.items() if symbol(t) + ends[0] not in known]
        batches = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
        with ThreadPoolExecutor(COMPILERS) as pool:  # the bindings let go of the interpreter's lock
            found = [part for parts in pool.map(self.compile_parts, batches) for part in parts]
        for texts, code in found:
            names = [symbol(t) + suffix for t in texts for suffix in suffixes[t]]
            if isinstance(code, CompileError):
                self.refused.update(dict.fromkeys(names, code))
                continue
            module = done(driver.cuModuleLoadData(code))
            self.modules.append(module)
            for name in names:
                self.functions[name] = done(driver.cuModuleGetFunction(module, name.encode()))

    def compile_parts(self, texts: Sequence[str]) -> list[tuple[Sequence[str], bytes | CompileError]]:
        """Kernels to cubins: one, or where a kernel is refused halves of halves, until it is alone."""
        try:
            return [(texts, self.compile(texts))]
        except CompileError as error:
            if len(texts) == 1:
                return [(texts, error)]
        half = len(texts) // 2
        return self.compile_parts(texts[:half]) + self.compile_parts(texts[half:])

    def compile(self, texts: Sequence[str]) -> bytes:
        """Kernels to one cubin."""
        source = HEAD + "\n".join(map(named, texts))
        program = done(nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], []))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(self.options), self.options)
        try:
            if int(status) == 0:
                # The bindings write into the bytes they are given, so they must be bytes of nobody else.
                code = b" " * done(nvrtc.nvrtcGetCUBINSize(program))
                done(nvrtc.nvrtcGetCUBIN(program, code))
                return code
            log = b" " * (done(nvrtc.nvrtcGetProgramLogSize(program)) + 1)
            done(nvrtc.nvrtcGetProgramLog(program, log))
        finally:
            done(nvrtc.nvrtcDestroyProgram(program))
        shown = re.sub(r"kernels\.cu\((\d+)\)", r"kernels.cu:\1", log.rstrip(b"\0 ").decode(errors="replace"))
        raise CompileError(f"[compile] NVRTC refused a kernel, {status.name}:\n{explain_failure(shown, source)}")

    def function(self, name: str) -> Any:
        if name in self.refused:
            raise self.refused[name]
        return self.functions[name]

    def run(self, program: Program) -> tuple[list[np.ndarray[Any, Any]], list[int]]:
        """The outputs, and the error record."""
        with Prepared(self, program) as prepared:
            prepared.launch()
            image = prepared.image()
        return program.results(image), program.error(image)


class Clock:
    """Seconds on the GPU between two points of a stream; 0 is the default one."""

    def __init__(self, stream: int = 0) -> None:
        self.stream = stream
        self.events = [done(driver.cuEventCreate(0)) for _ in range(2)]

    def __enter__(self) -> Clock:
        done(driver.cuEventRecord(self.events[0], self.stream))
        return self

    def __exit__(self, *_: object) -> None:
        done(driver.cuEventRecord(self.events[1], self.stream))

    def seconds(self) -> float:
        done(driver.cuEventSynchronize(self.events[1]))
        return float(done(driver.cuEventElapsedTime(*self.events))) / 1e3


def wrong_of(gpu: Nvidia, builds: dict[str, Build]) -> dict[str, str]:
    """What is wrong with each of these, run twice: threads that race rarely give the same twice."""
    cases = {name: build() for name, build in builds.items()}
    programs = {name: Program(case.outputs, gpu.target) for name, case in cases.items()}
    gpu.build(programs.values())
    wrong: dict[str, str] = {}
    for name, program in programs.items():
        try:
            results, error = gpu.run(program)
            again, _ = gpu.run(program)
            assert error == [0, 0, 0]
            check(results, cases[name])
            assert [r.tobytes() for r in results] == [r.tobytes() for r in again], "two runs differ"
        except CompileError as refused:
            wrong[name] = str(refused)[:600]
        except RuntimeError as fault:
            pytest.fail(f"{name}: {fault}\n" + "\n".join(s.text for s in program.sources))
        except AssertionError as difference:
            wrong[name] = " ".join(str(difference).split())[:300]
    return wrong
