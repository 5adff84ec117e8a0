"""A real HIP runtime on a machine without a GPU (Debian's will do): enumeration, clean messages, and hiprtc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyflame.runtime.rocm.find import find
from tests.needs import amd_bindings, need


@pytest.fixture(autouse=True)
def bindings() -> None:
    amd_bindings()


ENUMERATE = """
from pyflame.core.errors import PyFlameError, ROCmNotAvailableError
from pyflame.runtime.rocm.device import ROCM
assert ROCM.driver.count() == ROCM.count() == 0
assert "hipErrorNoDevice" in ROCM.why_absent() and "/dev/kfd" in ROCM.why_absent()
try:
    ROCM.open(0)
except ROCmNotAvailableError as error:
    print(error)
try:
    ROCM.driver.alloc(16)
except PyFlameError as error:
    print(error)
print("HIP", ROCM.driver.version())
"""


NOTHING = """
import os
from pyflame.core.errors import ROCmNotAvailableError
from pyflame.runtime.rocm import find
from pyflame.runtime.rocm.device import ROCM
find.FOLDERS = ()
os.environ.pop("LD_LIBRARY_PATH", None)
os.environ["ROCM_PATH"] = "/nowhere"
print(ROCM.count())
print(ROCM.why_absent())
try:
    ROCM.open(0)
except ROCmNotAvailableError as error:
    print(error)
"""


COMPILE = """
from pyflame.core.errors import HIPCompilationError
from pyflame.core.targets import TARGETS
from pyflame.runtime.rocm.compiler import Hiprtc
hiprtc = Hiprtc()
text = "PF_GLOBAL(64) k_0(int64_t* x, int64_t n) {\\n  x[pf_thread()] = pf_ballot(pf_thread() < n);\\n}"
for name in ("gfx90a", "gfx1030"):
    code = hiprtc.build(text, TARGETS[name])
    assert code == hiprtc.build(text, TARGETS[name])
    print(name, code[:4], b"k_0" in code)
try:
    hiprtc.compile(text.replace("n);", "m);"), TARGETS["gfx90a"])
except HIPCompilationError as error:
    print(error)
if not hiprtc.knows(TARGETS["gfx942"]):
    try:
        hiprtc.compile(text, TARGETS["gfx942"])
    except HIPCompilationError as error:
        assert "which would end the process" in str(error)
"""


# All programs of `pyflame kernels`: every hand-written kernel and what is typically fused. Their kernels are collected
# first and compiled a few dozen at a time: most of a small file's time goes into headers.
EVERYTHING = """
import sys
from pyflame.cli.kernel_programs import PROGRAMS
from pyflame.cli.kernels import build
from pyflame.core.targets import TARGETS
from pyflame.engine.aot import build as aot
from pyflame.engine.graph_check import _SAME
from pyflame.runtime.rocm.compiler import Hiprtc
from pyflame.runtime.rocm.metadata import read_metadata
from pyflame.runtime.sources import include_dir

class Collected(Exception):
    pass

def collect(names, target):
    found.update(names)
    raise Collected

found, target = {_SAME: "same"}, TARGETS[sys.argv[1]]
aot.build = collect
for program in PROGRAMS:
    try:
        list(build([sys.argv[1]], [program]))
    except Collected:
        pass
files = {text.split('"')[1] for text in found if text.startswith("#include")}
others = ("_async",) if target.matrix_core else ("_async", "_mma")  # NVIDIA's own, and those of matrix cores
written = {path.name for path in include_dir().parent.glob("*.hip") if not path.stem.endswith(others)}
assert files == written, files ^ written
hiprtc = Hiprtc()
texts = sorted(found)
batches = [texts[at::6] for at in range(6)]
for batch in batches:
    code = hiprtc.build("\\n".join(text.replace("PF_KEY", found[text]) for text in batch), target, sys.argv[2:])
    kernels = read_metadata(code)
    for text in batch:
        assert any(name.startswith(found[text]) for name in kernels), text
    assert all(k.wave_size == target.wave_size for k in kernels.values())
print(len(found), "texts")
"""


USERS = """
import pyflame as pf
from pyflame.core.errors import HIPCompilationError
source = '''
#include <hip/hip_runtime.h>
extern "C" __global__ void __launch_bounds__(128) k(const float* x, float* y, int n) {
  extern __shared__ float room[];
  room[threadIdx.x] = expf(x[blockIdx.x * blockDim.x + threadIdx.x]) + exp(2.0f) + __shfl_xor(x[0], 1);
  __syncthreads();
  atomicAdd(&y[n], min(room[blockDim.x - 1 - threadIdx.x], pf_exp(3.0f)));
}
'''
for name in ("gfx90a", "gfx1030"):
    kernel = pf.compile_kernel(source, "k", target=name)
    print(kernel, kernel.resources.spills, [(p.nbytes, p.pointer) for p in kernel._kernel.metadata.parameters])
try:
    pf.compile_kernel(source.replace("min(", "mim("), "k", target="gfx90a")
except HIPCompilationError as error:
    print(error)
"""


def run(program: str, tmp_path: Path, *args: str) -> list[str]:
    """Lines of a program that sees an installed HIP; distributions ship it under a versioned name only."""
    need(find("amdhip64") or None, "a HIP runtime (Debian: apt-get install libamdhip64-5)")
    environment = {**os.environ, "PYFLAME_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("PYFLAME_HIP_CLANG", None)
    command = [sys.executable, "-c", program, *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have an AMD GPU")
def test_hip_without_a_gpu(tmp_path: Path) -> None:
    first, second, last = run(ENUMERATE, tmp_path)
    assert first.startswith("[rocm] expected hipGetDeviceCount to succeed but got hipErrorNoDevice (100)")
    assert second.startswith("[rocm] expected hipMalloc to succeed but got hipError")
    assert last.startswith("HIP ")


def test_no_hip_at_all(tmp_path: Path) -> None:
    lines = run(NOTHING, tmp_path)
    assert lines[0] == "0" and all("libamdhip64.so" in line for line in lines[1:])


@pytest.mark.slow
def test_hiprtc_compiles_without_a_gpu(tmp_path: Path) -> None:
    lines = run(COMPILE, tmp_path)
    assert lines[:2] == ["gfx90a b'\\x7fELF' True", "gfx1030 b'\\x7fELF' True"]
    assert "refused a kernel for gfx90a" in lines[2]
    assert any(line.startswith(">    3 |   x[pf_thread()] = pf_ballot(pf_thread() < m);") for line in lines)


@pytest.mark.slow(16)
@pytest.mark.parametrize(("target", "options"), [("gfx90a", ()), ("gfx1030", ("-O0",))], ids=["gfx90a", "gfx1030"])
def test_hiprtc_builds_every_kernel(target: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """As they are built for users, and, to save half of the time, with little optimisation for the other target."""
    (line,) = run(EVERYTHING, tmp_path, target, *options)
    assert int(line.split()[0]) > 50


@pytest.mark.slow
def test_hiprtc_builds_what_users_write(tmp_path: Path) -> None:
    lines = run(USERS, tmp_path)
    for name, line in zip(("gfx90a", "gfx1030"), lines, strict=False):
        assert line == (
            f"<BuiltKernel k(const float* x, float* y, int n) for {name}> 0 [(8, True), (8, True), (4, False)]"
        )
    assert any(line.startswith("kernel.hip:7:20: error:") for line in lines)
    assert any(line.startswith(">    7 |   atomicAdd(&y[n], mim(") for line in lines)
