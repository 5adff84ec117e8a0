"""Devices by name, what is present, and how absent ones answer."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import pyflame as pf
from pyflame.backend import rocm
from pyflame.engine.pending import PendingGraph


@pytest.fixture(autouse=True)
def back_to_the_cpu() -> object:
    yield
    pf.set_device("cpu")


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_set_and_get() -> None:
    assert pf.get_device() == "cpu"
    pf.set_device("null:gfx942")
    assert pf.get_device() == "null:gfx942"
    assert pf.zeros(3).device == "null:gfx942"
    pf.set_device("CPU")
    assert pf.zeros(3).device == "cpu"
    pf.set_device("cpu:0")
    assert pf.get_device() == "cpu"


@pytest.mark.parametrize(("name", "near"), [("cp", "cpu"), ("rcom", "rocm"), ("cudda:1", "cuda"), ("nul", "null")])
def test_a_wrong_name_suggests_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{near}'"):
        pf.set_device(name)


@pytest.mark.parametrize("name", ["", "tpu9000x", "cpu:1", "rocm:x", "rocm:-1", 3, None])
def test_names_that_mean_nothing(name: object) -> None:
    with pytest.raises(ValueError, match=r"\[device\] expected"):
        pf.set_device(name)
    assert pf.get_device() == "cpu"


def test_numbers_that_no_device_has() -> None:
    with pytest.raises(ValueError, match="expected 'cpu' but got 'cpu:1'; the CPU is one device"):
        pf.set_device("cpu:1")
    with pytest.raises(pf.DeviceError, match=r"but got sim:gfx942:40; PYFLAME_SIM_DEVICES says how many"):
        pf.set_device("sim:gfx942:40")


@pytest.mark.parametrize("name", ["rocm", "rocm:1", "cuda", "cuda:0"])
def test_absent_devices_say_what_is_missing(name: str) -> None:
    for use in (
        pf.set_device,
        lambda d: pf.device(d).__enter__(),
        pf.device_info,
        pf.synchronize,
        pf.ones(2).to,
        lambda d: pf.zeros(2, device=d),
    ):
        with pytest.raises(pf.DeviceError, match=rf"\[{name.split(':')[0]}\] expected .*; "):
            use(name)
    assert pf.get_device() == "cpu"


@pytest.mark.parametrize("name", ["cerebras", "cerebras:simulator"])
def test_cerebras_is_proprietary(name: str) -> None:
    with pytest.raises(RuntimeError, match="proprietary"):
        pf.set_device(name)


def test_an_unknown_target_suggests_the_nearest() -> None:
    with pytest.raises(RuntimeError, match="did you mean 'null:gfx942'"):
        pf.set_device("null:gfx94")


def test_info() -> None:
    info = pf.device_info()
    assert info["type"] == "cpu"
    assert info["cores"] >= 1
    assert info["name"]
    assert pf.device_info("null:gfx1100")["type"] == "null"
    assert pf.devices()[0] == "cpu"
    pf.synchronize()
    pf.synchronize("null")


def test_context_is_nested_and_of_this_thread() -> None:
    seen: list[str] = []
    with pf.device("null"):
        with pf.device("cpu"):
            assert pf.get_device() == "cpu"
        assert pf.get_device() == "null"
        thread = threading.Thread(target=lambda: seen.append(pf.get_device()))
        thread.start()
        thread.join()
        with pytest.raises(ZeroDivisionError), pf.device("cpu"):
            raise ZeroDivisionError
        assert pf.get_device() == "null"
    assert pf.get_device() == "cpu"
    assert seen == ["cpu"]


def test_new_threads_start_where_set_device_went() -> None:
    seen: list[str] = []
    pf.set_device("null")
    thread = threading.Thread(target=lambda: seen.append(pf.get_device()))
    thread.start()
    thread.join()
    assert seen == ["null"]


def test_to_commits_and_mixing_is_an_error() -> None:
    x = pf.ones(2)
    here, there = x.to("cpu"), x.to("null")
    assert (here.device, there.device) == ("cpu", "null")
    assert here.to("cpu") is here
    assert (x + there).device == "null"  # the uncommitted one follows
    with pytest.raises(pf.DeviceError, match="cpu and null"):
        here + there
    assert x.to(here)._node.meta.committed
    assert x.to(pf.float16, device="cpu").dtype is pf.float16
    assert x.to("float16").dtype is pf.float16
    assert x.to(pf.device("null")).device == "null"
    assert pf.zeros(2, device=pf.device("null")).device == "null"
    assert x.cpu().device == "cpu"
    with pytest.raises(RuntimeError, match=r"\[rocm\] expected"):
        x.rocm(1)
    with pytest.raises(RuntimeError, match=r"\[cuda\] expected"):
        x.cuda()


def test_gradient_crosses_devices() -> None:
    x = pf.ones(2, requires_grad=True)
    (x.to("cpu") * 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_copies_between_devices_are_made_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each walk is as long as the graph: with one per copy, evaluating many tensors of another device is quadratic."""
    walks: list[int] = []
    walk = PendingGraph._walk

    def counted(self: PendingGraph, *args: Any) -> list[int]:
        walks.append(1)
        return walk(self, *args)

    with pf.device("cpu"):
        tensors = [pf.ones(4) * n for n in range(40)]
        pf.eval(*tensors)
    with pf.device("null"):
        moved = [t + 1.0 for t in tensors]
        chained = (tensors[0].to("null") + 1.0).to("null:gfx942") * 2.0
        monkeypatch.setattr(PendingGraph, "_walk", counted)
        pf.eval(*moved)
        assert len(walks) <= 3
        pf.eval(chained)  # a copy of what a copy made
    assert chained._node.op.name == "leaf" and chained.device == "null:gfx942"


def test_null_computes_nothing() -> None:
    x = pf.zeros(2, device="null") + 1
    pf.eval(x)
    assert "device='null'" in repr(x)
    with pytest.raises(pf.DeviceError, match="null"):
        x.numpy()


def test_rocm_functions() -> None:
    assert pf.rocm_is_available() is False
    assert pf.rocm_device_count() == 0
    assert pf.rocm_get_device() == -1
    for call in (
        pf.rocm_get_device_info,
        lambda: pf.rocm_get_device_info(3),
        lambda: pf.rocm_set_device(0),
        pf.rocm_synchronize,
    ):
        with pytest.raises(RuntimeError, match=r"expected an AMD GPU but none is available: .*; "):
            call()


def test_historical_path() -> None:
    assert rocm.is_available() is False
    assert rocm.get_device_count() == 0
    assert rocm.get_current_device() == -1
    assert rocm.can_fuse is inspect.unwrap(pf.can_fuse)
    for call in (
        rocm.get_memory_manager,
        rocm.get_pinned_pool,
        lambda: rocm.warmup_memory_pool(32),
    ):
        with pytest.raises(RuntimeError, match="AMD GPU"):
            call()


@pytest.mark.slow
def test_environment_variable() -> None:
    done = run("import pyflame as pf; print(pf.get_device(), pf.zeros(2).device)", PYFLAME_DEVICE="null:gfx942")
    assert done.stdout.split() == ["null:gfx942", "null:gfx942"]
    done = run("import pyflame as pf; print(pf.__name__); pf.ones(2)", PYFLAME_DEVICE="rocm:1")
    assert done.stdout.strip() == "pyflame"
    assert "ROCmNotAvailableError: [PYFLAME_DEVICE] expected" in done.stderr


# --- compiler and cache -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_clear_cache(tmp_path: object) -> None:
    program = """
import pyflame as pf, threading
def work():
    return (pf.ones(1000) * 3.0 + 1.0).sum().item()
first = work()
a = pf.compile_stats()
freed = pf.clear_cache()
assert freed > 0 and a.compiles > 0, (freed, a)
assert work() == first
b = pf.compile_stats()
assert b.compiles > a.compiles and b.plan_misses > a.plan_misses, (a, b)
threads = [threading.Thread(target=lambda: [work() for _ in range(5)]) for _ in range(3)]
[t.start() for t in threads]
pf.clear_cache()
[t.join() for t in threads]
assert work() == first
print("fine")
"""
    done = run(program, PYFLAME_CACHE_DIR=str(tmp_path))
    assert done.stdout.strip() == "fine", done.stderr
