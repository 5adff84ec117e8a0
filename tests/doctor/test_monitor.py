"""`pyflame monitor` and `pf.monitor`: built trees, fakes of the vendors' libraries, and threads that must end."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import json
import random
import shutil
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import ArgumentError
from pyflame.doctor.monitor import Gpu, Host, Process, Sample, Sampler
from pyflame.doctor.monitor import sampler as sampler_module
from pyflame.doctor.monitor.amd_smi import AmdSmi
from pyflame.doctor.monitor.nvidia_smi import NvidiaSmi
from pyflame.doctor.monitor.prometheus import Endpoint, metrics
from pyflame.doctor.monitor.summary import Totals
from pyflame.doctor.monitor.sysfs import AmdgpuFiles
from pyflame.doctor.monitor.view import View, sparkline
from pyflame.train import MachineMonitor
from tests.doctor.monitor_trees import BUS, card, gpu_metrics, host, process, write
from tests.train.runs import trainer

FACTS = json.loads((Path(__file__).parent / "facts" / "amdsmi.json").read_text())


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


# --- the driver's files -----------------------------------------------------------------------------------------------


def test_a_gpu_of_the_drivers_files(tmp_path: Path) -> None:
    card(tmp_path)
    write(tmp_path, {"sys/class/drm/card1/device/vendor": "0x10de", "sys/class/drm/version": "drm 1.1.0"})
    (gpu,), processes = AmdgpuFiles(tmp_path).read()
    assert gpu == Gpu(
        BUS, "Radeon RX 7900 XTX", 42.0, 3 << 30, 24 << 30, 1 << 20, 16 << 30, pytest.approx(210.0),
        pytest.approx(327.0), pytest.approx(2304.0), pytest.approx(74.0), (), 5, 1,
    )  # fmt: skip
    assert processes == []


def test_what_older_kernels_and_apus_lack(tmp_path: Path) -> None:
    names = [f"hwmon/hwmon4/{n}" for n in ("power1_average", "freq1_input", "temp2_label", "power1_cap")]
    changed: dict[str, Any] = dict.fromkeys([*names, "ras/umc_err_count", "ras/gfx_err_count", "product_name"])
    changed |= {"hwmon/hwmon4/power1_input": 9_000_000, "pp_dpm_sclk": "0: 200Mhz\n1: 1100Mhz *\n2: 2900Mhz"}
    card(tmp_path, gpu_metrics=gpu_metrics(1 << 36, (2, 3)), gpu_busy_percent="busy?", **changed)
    (gpu,), _ = AmdgpuFiles(tmp_path).read()
    assert gpu.name == "AMD 0x744c" and gpu.use is None and gpu.power == pytest.approx(9.0) and gpu.clock == 1100.0
    assert gpu.temperature == pytest.approx(61.0) and gpu.power_limit is None and gpu.ecc_corrected is None
    assert gpu.throttled == ("temperature",)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (gpu_metrics(0), ()),
        (gpu_metrics(1 | 1 << 17 | 1 << 40 | 1 << 56), ("power", "current", "temperature", "other")),
        (gpu_metrics(2**64 - 1), None),  # the driver does not know
        (b"\x00\x01\x01\x09" + bytes(200), None),  # a table of another form
        (b"\x78\x00\x01\x03" + bytes(20), None),  # cut off
        (b"", None),
    ],
)
def test_throttling(tmp_path: Path, table: bytes, told: tuple[str, ...] | None) -> None:
    card(tmp_path, gpu_metrics=table)
    assert AmdgpuFiles(tmp_path).read()[0][0].throttled == told


def test_processes_by_their_handles(tmp_path: Path) -> None:
    card(tmp_path)
    process(tmp_path, 77, "python", [("9", 2048, 10**9), ("9", 2048, 10**9), ("12", 1024, 0)])  # 9 is open twice
    process(tmp_path, 78, "idle", [("13", 0, 0)])
    write(tmp_path, {"proc/79/comm": "bash", "proc/79/fdinfo/1": "pos: 0"})
    files = AmdgpuFiles(tmp_path)
    assert files.read()[1] == [Process(BUS, 77, "python", 3 << 20), Process(BUS, 78, "idle", 0)]
    process(tmp_path, 77, "python", [("9", 4096, 60 * 10**9), ("9", 4096, 60 * 10**9), ("12", 1024, 0)])
    time.sleep(0.01)
    first, second = files.read()[1]
    assert (first.memory, first.use, second.use) == (5 << 20, 100.0, 0.0)  # more time than has passed: at most all


def test_memory_that_kfd_counts(tmp_path: Path) -> None:
    card(tmp_path)
    nodes = "sys/class/kfd/kfd/topology/nodes"
    properties = f"location_id {3 << 8}\ndomain 0"
    write(tmp_path, {f"{nodes}/0/gpu_id": 0, f"{nodes}/1/gpu_id": 4242, f"{nodes}/1/properties": properties})
    write(tmp_path, {"sys/class/kfd/kfd/proc/77/vram_4242": 7 << 30, "proc/77/comm": "train"})
    assert AmdgpuFiles(tmp_path).read()[1] == [Process(BUS, 77, "train", 7 << 30)]


def test_the_host(tmp_path: Path) -> None:
    host(tmp_path)
    with Sampler(tmp_path) as sampler:
        host(tmp_path, busy=175, idle=325)
        assert sampler.sample().host == Host(75.0, 4 << 30, 16 << 30)
    with Sampler(tmp_path / "nothing") as sampler:
        assert sampler.sample() == Sample(pytest.approx(time.time(), abs=60), Host())


def test_files_that_vanish(tmp_path: Path) -> None:
    """A GPU and a process that go away between two samples, or while one is taken, are left out."""
    host(tmp_path)
    gone, stays = card(tmp_path, 0), card(tmp_path, 1, "0000:83:00.0")
    process(tmp_path, 77, "python", [("9", 2048, 10**9)])
    with Sampler(tmp_path) as sampler:
        assert len(sampler.sample().gpus) == 2
        ended = threading.Event()

        def destroy() -> None:
            shutil.rmtree(tmp_path / "proc/77")
            shutil.rmtree(gone)
            for name in ("mem_info_vram_used", "hwmon", "ras"):
                target = stays / name
                shutil.rmtree(target) if target.is_dir() else target.unlink()
            ended.set()

        thread = threading.Thread(target=destroy)
        thread.start()
        while not ended.is_set():
            sampler.sample()
        thread.join()
        (gpu,) = sampler.sample().gpus
        assert gpu.use == 42.0 and gpu.memory_used is None and gpu.power is None and not sampler.notes


def test_damaged_trees(tmp_path: Path) -> None:
    """Whatever the files hold, samples are taken and no source fails."""
    rng = random.Random(0)
    for number in range(60):
        root = tmp_path / str(number)
        host(root)
        card(root, 0)
        card(root, 1, "0000:83:00.0")
        process(root, 77, "python", [("9", 2048, 10**9)])
        nodes = "sys/class/kfd/kfd/topology/nodes"
        write(
            root, {f"{nodes}/1/gpu_id": 4242, f"{nodes}/1/properties": "location_id 768", "sys/class/kfd/kfd/proc/x": 1}
        )
        files = sorted(p for p in root.rglob("*") if not p.is_symlink())
        for path in rng.sample(files, 12):
            if path.is_file():
                path.write_bytes(
                    rng.choice([b"", b"nan", b"-1", b"9" * 400, b"1e999", rng.randbytes(40), b"cpu  1 2\n"])
                )
            elif path.exists() and rng.random() < 0.3:
                shutil.rmtree(path)
        with Sampler(root) as sampler:
            json.dumps([sampler.sample().to_json(), sampler.sample().to_json()], allow_nan=False)
            metrics(sampler.sample())
            assert not sampler.notes, (number, sampler.notes)


# --- AMD's library ----------------------------------------------------------------------------------------------------


class _Struct:
    """The fields that AMD's stub has; those not set are the largest number, which means that they are not known."""

    def __init__(self, kind: str, **values: Any) -> None:
        assert set(values) <= set(FACTS["structs"][kind]), kind
        fields = dict.fromkeys(FACTS["structs"][kind], 2**64 - 1)
        self.__dict__.update({**fields, **values})


def fake_amdsmi(gpus: dict[int, dict[str, dict[str, Any]]], broken: tuple[str, ...] = ()) -> types.ModuleType:
    """`rocm.bindings.amdsmi` over the values of structs by handle; calls are checked against AMD's stub."""
    module: Any = types.ModuleType("rocm.bindings.amdsmi")
    module.calls = []
    for name, members in FACTS["enums"].items():
        setattr(module, name, types.SimpleNamespace(**{m: n for n, m in enumerate(members)}))
    for kind in FACTS["structs"]:
        allocate = lambda kind=kind: _Struct(kind)  # noqa: E731
        setattr(module, kind, types.SimpleNamespace(allocate=allocate))

    def fill(name: str, args: tuple[Any, ...]) -> Any:
        if name == "amdsmi_get_socket_handles" or name == "amdsmi_get_processor_handles":
            handles = [1] if name == "amdsmi_get_socket_handles" else list(gpus)
            *_, count, out = args
            assert out is None or len(out) >= len(handles)
            count[0] = len(handles)
            for at, handle in enumerate(handles if out is not None else ()):
                out[at] = handle
        elif name == "amdsmi_get_temp_metric":
            args[3][0] = 66
        elif name in ("amdsmi_get_gpu_device_bdf", "amdsmi_get_gpu_metrics_info"):
            kind = "amdsmi_bdf_t" if name.endswith("bdf") else "amdsmi_gpu_metrics_t"
            args[1].__dict__.update(gpus[args[0]].get(kind, {}))
        elif FACTS["functions"][name]["returns"] == 2:
            kind = FACTS["functions"][name]["value"]
            return _Struct(kind, **gpus[args[0]].get(kind, {}))
        return None

    def call(name: str, *args: Any) -> tuple[Any, ...]:
        module.calls.append(name)
        assert len(args) == len(FACTS["functions"][name]["parameters"]), name
        value = fill(name, args)
        return (1 if name in broken else 0, value)[: FACTS["functions"][name]["returns"]]

    for name in FACTS["functions"]:
        setattr(module, name, lambda *args, name=name: call(name, *args))
    return module  # type: ignore[no-any-return]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, types.ModuleType], None]:
    def put(name: str, module: types.ModuleType) -> None:
        for part in ("rocm", "rocm.bindings") if name.startswith("rocm") else ():
            monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
        monkeypatch.setitem(sys.modules, name, module)

    return put


MI300X: dict[str, dict[str, Any]] = {
    "amdsmi_asic_info_t": {"market_name": "AMD Instinct MI300X"},
    "amdsmi_engine_usage_t": {"gfx_activity": 88},
    "amdsmi_vram_usage_t": {"vram_used": 1024, "vram_total": 196592},
    "amdsmi_power_info_t": {"socket_power": 2**32 - 1, "current_socket_power": 612, "power_limit": 750_000_000},
    "amdsmi_clk_info_t": {"clk": 2100},
    "amdsmi_error_count_t": {"correctable_count": 4, "uncorrectable_count": 0},
    "amdsmi_bdf_t": {"as_uint": 0x03 << 8},
    "amdsmi_gpu_metrics_t": {"ppt_residency_acc": 10, "socket_thm_residency_acc": 5},
}


def test_amdsmi(tmp_path: Path, install: Callable[..., None]) -> None:
    module = fake_amdsmi({7: MI300X})
    install("rocm.bindings.amdsmi", module)
    card(tmp_path)
    process(tmp_path, 77, "python", [("9", 2048, 10**9)])
    smi = AmdSmi(tmp_path)
    (gpu,), processes = smi.read()
    assert gpu == Gpu(
        BUS, "AMD Instinct MI300X", 88.0, 1 << 30, 196592 << 20, 1 << 20, 16 << 30, 612.0, pytest.approx(750.0), 2100.0,
        66.0, (), 4, 0,
    )  # fmt: skip
    assert [p.pid for p in processes] == [77]
    MI300X["amdsmi_gpu_metrics_t"]["ppt_residency_acc"] += 1  # the limit of power was in force since
    assert smi.read()[0][0].throttled == ("power",)
    assert smi.read()[0][0].throttled == ()
    smi.close()
    assert module.calls[0] == "amdsmi_init" and module.calls[-1] == "amdsmi_shut_down"  # type: ignore[attr-defined]


def test_what_amdsmi_does_not_tell_the_files_do(tmp_path: Path, install: Callable[..., None]) -> None:
    silent = tuple(n for n in FACTS["functions"] if n.startswith("amdsmi_get_") and not n.endswith(("handles", "bdf")))
    install("rocm.bindings.amdsmi", fake_amdsmi({7: {"amdsmi_bdf_t": {"as_uint": 0x03 << 8}}}, silent))
    card(tmp_path)
    (below,), _ = AmdgpuFiles(tmp_path).read()
    (gpu,), _ = AmdSmi(tmp_path).read()
    assert gpu.name == "AMD GPU" and gpu == Gpu(BUS, "AMD GPU").filled_from(below)
    assert gpu.use == 42.0 and gpu.throttled == ()


def test_amdsmi_without_a_driver(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    install("rocm.bindings.amdsmi", fake_amdsmi({}, ("amdsmi_init",)))
    with Sampler() as sampler:
        assert "driver" in sampler.notes["amdsmi"] and sampler.sample().host.memory_total


def test_the_bindings_of_amdsmi_themselves() -> None:
    """Where they are installed, they have what the facts say; where not, the sampler says how to get them."""
    if importlib.util.find_spec("rocm") is None:
        with Sampler() as sampler:
            assert "pyflame-rocm[rocm]" in sampler.notes["amdsmi"]
        return
    module = pytest.importorskip("rocm.bindings.amdsmi")
    assert all(hasattr(module, name) for name in FACTS["functions"])
    for name, members in FACTS["enums"].items():
        assert set(members) <= set(getattr(module, name).__members__)
    for name, fields in FACTS["structs"].items():
        assert all(hasattr(getattr(module, name), field) for field in fields)


# --- NVIDIA's library -------------------------------------------------------------------------------------------------


class _NVMLError(Exception):
    pass


def _unsupported(*_: Any) -> Any:
    raise _NVMLError("Not Supported")


def fake_pynvml(**changed: Any) -> types.ModuleType:
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = _NVMLError
    place = types.SimpleNamespace(domain=0, bus=0x41, device=0)
    running = [types.SimpleNamespace(pid=1, usedGpuMemory=5 << 20), types.SimpleNamespace(pid=2, usedGpuMemory=None)]
    uses = [types.SimpleNamespace(pid=1, timeStamp=t, smUtil=u) for t, u in ((20, 30), (10, 90))]
    functions: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetPciInfo": lambda handle: place,
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=97, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda handle, version=None: types.SimpleNamespace(used=1 << 30, total=141 << 30),
        "nvmlDeviceGetPowerUsage": lambda handle: 650_000,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetClockInfo": lambda handle, type: 1980,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 55,
        "nvmlDeviceGetTotalEccErrors": lambda handle, errorType, counterType: errorType,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x1 | 0x4 | 0x40,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: running,
        "nvmlDeviceGetProcessUtilization": lambda handle, timeStamp: [u for u in uses if u.timeStamp > timeStamp],
        **changed,
    }
    constants = {"NVML_CLOCK_SM": 1, "NVML_TEMPERATURE_GPU": 0, "NVML_VOLATILE_ECC": 0}
    constants |= {"NVML_MEMORY_ERROR_TYPE_CORRECTED": 0, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1}
    module.__dict__.update(functions, **constants)
    return module  # type: ignore[no-any-return]


def check_h200(smi: NvidiaSmi) -> None:
    """What it reads of the GPU that `fake_pynvml` and the library of test_nvml.py pretend to have."""
    (gpu,), processes = smi.read()
    assert gpu == Gpu(
        "0000:41:00.0", "NVIDIA H200", 97.0, 1 << 30, 141 << 30, None, None, 650.0, 700.0, 1980.0, 55.0,
        ("power", "temperature"), 0, 1,
    )  # fmt: skip
    assert processes == [Process(gpu.bus, 1, "python", 5 << 20, 30.0), Process(gpu.bus, 2, "?")]
    assert smi.read()[1][0].use is None  # nothing newer
    smi.close()


def test_nvml(tmp_path: Path, install: Callable[..., None]) -> None:
    write(tmp_path, {"proc/1/comm": "python"})
    install("pynvml", fake_pynvml())
    smi = NvidiaSmi(tmp_path)
    check_h200(smi)


def test_nvml_that_supports_little(install: Callable[..., None]) -> None:
    module = fake_pynvml()
    for name in vars(module):
        if name.startswith("nvmlDeviceGet") and not name.endswith(("Count", "ByIndex")):
            setattr(module, name, _unsupported)
    install("pynvml", module)
    assert NvidiaSmi().read() == ([Gpu("cuda:0", "NVIDIA GPU")], [])
    install("pynvml", fake_pynvml(nvmlDeviceGetHandleByIndex=_unsupported))  # it has fallen off the bus
    assert NvidiaSmi().read() == ([], [])
    install("pynvml", fake_pynvml(nvmlDeviceGetCount=_unsupported))
    with Sampler() as sampler:
        assert sampler.sample().gpus == () and sampler.notes["NVML"] == "Not Supported"


def test_the_fake_is_as_the_real_package() -> None:
    real = pytest.importorskip("pynvml")
    for name, value in vars(fake_pynvml()).items():
        if name.startswith("nvml"):
            parameters = [p for p in inspect.signature(value).parameters if p != "_"]
            assert list(inspect.signature(getattr(real, name)).parameters) == parameters, name
        elif name.startswith("NVML_"):
            assert getattr(real, name) == value, name
    assert hasattr(real, "nvmlDeviceGetTemperatureV") and hasattr(real, "nvmlDeviceGetCurrentClocksEventReasons")


# --- summaries --------------------------------------------------------------------------------------------------------


def _seen(power: float | None, used: int, use: float | None, throttled: tuple[str, ...] | None = ()) -> Sample:
    gpu = Gpu(BUS, "x", use, used, 100, power=power, temperature=used / 10, throttled=throttled)
    return Sample(0.0, Host(50.0, used, 100), (gpu,))


def test_summaries() -> None:
    totals = Totals()
    for at, sample in (
        (10.0, _seen(100.0, 5, 20.0)),
        (12.0, _seen(200.0, 9, None)),
        (13.0, _seen(0.0, 7, 40.0, ("power",))),
    ):
        totals.add(sample, at)
    found = totals.summary()
    (gpu,) = found.gpus
    assert (found.seconds, found.samples, found.mean_cpu_use, found.peak_host_memory) == (3.0, 3, 50.0, 9)
    assert (gpu.mean_use, gpu.peak_memory, gpu.mean_power, gpu.max_power) == (30.0, 9, 100.0, 200.0)
    assert gpu.energy == 2 * 150.0 + 1 * 100.0 and gpu.throttled == pytest.approx(1 / 3)
    assert "energy 400 J" in str(found) and json.dumps(found.to_json())
    assert Totals().summary().gpus == () and "0 samples" in str(Totals().summary())


# --- the thread -------------------------------------------------------------------------------------------------------


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "pyflame monitor"]


def test_watching_a_program(tmp_path: Path) -> None:
    host(tmp_path)
    card(tmp_path)
    log = tmp_path / "run" / "gpu.jsonl"
    with pf.monitor(0.01, log=log, root=tmp_path) as watching:
        until(lambda: len(watching.samples) >= 3)
        assert watching.running and len(log.read_text().splitlines()) >= 3  # flushed
        card(tmp_path, mem_info_vram_used=20 << 30)
        seen = len(watching.samples)
        until(lambda: len(watching.samples) > seen + 1)
    assert not watching.running and not threads()
    found = watching.summary()
    assert found.gpus[0].peak_memory == 20 << 30 and found.gpus[0].energy and not found.failures
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines == watching.samples and lines[0]["gpus"][0]["gpu"] == 0 and len(lines) == found.samples
    window = watching.window()
    assert window.samples == found.samples and watching.window().samples == 0
    with watching:  # again, into the same file
        pass
    assert len(log.read_text().splitlines()) > len(lines)


def test_samples_are_bounded(tmp_path: Path) -> None:
    host(tmp_path)
    with pf.monitor(0.001, keep=2, root=tmp_path) as watching:
        until(lambda: watching.summary().samples > 5)
    assert len(watching.samples) == 2


def test_a_forgotten_monitor_ends(tmp_path: Path) -> None:
    pf.monitor(0.01, root=tmp_path).start()
    gc.collect()
    until(lambda: not threads())


def test_nothing_reaches_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pf.monitor(0.01, log=tmp_path / "taken" / "gpu.jsonl", root=tmp_path) as watching:
        until(lambda: watching.summary().failures >= 2)
    assert "taken" in watching.summary().error and watching.summary().samples >= 2

    def broken(self: object) -> Sample:
        raise ZeroDivisionError

    monkeypatch.setattr(sampler_module.Sampler, "sample", broken)
    with pf.monitor(0.01, root=tmp_path) as watching:
        until(lambda: watching.summary().failures >= 2)
    assert watching.summary().error == "ZeroDivisionError" and watching.samples == []


def test_a_source_that_fails_again_and_again(install: Callable[..., None]) -> None:
    install("pynvml", fake_pynvml(nvmlDeviceGetCount=_unsupported))
    with pf.monitor(0.01) as watching:
        until(lambda: watching.summary().failures >= 3)
    assert watching.summary().error == "Not Supported" and watching.summary().samples >= 3


def test_intervals() -> None:
    for interval in (0.0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(ArgumentError, match="interval"):
            pf.monitor(interval)


@pytest.mark.slow
def test_the_trainers_callback(tmp_path: Path) -> None:
    host(tmp_path)
    card(tmp_path, mem_info_vram_used=5 << 30)
    watching = MachineMonitor(0.001, root=str(tmp_path))
    log = tmp_path / "log.jsonl"
    run = trainer(callbacks=[watching], log=log, max_steps=8, log_every=4)
    run.fit()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    told = [r for r in records if r["event"] == "train" and "gpu0_peak_memory" in r]
    assert told and told[0]["gpu0_peak_memory"] == 5 << 30 and told[0]["gpu0_use"] == 42.0
    assert watching.summary is not None and watching.summary.gpus[0].mean_power == pytest.approx(210.0)
    assert not threads()


# --- the command ------------------------------------------------------------------------------------------------------


def test_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host(tmp_path)
    card(tmp_path, gpu_metrics=gpu_metrics(1))
    process(tmp_path, 77, "train.py", [("9", 2048, 10**9)])
    assert main(["monitor", "--once", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for word in (
        "RX 7900 XTX",
        "42%",
        "3.0/24.0 GB",
        "210/327 W",
        "2304 MHz",
        "74 °C",
        "power",
        "5/1",
        "train.py",
    ):
        assert word in out, word


def test_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "--once", "--root", str(tmp_path)]) == 0
    assert "no GPU" in capsys.readouterr().out


def test_logging_and_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host(tmp_path)
    log = tmp_path / "log.jsonl"
    options = ["monitor", "--root", str(tmp_path), "--interval", "0.01", "--log", str(log), "--prometheus", "0"]
    assert main([*options, "--samples", "3"]) == 0
    assert [json.loads(line)["host"]["memory_total"] for line in log.read_text().splitlines()] == [16 << 30] * 3
    assert "http://127.0.0.1:" in capsys.readouterr().out
    assert main(["monitor", "--once", "--log", str(tmp_path / "no" / "folder"), "--root", str(tmp_path)]) == 1
    for wrong in (
        ["--interval", "0"],
        ["--interval", "inf"],
        ["--prometheus", "80000"],
        ["--samples", "0"],
        ["--root", str(tmp_path / "nothing")],
    ):
        with pytest.raises(SystemExit):
            main(["monitor", *wrong])


def test_a_terminal(tmp_path: Path) -> None:
    view, console = View(), Console(width=160, force_terminal=True, record=True)
    for use in (0.0, 50.0, 100.0):
        sample = Sample(0.0, Host(use, 1, 2), (Gpu(BUS, "a GPU", use, power=use),))
        console.print(view.draw(sample))
    assert console.export_text().splitlines()[-1].count(sparkline([0.0, 50.0, 100.0])) == 2  # use and power


def test_prometheus() -> None:
    name = 'a "quoted" \\ name'
    gpu = Gpu(BUS, name, 42.0, 5, 9, power=70.0, throttled=("power",), ecc_uncorrected=0)
    latest: list[Sample] = []
    endpoint = Endpoint(0, lambda: latest[-1] if latest else None)
    try:
        url = f"http://127.0.0.1:{endpoint.port}"
        assert urllib.request.urlopen(f"{url}/metrics").read() == b""  # no sample yet
        latest.append(Sample(0.0, Host(50.0, 3, 4), (gpu,), (Process(BUS, 77, "python", 5, 12.0),)))
        text = urllib.request.urlopen(f"{url}/metrics").read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/other")
    finally:
        endpoint.close()
    found = {f.name: f.samples[0] for f in text_string_to_metric_families(text)}
    assert found["pyflame_gpu_use_ratio"].value == 0.42
    assert found["pyflame_gpu_use_ratio"].labels == {"gpu": "0", "bus": BUS, "name": name}
    assert found["pyflame_gpu_throttled"].value == 1 and found["pyflame_gpu_ecc_uncorrected_errors"].value == 0
    assert found["pyflame_process_gpu_memory_bytes"].labels == {"gpu": "0", "pid": "77", "name": "python"}
    assert found["pyflame_host_cpu_use_ratio"].value == 0.5
    assert "pyflame_gpu_clock_hertz" not in found  # not known
    assert text == metrics(latest[-1])
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=1)
