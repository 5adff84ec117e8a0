"""The names of `pyflame.backend.rocm` that stand for AMD's libraries and for execution."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.backend import rocm
from pyflame.backend.rocm import executor
from pyflame.core import knobs
from pyflame.core.errors import ArgumentError, DeviceError
from pyflame.libs.rocm import tuning
from tests.runtime.fake import FakeDriver
from tests.runtime.machine import machine, vendor


def test_without_an_amd_gpu() -> None:
    """As the guides write it: `except ROCmNotAvailableError`, or its base."""
    with machine():
        for make in (rocm.ROCmExecutor, rocm.get_blas, rocm.get_dnn, rocm.ROCmBLAS, rocm.ROCmDNN):
            with pytest.raises(rocm.ROCmNotAvailableError, match=r"\[rocm\] no driver") as caught:
                make()
            assert isinstance(caught.value, rocm.AMDBackendError) and isinstance(caught.value, RuntimeError)


def test_without_the_libraries(tmp_path: Path) -> None:
    with machine(rocm=vendor("rocm", FakeDriver(devices=2, kind="rocm"))):
        for make in (rocm.ROCmBLAS, rocm.ROCmDNN):
            with pytest.raises(rocm.ROCmNotAvailableError, match="could not load it"):
                make(str(tmp_path / "missing.so"))
        with pytest.raises(rocm.AMDDeviceError, match=r"expected one of rocm:0, rocm:1 but got rocm:5"):
            rocm.get_blas(5)


def test_tuning_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the guide shows it."""
    monkeypatch.setattr(tuning, "_shared", [])
    monkeypatch.setenv(knobs.CACHE_DIR.name, str(tmp_path))
    cache = rocm.get_tuning_cache()
    assert cache is rocm.get_tuning_cache()
    cache.enable_exhaustive_search(True)
    cache.solution("3.4", "gfx942", "p", lambda exhaustive: tuning.Solution(int(exhaustive), 0))
    assert (tmp_path / "miopen.json").exists()
    cache.set_cache_file(str(tmp_path / "miopen_cache.bin"))
    assert cache.get_stats().entries == 0
    with pytest.raises(pf.ArgumentTypeError, match="expected the path of a file but got None"):
        cache.set_cache_file(None)  # type: ignore[arg-type]


class OnTheCpu(rocm.ROCmExecutor):
    kind = "cpu"


def test_executor() -> None:
    x = pf.tensor([1.0, 2.0, 3.0])
    y = x * 2.0 + 1.0
    nodes = [x._node, y._node]
    result = OnTheCpu(OnTheCpu.Config(enable_profiling=True)).execute(nodes, [1])
    assert result.outputs == [y._node]
    assert result.seconds is not None and result.seconds > 0.0
    assert y._node.op.name == "leaf"
    np.testing.assert_array_equal(y.numpy(), [3.0, 5.0, 7.0])
    assert OnTheCpu().execute(nodes, []).seconds is None
    z, number = pf.exp(x), pf.tensor([1.0]) * 0.0
    assert OnTheCpu().execute([x, z, number], [1, 2]).outputs == [z, number]  # tensors for tensors
    assert z._node.op.name == number._node.op.name == "leaf"
    with pytest.raises(pf.ArgumentTypeError, match="expected tensors or nodes but got 'x'"):
        OnTheCpu().execute(["x"], [0])
    with pytest.raises(ArgumentError, match=r"graph of 2 nodes but got \[2\]"):
        OnTheCpu().execute(nodes, [2])
    elsewhere = pf.zeros(2, device="null:gfx942") + 1.0
    with pytest.raises(DeviceError, match="null:gfx942"):
        OnTheCpu().execute([elsewhere._node], [0])


def test_executor_waits_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    stats = object()
    device: Any = SimpleNamespace(
        id="rocm:0", synchronize=lambda: waited.append(True), pool=SimpleNamespace(stats=stats), info=dict
    )
    monkeypatch.setattr(executor, "get_device", lambda wanted: device)
    plain = rocm.ROCmExecutor()
    plain.execute([], [])
    assert not waited
    rocm.ROCmExecutor(rocm.ROCmExecutor.Config(sync_after_launch=True)).execute([], [])
    assert waited
    assert plain.get_memory_stats() is stats
