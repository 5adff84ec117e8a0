"""No array, number or file that leaves a tensor is read from a GPU's memory by the host, whatever the tensor is."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import DeviceError, PyFlameError
from pyflame.doctor.samples import cases, map_arrays, outputs_of, run_op
from pyflame.engine.value import to_numpy
from pyflame.ir.opdef import CONST
from tests.emulated import EmulatedDriver
from tests.runtime.machine import machine, vendor


@pytest.fixture(params=["sim:gfx1100", "sim:gfx942", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    """Simulated GPUs, whose addresses mean nothing to the host, and the emulated one. It is the current device."""
    emulated = machine(rocm=vendor("rocm", EmulatedDriver())) if request.param == "rocm" else contextlib.nullcontext()
    with emulated, pf.device(request.param):
        yield request.param


def zero_gradient() -> pf.Tensor:
    """The gradient of a 0-d argument that does not matter: a constant, which no device holds."""
    a, b = pf.tensor(1.0, requires_grad=True), pf.tensor(-2.0, requires_grad=True)
    pf.copysign(a, b).backward()
    assert b.grad is not None and b.grad._node.op.kind == CONST
    return b.grad


def evaluated(make: Callable[[], pf.Tensor]) -> Callable[[], pf.Tensor]:
    def made() -> pf.Tensor:
        out = make()
        pf.eval(out)
        return out

    return made


def eager_cast() -> pf.Tensor:
    with pf.eager():
        return zero_gradient().to(pf.float64)


def back_on_the_cpu(make: Callable[[], pf.Tensor]) -> Callable[[], pf.Tensor]:
    def made() -> pf.Tensor:
        out = make()
        pf.set_device("cpu")
        return out

    return made


def ramp() -> pf.Tensor:
    return pf.arange(6, dtype=pf.float32).reshape(2, 3)


MAKERS: dict[str, tuple[Callable[[], pf.Tensor], Any]] = {
    "a constant": (zero_gradient, np.zeros(())),
    "an evaluated constant": (evaluated(zero_gradient), np.zeros(())),
    "an expanded constant": (lambda: zero_gradient().expand(2, 3), np.zeros((2, 3))),
    "a constant, computed with": (lambda: zero_gradient() + 1, np.ones(())),
    "a cast constant, eagerly": (eager_cast, np.zeros(())),
    "a detached constant": (lambda: zero_gradient().detach(), np.zeros(())),
    "a committed constant": (lambda: zero_gradient().cpu(), np.zeros(())),
    "a constant, the CPU current again": (back_on_the_cpu(zero_gradient), np.zeros(())),
    "an evaluated one, the CPU current again": (back_on_the_cpu(evaluated(zero_gradient)), np.zeros(())),
    "0-d": (lambda: pf.tensor(3.0), np.full((), 3.0)),
    "empty": (lambda: pf.zeros(0, 3), np.zeros((0, 3))),
    "a leaf": (evaluated(ramp), np.arange(6.0).reshape(2, 3)),
    "pending": (ramp, np.arange(6.0).reshape(2, 3)),
    "a view of a leaf": (lambda: evaluated(ramp)().T[1:], np.arange(6.0).reshape(2, 3).T[1:]),
    "an expanded leaf": (lambda: evaluated(ramp)()[0].expand(4, 3), np.tile(np.arange(3.0), (4, 1))),
    "copied to the CPU": (lambda: evaluated(ramp)().cpu(), np.arange(6.0).reshape(2, 3)),
    "copied from the CPU": (lambda: pf.ones(3, device="cpu").to(pf.get_device()), np.ones(3)),
    "a leaf, the CPU current again": (back_on_the_cpu(evaluated(ramp)), np.arange(6.0).reshape(2, 3)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_leaves_a_tensor_is_the_hosts(gpu: str, kind: str, tmp_path: Path) -> None:
    make, want = MAKERS[kind]
    for leave in (
        lambda t: t.numpy(),
        np.asarray,
        lambda t: t.tolist(),
        lambda t: t.item() if t.numel() == 1 else t.numpy(),
        lambda t: pickle.loads(pickle.dumps(t.detach())).numpy(),
        lambda t: saved(t, tmp_path / "one.safetensors"),
        lambda t: np.from_dlpack(t.cpu()),
    ):
        with pf.device(gpu):
            array = np.array(leave(make()), np.float64).reshape(want.shape)
        np.testing.assert_array_equal(array, want, err_msg=kind)
    with pf.device(gpu):
        assert repr(make()).startswith("tensor(")
        with contextlib.suppress(DeviceError, RuntimeError):  # a GPU's, which NumPy refuses: to be copied first
            np.testing.assert_array_equal(np.array(np.from_dlpack(make())), want)


def saved(tensor: pf.Tensor, path: Path) -> Any:
    pf.save({"x": tensor.detach()}, path)
    return pf.load(path)["x"].numpy()


def constant_gradients() -> Iterator[tuple[str, pf.Tensor]]:
    """Those gradients of the catalogue's samples, as they are and cut to one number, that are constants."""
    for op, _, sample in cases():
        if not sample.grad:
            continue
        for cut in (False, True):
            leaves: list[pf.Tensor] = []

            def leaf(array: Any, cut: bool = cut, leaves: list[pf.Tensor] = leaves) -> pf.Tensor:
                out = pf.tensor(array.reshape(-1)[0] if cut and array.size else array)
                if out.dtype.is_float:
                    leaves.append(out.requires_grad_())
                return out

            args, kwargs = map_arrays([sample.args, sample.kwargs], leaf)
            with contextlib.suppress(PyFlameError, IndexError):  # not every op takes 0-d tensors
                outs = outputs_of(run_op(op, args, kwargs))
                smooth = [o.sum() for o in outs if o.dtype.is_float and o.requires_grad]
                if smooth:
                    sum(smooth, 0.0).backward()
            yield from ((op.name, t.grad) for t in leaves if t.grad is not None and t.grad._node.op.kind == CONST)


@pytest.mark.slow
def test_every_constant_gradient_of_the_catalogue(gpu: str) -> None:
    found = list(constant_gradients())
    assert {"copysign", "topk", "round", "floor_div"} <= {name for name, _ in found}
    for name, gradient in found:
        assert np.isfinite(gradient.numpy().sum()), name


def test_an_array_over_a_gpus_memory_is_refused(gpu: str) -> None:
    there = pf.ones(3) * 2
    pf.eval(there)
    with pytest.raises(DeviceError, match=r"expected memory of the host but got a GPU's at 0x.*\.cpu\(\)"):
        to_numpy(there._node.data, there.shape, there.dtype)
