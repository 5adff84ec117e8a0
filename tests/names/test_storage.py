"""Storages, places in memory, hooks behind .grad and small methods of tensors, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.tensor import views

VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "row": lambda x: x[1],
    "part": lambda x: x[1:, 1:3],
    "strided": lambda x: x[:, ::2],
    "transposed": lambda x: x[0].T[1:],
    "column": lambda x: x[..., 2],
    "diagonal": lambda x: x[0].diagonal(),
    "diagonal above": lambda x: x[1].diagonal(1),
    "diagonal below": lambda x: x[1].diagonal(-1),
    "diagonal of a part": lambda x: x[:, 1:, 1:].diagonal(1, 1, 2),
    "unfold": lambda x: x[1].unfold(1, 2, 1),
    "expand": lambda x: x[1:, 1:2].expand(1, 5, 4),
    "view": lambda x: x[1].view(-1)[5:],
    "detach": lambda x: x[1, 2].detach()[1:],
    "split": lambda x: x.split(2, 2)[1],
}


def cube(lib: Any) -> Any:
    return lib.arange(24.0).reshape(2, 3, 4).clone()


@pytest.mark.parametrize("name", VIEWS)
def test_places_in_memory(name: str) -> None:
    x, y = (cube(lib) for lib in (pf, torch))
    ours, theirs = VIEWS[name](x), VIEWS[name](y)
    assert ours.storage_offset() == theirs.storage_offset()
    assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes() == 96
    assert ours.storage().size() == theirs.storage().size() == len(ours.storage()) == 24
    assert ours.untyped_storage().data_ptr() == x.data_ptr()
    for lib, tensor in ((pf, ours), (torch, theirs)):
        assert lib.is_storage(tensor.storage()) and lib.is_storage(tensor.untyped_storage())
        assert not lib.is_storage(tensor)
    assert ours.dim_order() == theirs.dim_order() if 0 not in theirs.stride() else True
    assert ours.is_set_to(x) == theirs.is_set_to(y) and ours.is_set_to(VIEWS[name](x))
    assert ours.is_set_to(x[0]) == theirs.is_set_to(y[0])


@pytest.mark.parametrize(
    "view",
    [
        lambda m, x: x.view(m.int16)[:, 1:, 2:],
        lambda m, x: x[:, :, 2:].view(m.float64),
        lambda m, x: x.view(m.complex64).imag,
    ],
)
def test_places_of_other_dtypes(view: Any) -> None:
    ours, theirs = view(pf, cube(pf)), view(torch, cube(torch))
    assert ours.storage_offset() == theirs.storage_offset()
    assert views.strides(ours) == theirs.stride()


@pytest.mark.slow
def test_storages_hold_the_bytes() -> None:
    x, y = (lib.arange(3.0).reshape(3)[1:] for lib in (pf, torch))
    assert x.untyped_storage().tolist() == y.untyped_storage().tolist() and x.storage().tolist() == [0.0, 1.0, 2.0]
    assert x.storage()[2] == y.storage()[2] and x.untyped_storage()[6] == y.untyped_storage()[6]
    copy = x.untyped_storage().clone()
    x.zero_()
    assert x.storage().tolist() == [0.0, 0.0, 0.0]
    x.untyped_storage().copy_(copy)
    assert x.tolist() == [1.0, 2.0]
    assert "float32" in repr(x.storage()) and x.storage().element_size() == 4 and copy.element_size() == 1
    with pytest.raises(pf.ArgumentError, match="storage of 12 bytes"):
        x.untyped_storage().copy_(pf.ones(2).untyped_storage())


@pytest.mark.parametrize("device", ["sim:gfx1100", "sim:gfx942"])
def test_addresses_are_those_of_the_device(device: str) -> None:
    x = pf.ones(4, device=device) + 0
    assert x[1:].data_ptr() == x.data_ptr() + 4 == x.untyped_storage().data_ptr() + 4
    assert x.data_ptr() != x.cpu().data_ptr()


def test_set() -> None:
    for lib in (pf, torch):
        x, other = lib.zeros(3), lib.ones(2, 2)
        old = x[1:]
        assert x.set_(other) is x and tuple(x.shape) == (2, 2)
        x[0, 0] = 5.0
        assert other[0, 0] == 5.0 and old.tolist() == [0.0, 0.0]
        assert x.is_set_to(other) and tuple(x.set_().shape) == (0,)
    with pytest.raises(pf.DTypeError, match="float32"):
        pf.zeros(3).set_(pf.ones(2, dtype=pf.int32))
    with pytest.raises(pf.NotSupportedError, match="as_strided"):
        pf.zeros(3).set_(pf.ones(2).untyped_storage())
    with pytest.raises(pf.GradientError):
        pf.zeros(3, requires_grad=True).set_(pf.ones(3))


SMALL: dict[str, Callable[[Any], Any]] = {
    "map_": lambda m: m.zeros(2, 3).map_(m.arange(6.0).reshape(2, 3), lambda a, b: a + 2 * b),
    "map_ broadcast": lambda m: m.ones(2, 3).map_(m.arange(3.0), lambda a, b: a + 2 * b),
    "map2_": lambda m: m.ones(3).map2_(m.arange(3.0), m.arange(3.0), lambda a, b, c: a + b * c),
    "as_strided_": lambda m: m.arange(6.0).as_strided_((2, 2), (1, 2), 1),
    "new_empty_strided": lambda m: m.ones(1).new_empty_strided((2, 3), (1, 2), dtype=m.int64).fill_(3),
    "new_empty_strided, empty": lambda m: m.ones(1).new_empty_strided((0, 3), (3, 1)),
    "module_load": lambda m: m.zeros(2).module_load(m.ones(2)),
    "module_load assigned": lambda m: m.zeros(2).module_load(m.ones(2, requires_grad=True), assign=True),
    "conj_physical_": lambda m: m.tensor([1 + 2j, 3 - 1j]).conj_physical_(),
    "unsafe_split_with_sizes": lambda m: m.arange(5.0).unsafe_split_with_sizes([2, 3])[1],
    "to_sparse_coo": lambda m: m.eye(2).to_sparse_coo().values(),
    "sparse_mask": lambda m: m.arange(6.0).reshape(2, 3).sparse_mask(m.eye(2, 3).to_sparse()).to_dense(),
    "sparse_dim": lambda m: m.tensor(m.eye(3).to_sparse().sparse_dim()),
    "dense_dim": lambda m: m.tensor(m.eye(3).to_sparse().dense_dim()),
    "dims of a dense tensor": lambda m: m.tensor([m.eye(3).sparse_dim(), m.eye(3).dense_dim(), m.eye(3).output_nr]),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_methods(name: str) -> None:
    ours, theirs = SMALL[name](pf), SMALL[name](torch)
    assert ours.dtype is pf.as_dtype(theirs.dtype) and ours.requires_grad == theirs.requires_grad
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", ["coalesce", "indices", "is_coalesced", "values"])
def test_what_only_sparse_tensors_have(name: str) -> None:
    with pytest.raises(RuntimeError):
        getattr(torch.ones(2), name)()
    with pytest.raises(pf.ArgumentError, match="expected a sparse tensor"):
        getattr(pf.ones(2), name)()


def test_hooks_behind_grad() -> None:
    """Called when .grad is there, also for inputs=, as often as it was registered, until it is removed."""
    seen: dict[Any, list[Any]] = {pf: [], torch: []}
    for lib, found in seen.items():
        x = lib.ones(2, requires_grad=True)

        def hook(p: Any, found: Any = found) -> None:
            found.append(p.grad.tolist())

        first, second = (x.register_post_accumulate_grad_hook(hook) for _ in range(2))
        (x * 3).sum().backward()
        second.remove()
        (x * 2).sum().backward(inputs=[x])
        first.remove()
        (x * 2).sum().backward()
        with pytest.raises(RuntimeError if lib is torch else pf.GradientError):
            (x * 2).register_post_accumulate_grad_hook(hook)
        with pytest.raises(RuntimeError if lib is torch else pf.GradientError):
            lib.ones(2).register_post_accumulate_grad_hook(hook)
    assert seen[pf] == seen[torch] == [[3.0, 3.0], [3.0, 3.0], [5.0, 5.0]]


def test_an_update_within_backward() -> None:
    """What the hook is for: a step for each parameter, and its gradient freed."""
    for lib in (pf, torch):
        x = lib.ones(2, requires_grad=True)

        def step(p: Any, lib: Any = lib) -> None:
            with lib.no_grad():
                p.sub_(p.grad * 0.5)
            p.grad = None

        x.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            (x * x).sum().backward()
        assert x.grad is None and x.tolist() == [0.0, 0.0]


def test_retained_gradients() -> None:
    for lib in (pf, torch):
        x = lib.ones(2, requires_grad=True)
        y = x * 2
        assert not y.retains_grad and not x.retains_grad
        y.retain_grad()
        y.retain_grad()
        x.retain_grad()
        (y * 3).sum().backward()
        assert y.retains_grad and not x.retains_grad and y.grad.tolist() == [3.0, 3.0]


class Named(pf.Tensor):
    """A subclass."""


def test_subclasses() -> None:
    x = pf.ones(3, requires_grad=True)
    named = (x * 2).as_subclass(Named)
    assert type(named) is Named
    (named * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0] * 3
    y = pf.zeros(3)
    y.as_subclass(Named).add_(1)
    assert y.tolist() == [1.0] * 3
    with pytest.raises(pf.ArgumentTypeError):
        y.as_subclass(int)


def test_gradients_through_as_strided_in_place() -> None:
    for lib in (pf, torch):
        x = lib.arange(4.0).requires_grad_()
        (x * 2).as_strided_((2, 2), (1, 1)).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0, 2.0, 0.0]
        with pytest.raises(pf.GradientError if lib is pf else RuntimeError):
            x.as_strided_((2,), (1,))


def test_what_it_is() -> None:
    x = pf.ones(2, 3)
    assert x.layout is pf.strided and x.name is None and x.grad_dtype is pf.float32
    assert not any((x.is_xla, x.is_ipu, x.is_maia, x.is_mtia, x.is_vulkan, x.is_distributed()))
    with pytest.raises(pf.ArgumentError, match="dim_order"):
        pf.ones(1).expand(2, 2).dim_order(ambiguity_check=True)
    assert x[:, 0].as_strided_((2,), (1,)).tolist() == [1, 1]
    part = pf.arange(6).view(2, 3)[1]
    assert part.as_strided_((2,), (2,)).tolist() == [3, 5]
