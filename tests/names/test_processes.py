"""torch.multiprocessing's spawn, torch.serialization's safe globals, testing.make_tensor, and names of jit."""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import multiprocessing as mp
from pyflame import nn


def write(index: int, folder: str, values: Any) -> None:
    Path(folder, str(index)).write_text(f"{values.tolist()} {values.requires_grad}")
    values.detach().fill_(7.0)


def fail(index: int, kind: str) -> None:
    if index == 0:
        time.sleep(60)
    if kind == "raise":
        raise ValueError("no luck")
    if kind == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)


def answer(queue: Any, back: Any) -> None:
    back.put(queue.get() * 2)


def test_processes_get_copies(tmp_path: Path) -> None:
    values = pf.tensor([1.0, 2.0], requires_grad=True)
    assert mp.start_processes(write, (str(tmp_path), values), nprocs=2, start_method="fork") is None
    assert [Path(tmp_path, str(i)).read_text() for i in (0, 1)] == ["[1.0, 2.0] True"] * 2
    assert values.tolist() == [1.0, 2.0]


@pytest.mark.slow(16)
def test_spawn(tmp_path: Path) -> None:
    context = mp.spawn(write, (str(tmp_path), pf.ones(1)), nprocs=1, join=False)
    assert context is not None and len(context.pids()) == 1
    while not context.join(timeout=60):
        pass
    assert Path(tmp_path, "0").read_text() == "[1.0] False"


@pytest.mark.parametrize("kind", ["raise", "signal", "exit"])
def test_what_a_process_raises_is_raised(kind: str) -> None:
    start = time.monotonic()
    found: Any = mp.ProcessRaisedException if kind == "raise" else mp.ProcessExitedException
    text = {
        "raise": r"Process 1 terminated with the following error:\n(.|\n)*ValueError: no luck",
        "signal": "process 1 terminated with signal SIGKILL",
        "exit": "process 1 terminated with exit code 3",
    }
    with pytest.raises(found, match=text[kind]) as caught:
        mp.start_processes(fail, (kind,), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and time.monotonic() - start < 30  # the first one was ended
    again = type(caught.value)(*caught.value.__reduce__()[1])
    assert again.error_pid == caught.value.error_pid


def test_queues() -> None:
    context = mp.get_context("fork")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(queue, back))
    process.start()
    queue.put(pf.tensor([1.5, 2.0]))
    assert back.get(timeout=60).tolist() == [3.0, 4.0]
    process.join()
    assert {"Process", "Queue", "Pool", "set_start_method", "get_start_method"} <= set(mp.__all__)


def test_sharing_strategies() -> None:
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system" in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(pf.ArgumentError, match="but got 'other'"):
        mp.set_sharing_strategy("other")
    with pytest.warns(FutureWarning, match="use start_processes"):
        mp.spawn(write, nprocs=0, start_method="fork")


# --- serialization ----------------------------------------------------------------------------------------------------


class Config:
    def __init__(self) -> None:
        self.depth = 3


def test_safe_globals(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"args": argparse.Namespace(lr=0.1), "config": Config(), "w": torch.ones(2)}, path)
    with pytest.raises(pf.NotSupportedError, match=r"argparse\.Namespace(.|\n)*add_safe_globals"):
        pf.load(path)
    with pf.serialization.safe_globals([argparse.Namespace, Config]):
        found = pf.load(path)
        assert pf.serialization.get_safe_globals() == [argparse.Namespace, Config]
    assert found["args"].lr == 0.1 and found["config"].depth == 3 and found["w"].tolist() == [1.0, 1.0]
    assert pf.serialization.get_safe_globals() == []

    class Other:
        pass

    other = (Other, f"{Config.__module__}.Config")
    pf.serialization.add_safe_globals([argparse.Namespace, other])
    assert isinstance(pf.load(path)["config"], Other) and other in pf.serialization.get_safe_globals()
    pf.serialization.clear_safe_globals()
    with pytest.raises(pf.NotSupportedError):
        pf.load(path)
    with pytest.raises(TypeError, match="expected classes or functions"):
        pf.serialization.add_safe_globals([3])
    with pytest.raises(TypeError, match=r"\(class, 'module.name'\)"):
        pf.serialization.add_safe_globals([(Other, "Other")])


# --- make_tensor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "complex64", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 2), (50,), (7, 5)])
def test_make_tensor(name: str, shape: tuple[int, ...]) -> None:
    for lib in (pf, torch):
        dtype = getattr(lib, name)
        x = lib.testing.make_tensor(shape, dtype=dtype, device="cpu", noncontiguous=True, exclude_zero=True)
        assert tuple(x.shape) == shape and x.dtype == dtype and not bool((x == 0).any())
        y = lib.testing.make_tensor(*shape, dtype=dtype, device="cpu", low=0, high=1 if name != "bool" else 2)
        real = np.array(y.tolist(), dtype=complex)
        assert (np.abs(real) <= 2**0.5).all() and (real.real >= 0).all()
    wide = pf.testing.make_tensor(2000, dtype=getattr(pf, name))
    top = np.abs(np.array(wide.tolist(), dtype=complex).real).max()
    assert top == 1 if name == "bool" else 8 <= top <= 9


def test_make_tensor_refuses() -> None:
    assert pf.testing.make_tensor(2, dtype=pf.float32, requires_grad=True).is_leaf
    for options in (
        dict(dtype=pf.int64, requires_grad=True),
        dict(dtype=pf.float32, low=2, high=1),
        dict(dtype=pf.uint8, low=-5, high=-1),
    ):
        with pytest.raises(ValueError, match=r"\[make_tensor\] expected"):
            pf.testing.make_tensor(2, **options)  # type: ignore[arg-type]


# --- jit and compiler -------------------------------------------------------------------------------------------------


def test_names_of_jit() -> None:
    layer = nn.Linear(2, 2)
    assert pf.jit.trace_module(layer, {"forward": pf.ones(1, 2)}) is layer
    with pytest.raises(pf.NotSupportedError, match="expected a module in eval mode"):
        pf.jit.freeze(layer)
    frozen = pf.jit.optimize_for_inference(layer.eval())
    before = frozen(pf.ones(1, 2)).tolist()
    with pf.no_grad():
        layer.weight.fill_(0.0)
    assert frozen(pf.ones(1, 2)).tolist() == before and not frozen.weight.requires_grad and layer.weight.requires_grad
    future = pf.jit.fork(lambda a, b: a + b, pf.ones(1), b=2)
    assert future.done() and pf.jit.wait(future).tolist() == future.value().tolist() == [3.0]
    assert not isinstance(layer, pf.jit.ScriptModule) and not isinstance(pf.relu, pf.jit.ScriptFunction)
    with pytest.raises(pf.NotSupportedError, match=r"expected a subclass of nn\.Module"):
        type("Mine", (pf.jit.ScriptModule,), {})
    assert pf.jit.script_method(answer) is pf.jit.interface(answer) is answer
    assert pf.compiler.assume_constant_result(answer) is pf.compiler.nested_compile_region(answer) is answer
    assert not pf.compiler.is_exporting() and not pf.compiler.is_dynamo_compiling()
