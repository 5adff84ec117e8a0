"""A real HIP runtime on a machine without a GPU (Debian's will do): enumeration, clean messages, and hiprtc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyflame.core.errors import ROCmNotAvailableError
from pyflame.runtime.rocm.device import ROCM

pytest.importorskip("rocm.bindings.hip", reason="rocm-bindings-hip is not installed")

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


COMPILE = """
from pyflame.core.errors import HIPCompilationError
from pyflame.core.targets import TARGETS
from pyflame.runtime.rocm.compiler import Hiprtc, find_compiler
hiprtc = Hiprtc()
text = "PF_GLOBAL(64) k_0(int64_t* x, int64_t n) {\\n  x[pf_thread()] = pf_ballot(pf_thread() < n);\\n}"
for name in ("gfx90a", "gfx1030"):
    code = hiprtc.build(text, TARGETS[name])
    assert code == hiprtc.build(text, TARGETS[name])
    print(name, code[:4], b"k_0" in code, type(find_compiler(TARGETS[name])).__name__)
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


def installed_hip() -> Path | None:
    """A HIP runtime, where the dynamic linker would look for it."""
    folders = [Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    found = [path for folder in folders for path in sorted(folder.glob("libamdhip64.so*"))]
    linked = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout.splitlines()
    found += [Path(line.split(" => ")[1]) for line in linked if "libamdhip64.so" in line]
    return next(iter(found), None)


def hip_folder(tmp_path: Path) -> Path:
    """A folder where AMD's bindings find a HIP runtime; distributions ship it under a versioned name only."""
    path = installed_hip()
    if path is None:
        pytest.skip("no libamdhip64 is installed (Debian: apt-get install libamdhip64-5)")
    for link in ("libamdhip64.so", "libhiprtc.so"):
        (tmp_path / link).symlink_to(path)
    return tmp_path


def run(program: str, tmp_path: Path) -> list[str]:
    """Lines of a program that sees an installed HIP."""
    folders = f"{hip_folder(tmp_path)}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {**os.environ, "LD_LIBRARY_PATH": folders, "PYFLAME_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("PYFLAME_HIP_CLANG", None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine may have an AMD GPU")
def test_hip_without_a_gpu(tmp_path: Path) -> None:
    first, second, last = run(ENUMERATE, tmp_path)
    assert first.startswith("[rocm] expected hipGetDeviceCount to succeed but got hipErrorNoDevice (100)")
    assert second.startswith("[rocm] expected hipMalloc to succeed but got hipError")
    assert last.startswith("HIP ")


def test_no_hip_at_all() -> None:
    if installed_hip():
        pytest.skip("HIP is installed")
    assert ROCM.count() == 0
    assert "libamdhip64.so" in ROCM.why_absent()
    with pytest.raises(ROCmNotAvailableError, match="libamdhip64"):
        ROCM.open(0)


def test_hiprtc_compiles_without_a_gpu(tmp_path: Path) -> None:
    lines = run(COMPILE, tmp_path)
    assert lines[:2] == ["gfx90a b'\\x7fELF' True Hiprtc", "gfx1030 b'\\x7fELF' True Hiprtc"]
    assert "refused a kernel for gfx90a" in lines[2]
    assert any(line.startswith(">    3 |   x[pf_thread()] = pf_ballot(pf_thread() < m);") for line in lines)
