"""NumPy, DLPack, torch, pickle and copies: no needless copy, and values that never change behind one's back."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

DTYPES = ("bool_", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def address(x: pf.Tensor) -> int:
    return int(x.numpy().ctypes.data)


# --- NumPy ------------------------------------------------------------------------------------------------------------


def test_numpy_shares_and_is_read_only() -> None:
    x = pf.tensor([[1.0, 2.0], [3.0, 4.0]])
    a, b = x.numpy(), x.numpy()
    assert np.shares_memory(a, b)
    assert not a.flags.writeable
    assert x.T.numpy().strides == (4, 8)


def test_array_protocol() -> None:
    x = pf.tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, dtype=np.int64).tolist() == [1, 2]
    owned = np.array(x)
    owned[0] = 9
    assert x.tolist() == [1, 2]
    with pytest.raises(ValueError, match="copy"):
        x.__array__(np.float64, copy=False)
    assert (np.float32(2) * x).tolist() == [2, 4]
    assert isinstance(np.ones(2, np.float32) + x, pf.Tensor)
    assert np.asarray(pf.tensor([1.5], dtype=pf.bfloat16)).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_round_trip(name: str) -> None:
    dtype = getattr(pf, name)
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype.numpy)
    for view in (array, array.T, array[:, ::2]):
        np.testing.assert_array_equal(pf.tensor(view).numpy(), view)
        np.testing.assert_array_equal(pf.from_numpy(view).numpy(), view)


@needs_torch
@pytest.mark.parametrize(
    "change", ["x += 1", "x[0] = 9", "x.mul_(2)", "x.fill_(7)", "x.copy_(pf.ones(3))", "x[1:] = 5"]
)
def test_exports_never_change(change: str) -> None:
    """An array or capsule that was handed out keeps its value, whatever happens to the tensor."""
    x = pf.tensor([1.0, 2.0, 3.0]) * 1.0
    array, foreign = x.numpy(), torch.from_dlpack(x)
    view, shared = x.reshape(3, 1), x.detach()
    pf.eval(view)
    exec(change, {"x": x, "pf": pf})
    pf.eval(x)
    assert array.tolist() == [1, 2, 3]
    assert foreign.tolist() == [1, 2, 3]
    assert view.flatten().tolist() == shared.tolist() == x.tolist() != [1, 2, 3]


@pytest.mark.slow
@needs_torch
def test_exports_outlive_the_tensor() -> None:
    x = pf.arange(1000.0)
    array, foreign = x.numpy(), torch.from_dlpack(x)
    del x
    gc.collect()
    pf.eval(*[pf.zeros(1000) + i for i in range(20)])  # would reuse the memory if it were free
    assert array[-1] == 999
    assert foreign[-1] == 999


# --- DLPack -----------------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize("name", DTYPES)
def test_torch_both_ways_without_a_copy(name: str) -> None:
    dtype, oracle = getattr(pf, name), getattr(torch, name.rstrip("_"))
    x = pf.tensor([[0, 1, 2], [3, 4, 5]], dtype=dtype)
    out = torch.from_dlpack(x)
    assert out.dtype is oracle
    assert out.data_ptr() == address(x)
    assert out.tolist() == x.tolist()
    t = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(oracle)
    for view in (t, t.T, t[:, 1:], t[0, 0], t[:0]):
        back = pf.from_dlpack(view)
        assert back.dtype is dtype
        assert back.shape == tuple(view.shape)
        assert back.tolist() == view.tolist()
        if view.numel():
            assert address(back) == view.data_ptr()


@needs_torch
def test_float8_both_ways() -> None:
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"):
        t = torch.tensor([0.5, -2.0]).to(getattr(torch, name))
        x = pf.from_dlpack(t)
        assert x.dtype is getattr(pf, name)
        assert torch.from_dlpack(x).float().tolist() == [0.5, -2.0]


@needs_torch
def test_views_and_pending_values_export() -> None:
    x = pf.arange(6.0).reshape(2, 3)
    assert torch.from_dlpack(x.T).tolist() == x.T.tolist()
    assert torch.from_dlpack(x.expand(2, 2, 3)).shape == (2, 2, 3)
    assert torch.from_dlpack(x + 1)[0].tolist() == [1, 2, 3]
    assert torch.from_dlpack(pf.tensor(2.5)).item() == 2.5
    assert torch.from_dlpack(pf.zeros(0, 3)).shape == (0, 3)
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert not np.from_dlpack(x).flags.writeable
    assert torch.utils.dlpack.from_dlpack(x.__dlpack__()).tolist() == x.tolist()
    copied = np.from_dlpack(x, copy=True)
    assert not np.shares_memory(copied, x.numpy())


@needs_torch
def test_from_dlpack_never_writes() -> None:
    t = torch.tensor([1.0, 2.0, 3.0])
    x = pf.from_dlpack(t)
    t[0] = 10  # shared
    assert x.tolist() == [10, 2, 3]
    x += 1
    x[2] = 0
    pf.eval(x)
    assert t.tolist() == [10, 2, 3]
    assert x.tolist() == [11, 3, 0]


@pytest.mark.slow
def test_foreign_memory_is_kept_and_let_go() -> None:
    array = np.arange(5.0)
    count = sys.getrefcount(array)
    x = pf.from_dlpack(array)
    y = x * 2
    assert sys.getrefcount(array) > count
    pf.eval(y)
    del x, y
    gc.collect()
    assert sys.getrefcount(array) == count


@pytest.mark.slow
@needs_torch
def test_capsules_are_released_at_exit() -> None:
    """A tensor of another library that outlives PyFlame's modules must not crash the interpreter."""
    program = (
        "import torch, pyflame as pf; keep = torch.from_dlpack(pf.tensor([1.0])); kept = pf.from_dlpack(torch.ones(2))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_torch
@needs_torch
def test_dlpack_of_complex_numbers() -> None:
    theirs = torch.tensor([1 + 2j, 3 - 4j])
    ours = pf.from_dlpack(theirs)
    assert ours.dtype is pf.complex64 and ours.tolist() == theirs.tolist()
    assert torch.from_dlpack(ours * 2).tolist() == (theirs * 2).tolist()


@needs_torch
def test_bad_dlpack() -> None:
    for source in (3, [1, 2], "a"):
        with pytest.raises(pf.DTypeError, match="__dlpack__"):
            pf.from_dlpack(source)
    with pytest.raises(pf.PyFlameError, match="gradient"):
        pf.from_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(pf.DTypeError, match="can be shared"):
        pf.from_dlpack(torch.ones(2).to(torch.float8_e5m2fnuz))
    with pytest.raises(pf.DeviceError, match="cpu"):
        pf.zeros(2, device="null").__dlpack_device__()
    x = pf.ones(2)
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(pf.DeviceError, match="stream"):
        x.__dlpack__(stream=1)


# --- pickle and copy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DTYPES, "float8_e4m3fn"])
def test_pickle(name: str) -> None:
    x = pf.tensor([[0, 1], [1, 0]], dtype=getattr(pf, name))
    back = pickle.loads(pickle.dumps(x))
    assert back.dtype is x.dtype
    assert back.tolist() == x.tolist()


def test_pickle_keeps_grad_and_device() -> None:
    x = pf.tensor([1.0], requires_grad=True, device="cpu")
    back = pickle.loads(pickle.dumps(x))
    assert back.requires_grad
    assert back._node.meta.committed
    with pytest.raises(pf.GradientError, match="detach"):
        pickle.dumps(x * 2)
    assert pickle.loads(pickle.dumps({"w": [pf.ones(2), pf.zeros(0)]}))["w"][1].shape == (0,)


def test_deepcopy_is_independent() -> None:
    x = pf.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    y, twice = copy.deepcopy([x, x])
    assert y is twice
    assert y.requires_grad
    assert y.is_leaf
    assert y.grad is not x.grad
    assert y.grad.tolist() == [2, 4]
    with pf.no_grad():
        y += 1
    assert x.tolist() == [1, 2]
    # a copy is another leaf, though it may share memory
    z = copy.deepcopy(x)
    x.grad = None
    (x * z * z).sum().backward()
    assert x.grad.tolist() == [1, 4]
    assert z.grad.tolist() == [2 + 2, 4 + 8]
    with pytest.raises(pf.GradientError, match="detach"):
        copy.deepcopy(x * 2)


def test_copy() -> None:
    x = pf.tensor([1.0], requires_grad=True)
    y = copy.copy(x * 2)
    y.backward()
    assert x.grad.tolist() == [2]
    z = copy.copy(x)
    assert z is not x
    assert z.requires_grad
