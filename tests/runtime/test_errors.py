"""Status codes become errors that say what happened and what to do; absent drivers say what is missing."""

from __future__ import annotations

import platform
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import pyflame as pf
from pyflame.core import errors
from pyflame.core.errors import (
    AMDBackendError,
    AMDConfigurationError,
    AMDDeviceError,
    AMDDeviceFaultError,
    CompileError,
    DeviceError,
    DeviceFaultError,
    HIPCompilationError,
    NotAvailableError,
    OutOfMemoryError,
    PyFlameError,
    ROCmMemoryError,
    ROCmNotAvailableError,
)
from pyflame.core.targets import TARGETS
from pyflame.runtime.cuda.driver import CudaDriver
from pyflame.runtime.cuda.targets import target_of as cuda_target
from pyflame.runtime.gpu.driver import DeviceProperties, KernelArguments
from pyflame.runtime.rocm.driver import HipDriver
from pyflame.runtime.rocm.errors import CAUSES
from pyflame.runtime.rocm.targets import family_target, numbers, plain
from pyflame.runtime.rocm.targets import target_of as rocm_target
from pyflame.runtime.sim.hip.types import hipError_t


def answering(**answers: Any) -> Any:
    """A module of bindings whose functions always answer the same."""
    return SimpleNamespace(**{name: (lambda *_, a=answer: a) for name, answer in answers.items()})


# --- the tree ---------------------------------------------------------------------------------------------------------


def test_the_tree() -> None:
    for name in ("NotAvailableError", "DeviceFaultError", "ArgumentTypeError"):
        assert getattr(pf, name) is getattr(errors, name) and name in pf.__all__
    for name in (
        "AMDBackendError",
        "ROCmNotAvailableError",
        "AMDDeviceError",
        "HIPCompilationError",
        "ROCmMemoryError",
        "MatrixCoreError",
        "AMDOptimizationError",
        "AMDConfigurationError",
    ):
        assert issubclass(getattr(errors, name), AMDBackendError)
    assert issubclass(ROCmNotAvailableError, NotAvailableError) and issubclass(NotAvailableError, DeviceError)
    assert issubclass(AMDDeviceFaultError, DeviceFaultError) and issubclass(DeviceFaultError, DeviceError)
    assert issubclass(HIPCompilationError, CompileError) and issubclass(ROCmMemoryError, OutOfMemoryError)
    assert issubclass(ROCmMemoryError, MemoryError) and issubclass(AMDConfigurationError, ValueError)


# --- codes ------------------------------------------------------------------------------------------------------------

HIP = [
    (2, ROCmMemoryError, "smaller batch"),
    (3, ROCmNotAvailableError, "/dev/kfd"),
    (98, HIPCompilationError, "rocminfo"),
    (100, ROCmNotAvailableError, "HIP_VISIBLE_DEVICES"),
    (200, HIPCompilationError, "HSA_OVERRIDE_GFX_VERSION"),
    (218, HIPCompilationError, r"hipErrorInvalidKernelFile \(218\): .*clear_cache"),
    (712, AMDDeviceError, r"hipErrorHostMemoryAlreadyRegistered \(712\): .*pinned already"),
    (1052, AMDDeviceError, r"hipErrorRuntimeMemory \(1052\): .*ulimit"),
    (209, HIPCompilationError, "nothing for this GPU"),
    (500, HIPCompilationError, "no kernel of that name"),
    (700, AMDDeviceFaultError, "AMD_SERIALIZE_KERNEL=3"),
    (719, AMDDeviceFaultError, "another device"),
    (901, AMDDeviceError, "capture"),
    (31337, AMDDeviceError, r"status \(31337\)"),
]
CUDA = [
    (2, OutOfMemoryError, "smaller batch"),
    (3, NotAvailableError, "nvidia-smi"),
    (100, NotAvailableError, "CUDA_VISIBLE_DEVICES"),
    (200, CompileError, "sm number"),
    (209, CompileError, "nothing for this GPU"),
    (500, CompileError, "no kernel of that name"),
    (700, DeviceFaultError, "compute-sanitizer"),
    (716, DeviceFaultError, "multiple of what it loads"),
    (719, DeviceFaultError, "another device"),
    (31337, DeviceError, r"status \(31337\)"),
]


@pytest.mark.parametrize(("code", "error", "hint"), HIP)
def test_hip(code: int, error: type[PyFlameError], hint: str) -> None:
    driver = HipDriver(answering(hipDeviceSynchronize=(code,), hipModuleLaunchKernel=(code,)))
    with pytest.raises(error, match=rf"^\[rocm\] expected hipDeviceSynchronize to succeed but got .*{hint}") as caught:
        driver.synchronize()
    assert type(caught.value) is error
    with pytest.raises(error, match="hipModuleLaunchKernel"):
        driver.launch(None, (1, 1, 1), (1, 1, 1), 0, 0, KernelArguments([1]))


def test_codes_have_the_names_of_hip() -> None:
    assert {cause.name: cause.code for cause in CAUSES.values()} == {
        cause.name: int(hipError_t[cause.name]) for cause in CAUSES.values()
    }


@pytest.mark.parametrize(("code", "error", "hint"), CUDA)
def test_cuda(code: int, error: type[PyFlameError], hint: str) -> None:
    driver = CudaDriver(answering(cuCtxSynchronize=(code,)))
    with pytest.raises(error, match=rf"^\[cuda\] expected cuCtxSynchronize to succeed but got .*{hint}") as caught:
        driver.synchronize()
    assert type(caught.value) is error


def test_codes_that_are_answers() -> None:
    hip = HipDriver(answering(hipGetDeviceCount=(100, 0), hipEventQuery=(600,), hipDeviceEnablePeerAccess=(704,), hipSetDevice=(0,)))  # fmt: skip  # noqa: E501
    assert hip.count() == 0 and hip.event_query(1) is False
    hip.enable_peer(0, 1)
    assert HipDriver(answering(hipEventQuery=(0,))).event_query(1) is True
    with pytest.raises(AMDDeviceFaultError):
        HipDriver(answering(hipEventQuery=(700,))).event_query(1)
    assert CudaDriver(answering(cuInit=(100,))).count() == 0
    assert CudaDriver(answering(cuInit=(0,), cuDeviceGetCount=(0, 3))).count() == 3
    with pytest.raises(NotAvailableError, match="stub"):
        CudaDriver(answering(cuInit=(34,))).count()


def test_a_missing_library_is_not_available() -> None:
    def missing() -> None:
        raise RuntimeError("failed to dlopen 'libamdhip64.so'")

    with pytest.raises(ROCmNotAvailableError, match=r"expected to call hipGetDeviceCount but got: failed to dlopen"):
        HipDriver(SimpleNamespace(hipGetDeviceCount=missing)).count()


@pytest.mark.parametrize(("module", "driver", "extra"), [("rocm", HipDriver, "rocm"), ("cuda", CudaDriver, "cuda")])
def test_missing_bindings_name_the_extra(module: str, driver: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [n for n in sys.modules if n.startswith(f"{module}.")]  # by other tests
    for name in (module, f"{module}.bindings", f"{module}.bindings.hip", f"{module}.bindings.driver", *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    with pytest.raises(NotAvailableError, match=rf"pip install 'pyflame-rocm\[{extra}\]'"):
        driver().count()


def test_amd_has_no_bindings_for_other_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rocm", *[n for n in sys.modules if n.startswith("rocm.")]):  # other tests may have imported them
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(NotAvailableError, match=r"for x86-64 only, and this machine is riscv64$"):
        HipDriver().count()


# --- targets ----------------------------------------------------------------------------------------------------------


def properties(arch: str, **known: Any) -> DeviceProperties:
    values = {"total_memory": 1, "compute_units": 77, "wave_size": 32, "lds_per_block": 1234, "max_threads": 1024}
    return DeviceProperties(name="x", arch=plain(arch), arch_full=arch, clock_khz=1, pci_bus_id="", **values | known)


def test_gfx_names() -> None:
    assert plain("gfx90a:sramecc+:xnack-") == "gfx90a"
    assert [numbers(n) for n in ("gfx906", "gfx90a", "gfx1201", "gfx9")] == [(9, 0, 6), (9, 0, 10), (12, 0, 1), None]


def test_a_known_target_takes_the_devices_sizes() -> None:
    target = rocm_target(properties("gfx90a:sramecc+:xnack-", wave_size=64, lds_per_block=65536))
    assert (target.name, target.matrix_core, target.workers, target.wave_size) == ("gfx90a", "mfma", 77, 64)
    assert rocm_target(properties("gfx942", compute_units=0, wave_size=0)).workers == TARGETS["gfx942"].workers


@pytest.mark.parametrize(
    ("name", "wave", "matrix", "fp8"),
    [
        ("gfx1101", 32, "wmma", ""),
        ("gfx1150", 32, "wmma", ""),
        ("gfx1036", 32, "", ""),
        ("gfx90c", 64, "", ""),
        ("gfx1250", 32, "", ""),
        ("gfx941", 64, "mfma", "fnuz"),
    ],
)
def test_an_unknown_target_is_derived_with_a_warning(name: str, wave: int, matrix: str, fp8: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"does not know {name}"):
        target = family_target(name)
    assert (target.name, target.wave_size, target.matrix_core, target.fp8) == (name, wave, matrix, fp8)


@pytest.mark.parametrize("name", ["gfx803", "gfx", "", "sm_90", "gfx000"])
def test_a_target_that_cannot_be(name: str) -> None:
    with pytest.raises(AMDConfigurationError, match="expected a GPU of gfx9 or newer"):
        family_target(name)


def test_known_targets_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, target in TARGETS.items():
            if target.language == "hip":
                assert family_target(name) is target


def test_cuda_targets() -> None:
    assert cuda_target(properties("sm_90")).workers == 77
    assert (cuda_target(properties("sm_80")).fp8, cuda_target(properties("sm_100")).fp8) == ("", "ocp")
    with pytest.raises(NotAvailableError, match=r"7\.0 or newer"):
        cuda_target(properties("sm_61"))
