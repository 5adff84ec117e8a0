"""pf.from_torch, Tensor.to_torch and __cuda_array_interface__: the same memory on both sides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import pyflame as pf
from pyflame.bridge.torch.crossing import to_pyflame, to_torch
from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import DTypeError
from pyflame.engine import devices
from pyflame.engine.memory import gpu_of
from tests.emulated import emulated_device, host_compiler

KINDS = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2]


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_shared(kind: torch.dtype) -> None:
    theirs = torch.tensor([[0.0, 1.0, 2.0]]).to(kind)
    ours = pf.from_torch(theirs)
    assert ours.dtype is pf.as_dtype(kind) and ours.shape == (1, 3)
    back = ours.to_torch()
    assert back.dtype is kind and back.data_ptr() == theirs.data_ptr()


def test_a_parameter_is_a_leaf_and_a_conjugate_is_resolved() -> None:
    assert not pf.from_torch(torch.nn.Parameter(torch.ones(2))).requires_grad
    assert pf.from_torch(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    with pytest.raises(DTypeError, match="expected a torch tensor but got list"):
        pf.from_torch([1])


@pytest.mark.parametrize("kind", KINDS)
def test_crossing_takes_any_strides(kind: torch.dtype) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4).to(kind)
    for theirs in (base, base.permute(2, 0, 1), base[:, 1:, ::2], base[:, :1].expand(2, 3, 4), base[:0]):
        ours = to_pyflame(theirs)
        out = to_torch(ours + 0 if kind is torch.int64 else ours.reshape(ours.shape))
        assert torch.equal(out.to(torch.complex64), theirs.to(torch.complex64))
        assert theirs.numel() == 0 or out.data_ptr() != theirs.data_ptr()  # it may be written to


@pytest.fixture
def gpu() -> Iterator[str]:
    if host_compiler() is None:
        pytest.skip("the emulation needs a C++ compiler")
    name = DeviceId("rocm", 57)
    devices._open[name] = emulated_device(name.index)
    yield str(name)
    del devices._open[name]


def test_a_gpus_memory_has_the_interface_of_cuda_arrays(gpu: str) -> None:
    x = pf.arange(6, device=gpu).reshape(2, 3) + 0
    pf.eval(x)
    found = x.__cuda_array_interface__
    assert found["shape"] == (2, 3) and found["typestr"] == "<i8" and found["strides"] is None
    assert found["data"] == (x._node.data.address, True) and found["version"] == 3
    assert found["stream"] == gpu_of("test", parse_device(gpu)).main.handle
    assert not hasattr(pf.ones(2), "__cuda_array_interface__")
    assert not hasattr(x.to(pf.bfloat16), "__cuda_array_interface__")
