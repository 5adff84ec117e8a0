"""Which device a program starts on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import DeviceFaultError, NotAvailableError, ROCmNotAvailableError
from pyflame.data import DataLoader
from pyflame.runtime.gpu.driver import DeviceProperties
from tests.runtime.fake import FakeDriver
from tests.runtime.machine import machine, vendor


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFLAME_DEVICE")


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def raising(error: Exception) -> Any:
    def make() -> Any:
        raise error

    return make


def test_cuda_then_rocm_then_cpu(quiet: None) -> None:
    cuda, rocm = vendor("cuda", FakeDriver(kind="cuda")), vendor("rocm", FakeDriver(kind="rocm"))
    with machine(cuda=cuda, rocm=rocm):
        assert pf.get_device() == "cuda:0"
        assert pf.devices() == ["cpu", "cuda:0", "rocm:0"]
    with machine(rocm=rocm):
        assert pf.zeros(3).device == "rocm:0"
    with machine():
        assert pf.get_device() == "cpu"


def test_set_device_and_with_choose_nothing_else(quiet: None) -> None:
    def never() -> Any:
        raise AssertionError("a device was looked for")

    with machine(cuda=vendor("cuda", never)):
        pf.set_device("cpu")
        assert pf.get_device() == "cpu"
    with machine(cuda=vendor("cuda", never)), pf.device("cpu"):
        assert (pf.ones(2) + 1).tolist() == [2, 2]
        (batch,) = DataLoader([1.0, 2.0], 2, prefetch_factor=1)  # in a thread
        assert batch.tolist() == [1, 2]


def test_an_op_on_a_committed_tensor_may_come_first(quiet: None) -> None:
    with machine(rocm=vendor("rocm", FakeDriver(kind="rocm"))):
        assert (pf.ones(2, device="cpu") * 2).device == "cpu"
        assert pf.get_device() == "rocm:0"


def test_the_largest_that_is_no_part_of_the_cpu(quiet: None) -> None:
    class Mixed(FakeDriver):
        def properties(self, index: int) -> DeviceProperties:
            known = super().properties(index)
            sizes, integrated = (96 << 30, 16 << 30, 24 << 30, 24 << 30), (True, False, False, False)
            return DeviceProperties(**{**vars(known), "total_memory": sizes[index], "integrated": integrated[index]})

    with machine(rocm=vendor("rocm", Mixed(devices=4, kind="rocm"))):
        assert pf.get_device() == "rocm:2"


@pytest.mark.parametrize(
    "broken",
    [
        raising(ROCmNotAvailableError("[rocm] a driver of another age")),
        raising(ZeroDivisionError("bindings in disorder")),
        FakeDriver(kind="rocm", failures={"stream_create": DeviceFaultError("[rocm] it is dead")}),
    ],
)
def test_a_broken_driver_is_told_once(broken: Any, tmp_path: Path) -> None:
    node = tmp_path / "kfd"
    node.touch()
    with machine(rocm=vendor("rocm", broken, node=str(node))):
        with pytest.warns(RuntimeWarning, match=r"computes on cpu .*rocm: .*(age|disorder|dead).*PYFLAME_DEVICE=cpu"):
            assert pf.get_device() == "cpu"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (pf.ones(2) + 1).tolist() == [2, 2]
            seen: list[str] = []
            thread = threading.Thread(target=lambda: seen.append(pf.get_device()))
            thread.start()
            thread.join()
            assert seen == ["cpu"]


def test_a_gpu_without_bindings_is_told(tmp_path: Path) -> None:
    node = tmp_path / "nvidiactl"
    node.touch()
    missing = raising(NotAvailableError("[cuda] no bindings; pip install 'pyflame-rocm[cuda]'"))
    rocm = vendor("rocm", FakeDriver(kind="rocm"))
    with (
        machine(cuda=vendor("cuda", missing, node=str(node)), rocm=rocm),
        pytest.warns(RuntimeWarning, match=r"computes on rocm:0 .*cuda: \[cuda\] no bindings; pip install .*exists"),
    ):
        assert pf.get_device() == "rocm:0"


def test_the_variable_comes_first(monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    two = vendor("cuda", FakeDriver(devices=2, kind="cuda"))
    monkeypatch.setenv("PYFLAME_DEVICE", " cuda:1 ")
    with machine(cuda=two):
        assert pf.get_device() == "cuda:1"
        assert "default   cuda:1 (PYFLAME_DEVICE)" in pf.explain_devices()
    for name, error, text in [
        ("gpu", pf.DeviceNameError, "expected one of cpu"),
        ("cuda:7", pf.DeviceError, "expected one of cuda:0, cuda:1 but got cuda:7"),
        ("metal", pf.DeviceError, "does not support Metal"),
        ("opencl:0", pf.DeviceError, "does not support OpenCL"),
        ("rocm", ROCmNotAvailableError, "no driver"),
    ]:
        monkeypatch.setenv("PYFLAME_DEVICE", name)
        with machine(cuda=two):
            for _ in range(2):  # it stays wrong
                with pytest.raises(error, match=rf"\[PYFLAME_DEVICE\] .* got '{name}': .*{text}.*Unset it"):
                    pf.zeros(2)
            pf.set_device("cpu")
            assert pf.zeros(2).device == "cpu"


def test_explain_devices_names_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with machine(cuda=vendor("cuda", FakeDriver(devices=2, kind="cuda", arch="sm_90"))):
        lines = pf.explain_devices().splitlines()
        assert main(["devices"]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert lines[:2] == ["cuda:0    Fake 0, sm_90:xnack-", "cuda:1    Fake 1, sm_90:xnack-"]
    assert lines[2] == "rocm      not available: [rocm] no driver; install one"
    assert [line.split()[0] for line in lines[3:]] == ["cpu", "metal", "opencl", "default"]
    assert "not supported" in lines[4] and "not supported" in lines[5] and lines[6].endswith("cuda:0")


@pytest.mark.slow
def test_import_chooses_nothing() -> None:
    program = """
import pyflame as pf
from pyflame.core.state import default_device, state
assert default_device.chosen is None and vars(state)["device"] is None
import pyflame.nn, pyflame.optim, pyflame.data, pyflame.data.worker, pyflame.backend.rocm
assert default_device.chosen is None
"""
    environment = {**os.environ, "PYFLAME_DEVICE": "nonsense"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
