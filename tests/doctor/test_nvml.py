"""NVML by ctypes, against a library that is built here and fills the structs of nvml.h."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyflame.core.errors import NotAvailableError
from pyflame.doctor.monitor import nvml
from pyflame.doctor.monitor.nvidia_smi import NvidiaSmi
from tests.doctor.test_monitor import check_h200

# One H200 with two processes, of which one tells no bytes; one of them was busy since the beginning of time.
SOURCE = r"""
#include <string.h>
typedef unsigned u32; typedef unsigned long long u64;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { return status == 3 ? "Not Supported" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(u32 *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **h) { *h = (void *)0x123456789abcULL; return 0; }
static int bad(void *h) { return h != (void *)0x123456789abcULL; }  /* a handle that lost its upper half */
int nvmlDeviceGetName(void *h, char *s, u32 n) { strncpy(s, "NVIDIA H200", n); return bad(h); }
int nvmlDeviceGetPciInfo_v3(void *h, struct { char l[16]; u32 domain, bus, device, id, sub; char s[32]; } *p) {
  memset(p, 0, sizeof *p); p->bus = 0x41; return bad(h); }
int nvmlDeviceGetUtilizationRates(void *h, u32 *u) { u[0] = 97; u[1] = 40; return bad(h); }
int nvmlDeviceGetMemoryInfo(void *h, u64 *m) {
  m[0] = 141ULL << 30; m[1] = 140ULL << 30; m[2] = 1ULL << 30; return bad(h); }
int nvmlDeviceGetPowerUsage(void *h, u32 *x) { *x = 650000; return bad(h); }
int nvmlDeviceGetEnforcedPowerLimit(void *h, u32 *x) { *x = 700000; return bad(h); }
int nvmlDeviceGetClockInfo(void *h, int kind, u32 *x) { *x = kind == 1 ? 1980 : 0; return bad(h); }
int nvmlDeviceGetTemperature(void *h, int sensor, u32 *x) { *x = 55; return bad(h); }
int nvmlDeviceGetTotalEccErrors(void *h, int kind, int counter, u64 *x) { *x = kind; return counter ? 3 : bad(h); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, u64 *x) { *x = 0x1 | 0x4 | 0x40; return bad(h); }
struct info { u32 pid; u64 bytes; u32 instance, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *n, struct info *p) {
  if (*n < 2) { *n = 2; return 7; }
  *n = 2; p[0] = (struct info){1, 5ULL << 20, 0, 0}; p[1] = (struct info){2, ~0ULL, 0, 0}; return bad(h); }
struct use { u32 pid; u64 time; u32 sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *h, struct use *p, u32 *n, u64 since) {
  if (since >= 20) return 6;
  if (!p) { *n = 1; return 7; }
  p[0] = (struct use){1, 20, 30, 0, 0, 0}; return bad(h); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if cc is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(SOURCE)
    out = str(folder / "libnvidia-ml.so.1")
    subprocess.run([cc, "-w", "-shared", "-fPIC", str(folder / "nvml.c"), "-o", out], check=True)
    return out


def test_a_machine_without_nvidia_ml_py(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/comm").write_text("python\n")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("pyflame.doctor.monitor.nvidia_smi.Nvml", lambda: nvml.Nvml(library))
    smi = NvidiaSmi(tmp_path)
    check_h200(smi)


def test_errors(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = nvml.Nvml(library)
    handle = found.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError, match="nvmlDeviceGetTotalEccErrors: Not Supported"):
        found.nvmlDeviceGetTotalEccErrors(handle, 0, 1)
    with pytest.raises(nvml.NVMLError, match="not in this driver's NVML"):
        found._call("nvmlNoSuchFunction")
    with pytest.raises(NotAvailableError, match="expected NVIDIA's driver"):
        nvml.Nvml("libno-such-library.so")


def test_structs_and_names_are_those_of_the_package() -> None:
    real = pytest.importorskip("pynvml")
    pairs: dict[str, Any] = {
        "nvmlPciInfo_t": nvml.PciInfo,
        "c_nvmlUtilization_t": nvml.Utilization,
        "c_nvmlMemory_t": nvml.Memory,
        "c_nvmlProcessInfo_v2_t": nvml.ProcessInfo,
        "c_nvmlProcessUtilizationSample_t": nvml.ProcessUse,
    }
    for name, ours in pairs.items():
        theirs = getattr(real, name)
        assert ctypes.sizeof(theirs) == ctypes.sizeof(ours), name
        assert [f[0] for f in theirs._fields_] == [f[0] for f in ours._fields_], name
    for name, value in vars(nvml.Nvml).items():
        if name.startswith("NVML_"):
            assert getattr(real, name) == value, name
        elif name.startswith("nvml"):
            assert isinstance(getattr(real, name), Callable), name  # type: ignore[arg-type]
