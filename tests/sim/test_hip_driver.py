"""The host code of ROCm over the simulated HIP: devices, pool, streams, graphs, and faults as the user meets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import (
    AMDDeviceError,
    AMDDeviceFaultError,
    ArgumentError,
    DeviceError,
    DeviceFaultError,
    DeviceNameError,
    HIPCompilationError,
    NotAvailableError,
    ROCmMemoryError,
    ROCmNotAvailableError,
)
from pyflame.core.targets import TARGETS
from pyflame.engine import devices, services
from pyflame.runtime.gpu.compiler import Function
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.stream import Event
from pyflame.runtime.rocm.clang import ClangHip
from pyflame.runtime.rocm.driver import HipDriver
from pyflame.runtime.sim import device as sim
from tests.sim.machines import BODIES, fake_hip, image

MIB = 1 << 20


def no_compiler() -> Any:
    raise NotAvailableError("nothing is compiled here")


def open_device(driver: HipDriver, index: int = 0) -> GpuDevice:
    return GpuDevice(driver, no_compiler, index, ROCmMemoryError)


@pytest.fixture
def driver() -> HipDriver:
    return HipDriver(fake_hip(count=2, nbytes=64 * MIB, seed=5), "sim:gfx942")


@pytest.fixture
def device(driver: HipDriver) -> GpuDevice:
    return open_device(driver)


def functions(device: GpuDevice) -> dict[str, Function]:
    device.use()
    module = device.driver.load_module(image(*BODIES))
    return {name: Function(name, device.driver.get_function(module, name)) for name in BODIES}


def upload(device: GpuDevice, values: list[int]) -> Any:
    block = device.allocate(4 * len(values))
    device.upload(block.address, np.array(values, np.int32).tobytes())
    return block


def download(device: GpuDevice, block: Any, count: int) -> list[int]:
    out = np.empty(count, np.int32)
    device.download(out.ctypes.data, block.address, out.nbytes)
    return [int(v) for v in out]


def test_a_device_over_it(device: GpuDevice) -> None:
    assert device.id == DeviceId("sim", 0, "gfx942")
    assert (device.target.name, device.target.wave_size) == ("gfx942", 64)
    assert device.properties.arch_full == "gfx942:sramecc+:xnack-"
    info = device.info()
    assert (info["driver"], info["compiler"]) == ("7.15.26333", None)
    made = functions(device)
    a, b, out = upload(device, [1, 2, 3]), upload(device, [10, 20, 30]), device.allocate(12)
    device.launch(made["add"], 1, 64, 0, [out.address, a.address, b.address, 3])
    device.launch(made["increment"], 1, 64, 0, [out.address, 2])
    assert download(device, out, 3) == [12, 23, 33]
    assert device.attributes(made["add"]) == {"registers": 24, "lds_bytes": 0, "local_bytes": 16, "max_threads": 1024}
    device.zero(out.address, 8)
    device.copy(out.address, a.address, 4)
    device.synchronize()
    assert download(device, out, 3) == [1, 0, 33]


def test_large_transfers_in_pieces(device: GpuDevice) -> None:
    values = np.random.default_rng(0).integers(0, 1 << 30, 9 * MIB // 4 + 3, np.int32)
    block = upload(device, values.tolist())
    assert download(device, block, len(values)) == values.tolist()


def test_capture_and_replay(device: GpuDevice) -> None:
    made, x = functions(device), upload(device, [0])
    with device.capture() as graph:
        device.launch(made["increment"], 1, 64, 0, [x.address, 1])
        device.launch(made["increment"], 1, 64, 0, [x.address, 1])
    assert download(device, x, 1) == [0]
    for _ in range(3):
        graph.replay()
    assert download(device, x, 1) == [6]


def test_copies_between_devices(driver: HipDriver) -> None:
    here, there = open_device(driver, 0), open_device(driver, 1)
    assert there.reaches(here) and str(there.id) == "sim:gfx942:1"
    x, y = upload(here, [4, 5]), there.allocate(8)
    there.copy_from_peer(y.address, here, x.address, 8)
    del x  # its memory may be used again, behind the copy
    upload(here, [0, 0])
    assert download(there, y, 2) == [4, 5]


def test_devices_of_two_targets_do_not_reach_each_other(driver: HipDriver) -> None:
    """Devices of one number, behind two drivers."""
    elsewhere = open_device(HipDriver(fake_hip(), "sim:gfx1100"))
    second = open_device(driver, 1)
    assert second.reaches(open_device(driver, 0)) and not second.reaches(elsewhere)


def test_memory_runs_out(driver: HipDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_MEMORY_POOL", "cached")
    device = open_device(driver)
    held = [device.allocate(20 * MIB) for _ in range(3)]
    with pytest.raises(ROCmMemoryError, match=r"expected 20 MiB on sim:gfx942 but there is no room") as caught:
        device.allocate(20 * MIB)
    assert "PYFLAME_SIM_MEMORY_MB" in str(caught.value)
    assert device.pool.stats.out_of_memory == 1
    held.clear()
    device.allocate(60 * MIB)  # the cache is released for it
    assert device.pool.stats.retries == 2


def test_events_and_time(device: GpuDevice) -> None:
    first, last = Event(device, timing=True).record(), Event(device, timing=True).record()
    assert last.seconds_since(first) >= 0
    while not last.done:
        pass


def test_a_fault_reaches_the_user_with_its_report(driver: HipDriver) -> None:
    device, other = open_device(driver, 0), open_device(driver, 1)
    made, x = functions(device), upload(device, [1])
    stray = x.address + (64 << 20)
    device.launch(made["fault"], 1, 64, 0, [stray, 4])
    with pytest.raises(DeviceFaultError) as caught:
        device.synchronize()
    text = str(caught.value)
    assert isinstance(caught.value, AMDDeviceFaultError)
    assert "hipErrorIllegalAddress (700)" in text
    assert f"expected 4 bytes at {stray:#x} to lie in one allocation" in text
    assert "Device 0 stopped there and refuses all work" in text
    assert "Kernels launched last, newest first: fault" in text
    with pytest.raises(AMDDeviceFaultError, match="it broke before"):
        download(device, x, 1)
    assert download(other, upload(other, [3]), 1) == [3]
    driver.set_device(0)
    driver.reset()
    again = open_device(driver, 0)
    assert download(again, upload(again, [4]), 1) == [4]


@pytest.mark.parametrize(
    ("block", "lds", "error", "says"),
    [(2048, 0, AMDDeviceError, "at most 1024 threads"), (64, 70000, AMDDeviceError, "a block has 65536")],
)
def test_wrong_launches_say_what_is_wrong(device: GpuDevice, block: int, lds: int, error: type, says: str) -> None:
    made, x = functions(device), upload(device, [0])
    with pytest.raises(error, match=says):
        device.launch(made["increment"], 1, block, lds, [x.address, 1])
    device.launch(made["increment"], 1, 64, 0, [x.address, 1])
    assert download(device, x, 1) == [1]


def test_wrong_code_says_what_is_wrong(device: GpuDevice) -> None:
    device.use()
    with pytest.raises(HIPCompilationError, match="expected a code object but got garbage"):
        device.driver.load_module(image("damaged"))
    module = device.driver.load_module(image("add"))
    with pytest.raises(HIPCompilationError, match="did you mean 'add'"):
        device.driver.get_function(module, "and")
    device.driver.unload_module(module)
    with pytest.raises(AMDDeviceError, match="is no module, or one that was unloaded"):
        device.driver.get_function(module, "add")


# --- names and knobs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sim:gfx942", "sim:gfx1100", "sim:gfx942:1"])
def test_names(name: str) -> None:
    found = parse_device(name)
    assert str(found) == name and found.kind == "sim"
    assert parse_device(found) is found


def test_a_name_with_a_zero_is_the_same_device() -> None:
    assert parse_device("SIM:gfx942:0") is parse_device("sim:gfx942")
    assert str(DeviceId.of("rocm", 1)) == "rocm:1" and str(DeviceId("null", 0, "gfx942")) == "null:gfx942"


@pytest.mark.parametrize("name", ["sim", "sim:", "sim:gfx942:x", "sim::1"])
def test_names_without_a_target(name: str) -> None:
    with pytest.raises(DeviceNameError, match="expected a target after 'sim:'"):
        parse_device(name)


def test_targets_that_are_not_simulated() -> None:
    with pytest.raises(
        DeviceError,
        match=r"expected one of sim:gfx90a, sim:gfx942, .* but got 'sim:gfx1101'; did you mean 'sim:gfx1100'",
    ):
        pf.set_device("sim:gfx1101")
    with pytest.raises(DeviceError, match=r"expected one of sim:gfx942 but got sim:gfx942:7"):
        pf.set_device("sim:gfx942:7")


def test_devices_open_and_start_anew() -> None:
    name = parse_device("sim:gfx1100")
    opened = devices.get_device(name)
    assert opened.id is name and opened.target.wave_size == 32
    assert devices.get_device(name) is opened
    x = pf.tensor([1.0, 2.0], device="sim:gfx1100")
    assert x.numpy().tolist() == [1.0, 2.0]
    services.reset_device(name)
    assert devices.get_device(name) is not opened
    assert "sim:gfx1100" not in pf.devices()  # it is nothing that this machine has
    with pytest.raises(DeviceError, match="expected a simulated device but got rocm:0"):
        services.reset_device(parse_device("rocm"))
    with pytest.raises(AMDDeviceError, match=r"that were allocated at .* and freed"):
        x.numpy()


def test_knobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_SIM_DEVICES", "3")
    monkeypatch.setenv("PYFLAME_SIM_MEMORY_MB", "17")
    for text, bits in (("all", 3), ("none", 0), ("races", 2), ("races, uninitialised", 3)):
        monkeypatch.setenv("PYFLAME_SIM_CHECKS", text)
        assert sim.wanted_checks() == bits
    hip = sim._runtime("gfx1100")
    assert hip.hipGetDeviceCount()[1] == 3
    assert hip.hipDeviceTotalMem(2)[1] == 17 * MIB
    assert hip.gpus[0].machine.checks == 3  # type: ignore[attr-defined]
    first = {hip.hipMalloc(4)[1], sim._runtime("gfx942").hipMalloc(4)[1]}
    assert len(first) == 2  # no address means memory of two targets
    monkeypatch.setenv("PYFLAME_SIM_CHECKS", "race")
    with pytest.raises(ArgumentError, match=r"PYFLAME_SIM_CHECKS.*got 'race'; did you mean 'races'"):
        sim.wanted_checks()


@pytest.mark.parametrize("version", ["5.2.21150", "6.0.0"])
def test_a_runtime_that_is_too_old(driver: HipDriver, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    code = ClangHip().compile('extern "C" __attribute__((global)) void k() {}', TARGETS["gfx942"])
    monkeypatch.setattr(driver, "version", lambda: version)
    monkeypatch.setattr(driver._call.module, "hipModuleLoadData", lambda image: (200, 0))
    old = pytest.raises(ROCmNotAvailableError, match=r"HIP 6.0 or newer, .* of version 5, but got HIP 5.2.21150")
    with old if version < "6" else pytest.raises(HIPCompilationError, match="hipErrorInvalidImage"):
        driver.load_module(code)


@pytest.mark.parametrize(
    ("target", "gigabytes"),
    [("gfx90a", 1638), ("gfx942", 5300), ("gfx950", 8000), ("gfx1100", 960), ("gfx1201", 640)],
)
def test_peak_bandwidth_is_the_vendors(target: str, gigabytes: int) -> None:
    """From the clocks that HIP reports: of MI250X (one die), MI300X, MI355X, RX 7900 XTX and RX 9070 XT."""
    driver = HipDriver(fake_hip(target=target), f"sim:{target}")
    assert driver.properties(0).peak_bandwidth == pytest.approx(gigabytes * 1e9, rel=0.03)
