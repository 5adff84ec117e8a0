"""State dicts: into a module from anywhere, all or nothing, always into the same cells."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.core.errors import StateDictError


def model(library: Any = nn) -> Any:
    return library.Sequential(
        OrderedDict(
            conv=library.Conv2d(1, 2, 3),
            norm=library.BatchNorm2d(2),
            head=library.Sequential(library.Flatten(), library.Linear(8, 3)),
        )
    )


def values(module: Any) -> dict[str, list[Any]]:
    return {name: value.tolist() for name, value in module.state_dict().items()}


def test_torch_to_pyflame_and_back() -> None:
    theirs, ours = model(torch.nn), model()
    x = np.random.default_rng(0).standard_normal((4, 1, 4, 4)).astype(np.float32)
    theirs(torch.from_numpy(x))  # running statistics of some value
    ours.load_state_dict(theirs.state_dict())
    assert values(ours) == values(theirs)
    want = theirs.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours.eval()(pf.tensor(x)).numpy(), want, rtol=1e-5, atol=1e-6)
    other = model(torch.nn)
    other.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in ours.state_dict().items()})
    assert values(other) == values(theirs)


@pytest.mark.parametrize(
    "convert",
    [
        lambda t: t,
        lambda t: t.clone().requires_grad_(t.is_floating_point()),
        lambda t: t.numpy(),
        lambda t: pf.tensor(t.numpy()),
        lambda t: t.tolist(),
        lambda t: t.to(torch.bfloat16) if t.is_floating_point() else t,
        lambda t: t.t().contiguous().t() if t.ndim == 2 else t,
    ],
    ids=["torch", "requires_grad", "numpy", "pyflame", "lists", "bfloat16", "strided"],
)
def test_values_of_every_kind(convert: Any) -> None:
    state = model(torch.nn).state_dict()
    given = {name: convert(value) for name, value in state.items()}
    ours = model()
    ours.load_state_dict(given)
    for name, value in ours.state_dict().items():
        want = given[name].float() if getattr(given[name], "dtype", None) is torch.bfloat16 else state[name]
        np.testing.assert_array_equal(value.numpy(), want.detach().numpy(), err_msg=name)
        assert value.dtype is (pf.int64 if name.endswith("tracked") else pf.float32)


def test_the_cells_stay() -> None:
    ours = model()
    cells = [*ours.parameters(), *ours.buffers()]
    ours.load_state_dict(model().state_dict())
    assert all(a is b for a, b in zip(cells, [*ours.parameters(), *ours.buffers()], strict=True))
    assert all(p.is_leaf and p.requires_grad for p in ours.parameters())


def test_a_state_dict_shares_the_module_s_memory() -> None:
    ours = model()
    state = ours.state_dict()
    with pf.no_grad():
        for p in ours.parameters():
            p.add_(1.0)
    assert {name: value.tolist() for name, value in state.items()} == values(ours)
    state["conv.weight"].fill_(2.0)
    assert (ours.conv.weight.numpy() == 2.0).all()
    assert not any(value.requires_grad for value in state.values())
    assert ours.state_dict(keep_vars=True)["conv.weight"] is ours.conv.weight


def test_everything_wrong_is_listed_and_nothing_loaded() -> None:
    ours = model()
    before = values(ours)
    state = dict(model().state_dict())
    del state["conv.bias"], state["norm.weight"]
    state["head.1.weight"] = np.zeros((3, 9), np.float32)
    state["norm.running_mean"] = np.zeros(3, np.float32)
    state["extra"] = np.zeros(1)
    with pytest.raises(StateDictError) as caught:
        ours.load_state_dict(state)
    message = str(caught.value)
    assert "missing key(s): 'conv.bias', 'norm.weight'" in message
    assert "unexpected key(s): 'extra'" in message
    assert "size mismatch for head.1.weight: the dict has shape (3, 9), the module (3, 8)" in message
    assert "size mismatch for norm.running_mean: the dict has shape (3,), the module (2,)" in message
    assert isinstance(caught.value, RuntimeError)  # what PyTorch raises
    assert values(ours) == before
    with pytest.raises(StateDictError, match="size mismatch"):  # also without strict
        ours.load_state_dict(state, strict=False)
    assert values(ours) == before


def test_not_strict_loads_what_fits() -> None:
    ours, other = model(), model()
    state = dict(other.state_dict())
    del state["conv.bias"]
    state["extra"] = np.zeros(1)
    bias = ours.conv.bias.tolist()
    result = ours.load_state_dict(state, strict=False)
    assert result.missing_keys == ["conv.bias"] and result.unexpected_keys == ["extra"]
    assert "missing_keys=['conv.bias']" in repr(result)
    assert ours.conv.bias.tolist() == bias
    assert ours.conv.weight.tolist() == other.conv.weight.tolist()


def test_old_files_lack_the_count_of_batches() -> None:
    state = {name: value for name, value in model().state_dict().items() if not name.endswith("tracked")}
    assert str(model().load_state_dict(state)) == "<All keys matched successfully>"


def test_dtypes_are_converted_or_taken_over() -> None:
    ours = nn.Linear(2, 2)
    state = {name: value.half() for name, value in nn.Linear(2, 2).state_dict().items()}
    ours.load_state_dict(state)
    assert ours.weight.dtype is pf.float32
    weight = ours.weight
    ours.load_state_dict(state, assign=True)
    assert ours.weight is weight and weight.dtype is pf.float16 and weight.requires_grad
    ours(pf.ones(1, 2, dtype=pf.float16)).sum().backward()
    assert weight.grad.dtype is pf.float16


def test_devices_are_kept() -> None:
    ours = nn.Linear(2, 2, device="cpu")
    ours.load_state_dict({"weight": pf.eye(2), "bias": pf.zeros(2)})
    assert ours.weight._node.meta.committed


def test_loading_its_own_state_changes_nothing() -> None:
    ours = model()
    before = values(ours)
    ours.load_state_dict(ours.state_dict())
    assert values(ours) == before


def test_two_modules_with_one_state_stay_apart() -> None:
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    two.load_state_dict(one.state_dict())
    (one(pf.ones(1, 2)) * two(pf.ones(1, 2)) * pf.tensor([1.0, 2.0])).sum().backward()
    assert one.weight.grad is not None and two.weight.grad is not None
    np.testing.assert_allclose(one.weight.grad.numpy(), two.weight.grad.numpy())
    with pf.no_grad():
        one.weight.zero_()
    assert two.weight.numpy().any()


@pytest.mark.parametrize("given", [[1], None, "weights"])
def test_not_a_dict(given: Any) -> None:
    with pytest.raises(pf.PyFlameError, match="expected a dict of names and tensors"):
        model().load_state_dict(given)


def test_not_a_tensor() -> None:
    with pytest.raises(pf.PyFlameError, match="expected a tensor or an array as 'weight' but got object"):
        nn.Linear(2, 2).load_state_dict({"weight": object(), "bias": pf.ones(2)})
