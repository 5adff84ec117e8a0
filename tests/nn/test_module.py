"""What a Module is: attributes, traversal, modes, conversions, hooks, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(pf.ones(2))
        self.register_buffer("offset", pf.zeros(2))
        self.register_buffer("scratch", pf.zeros(1), persistent=False)
        self.label = "net"

    def forward(self, x: Any, shift: float = 0.0) -> Any:
        return self.last(self.norm(self.first(x))) * self.scale + self.offset + shift


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2, bias=False))
        self.scale = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3, bias=False)
        self.b = nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight


def x(n: int = 5) -> pf.Tensor:
    return pf.tensor(np.random.default_rng(0).standard_normal((n, 3)), dtype=pf.float32)


# --- names ------------------------------------------------------------------------------------------------------------


def test_traversal_is_that_of_torch() -> None:
    ours, theirs = Net(), TorchNet()
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(ours, method)()] == [n for n, _ in getattr(theirs, method)()], method
    for method in ("parameters", "buffers", "modules", "children"):
        assert len(list(getattr(ours, method)())) == len(list(getattr(theirs, method)())), method
    assert [n for n, _ in ours.named_parameters("p", recurse=False)] == ["p.scale"]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(ours.state_dict(prefix="m.")) == list(theirs.state_dict(prefix="m."))


def test_repr_is_that_of_torch() -> None:
    theirs = repr(TorchNet()).replace("TorchNet", "Net")
    assert repr(Net()) == theirs
    nested = [
        lib.Sequential(lib.ModuleList([lib.ReLU()] * 3), lib.ModuleDict({"a": lib.Tanh()})) for lib in (nn, torch.nn)
    ]
    assert repr(nested[0]) == repr(nested[1])


def test_extra_repr_of_several_lines() -> None:
    class Shown(nn.Module):
        def extra_repr(self) -> str:
            return "one\ntwo"

    assert repr(Shown()) == "Shown(\n  one\n  two\n)"


def test_tied_weights_come_once_but_are_saved_under_both_names() -> None:
    tied = Tied()
    assert [n for n, _ in tied.named_parameters()] == ["a.weight"]
    assert [n for n, _ in tied.named_parameters(remove_duplicate=False)] == ["a.weight", "b.weight"]
    assert list(tied.state_dict()) == ["a.weight", "b.weight"]
    for clone in (copy.deepcopy(tied), pickle.loads(pickle.dumps(tied))):
        assert clone.a.weight is clone.b.weight and clone.a.weight is not tied.a.weight
    (tied.a(pf.ones(1, 3)) + tied.b(pf.ones(1, 3))).sum().backward()
    assert tied.a.weight.grad.tolist() == [[2.0] * 3] * 3


def test_a_shared_module_comes_once() -> None:
    layer = nn.ReLU()
    model = nn.Sequential(layer, nn.Sequential(layer))
    assert [n for n, _ in model.named_modules()] == ["", "0", "1"]
    assert [n for n, _ in model.named_modules(remove_duplicate=False)] == ["", "0", "1", "1.0"]


def test_get_by_path() -> None:
    net = Net()
    assert net.get_submodule("last.2") is net.last[2]
    assert net.get_submodule("") is net
    assert net.get_parameter("first.weight") is net.first.weight
    assert net.get_buffer("norm.running_mean") is net.norm.running_mean
    with pytest.raises(AttributeError, match=r"has no submodule 'frist' .*did you mean 'first'"):
        net.get_submodule("frist.weight")
    with pytest.raises(AttributeError, match=r"no parameter 'first.wait'.*did you mean 'weight'"):
        net.get_parameter("first.wait")


# --- attributes -------------------------------------------------------------------------------------------------------


def test_assignment_before_init_is_explained() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.ReLU()

    with pytest.raises(pf.ArgumentError, match=r"expected super\(\).__init__\(\) before 'layer'"):
        Early()


def test_a_wrong_attribute_name_is_corrected() -> None:
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'weigth'; did you mean 'weight'"):
        nn.Linear(2, 2).weigth


def test_parameters_modules_and_buffers_keep_their_kind() -> None:
    net = Net()
    with pytest.raises(pf.PyFlameError, match=r"expected an nn.Parameter or None as 'scale' but got Tensor"):
        net.scale = pf.ones(2)
    with pytest.raises(pf.PyFlameError, match="expected a module or None as 'first' but got int"):
        net.first = 3
    with pytest.raises(pf.PyFlameError, match="expected a tensor or None as 'offset' but got list"):
        net.offset = [1, 2]
    net.offset = pf.ones(2)
    assert "offset" in net.state_dict()
    net.scale = None
    assert net.scale is None and "scale" not in dict(net.named_parameters())


def test_an_attribute_may_become_a_parameter_and_go_away() -> None:
    net = Net()
    net.label = nn.Parameter(pf.ones(1))
    assert "label" in dict(net.named_parameters())
    net.label = nn.ReLU()
    assert "label" not in dict(net.named_parameters()) and "label" in dict(net.named_children())
    del net.label
    assert not hasattr(net, "label")
    del net.scratch
    assert not hasattr(net, "scratch")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.register_buffer("a.b", pf.ones(1)), "expected a name without dots"),
        (lambda m: m.register_buffer("", pf.ones(1)), "expected a name without dots"),
        (lambda m: m.register_buffer("first", pf.ones(1)), "expected a new name but Net has 'first' already"),
        (lambda m: m.register_buffer("new", np.ones(1)), "expected a Tensor or None as 'new' but got ndarray"),
        (lambda m: m.register_parameter("new", pf.ones(1)), "expected a Parameter or None"),
        (lambda m: m.register_parameter("forward", None), "has 'forward' already"),
        (lambda m: m.add_module("new", pf.ones(1)), "expected a Module or None"),
        (lambda m: m.train("yes"), "expected True or False"),
        (lambda m: m.to(pf.int32), "expected a floating-point dtype"),
    ],
)
def test_mistakes_are_named(call: Any, message: str) -> None:
    with pytest.raises(pf.PyFlameError, match=message):
        call(Net())


def test_forward_must_be_written() -> None:
    with pytest.raises(NotImplementedError, match="expected Module to define forward"):
        nn.Module()(1)


def test_dir_lists_what_it_holds() -> None:
    assert {"scale", "first", "offset", "label", "forward"} <= set(dir(Net()))


# --- modes and gradients ----------------------------------------------------------------------------------------------


def test_train_and_eval_reach_every_module() -> None:
    net = Net()
    assert net.training and all(m.training for m in net.modules())
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.last.train()
    assert not net.training and net.last[1].training


def test_gradients_of_all_parameters() -> None:
    net = Net()
    net(x()).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.numpy().any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not net(x()).requires_grad
    net.requires_grad_()
    assert all(p.requires_grad for p in net.parameters())


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    Net().apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "BatchNorm1d", "ReLU", "Dropout", "Linear", "Sequential", "Net"]


# --- conversions ------------------------------------------------------------------------------------------------------


def test_to_converts_floats_in_their_cells() -> None:
    net = Net()
    cells = [*net.parameters(), *net.buffers()]
    net(x()).sum().backward()
    assert net.double() is net
    assert all(a is b for a, b in zip(cells, [*net.parameters(), *net.buffers()], strict=True))
    assert {t.dtype for t in net.parameters()} == {pf.float64} == {t.grad.dtype for t in net.parameters()}
    assert net.norm.num_batches_tracked.dtype is pf.int64
    net.zero_grad()
    net(x().double()).sum().backward()
    assert net.first.weight.grad.dtype is pf.float64


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda m: m.half(), pf.float16),
        (lambda m: m.bfloat16(), pf.bfloat16),
        (lambda m: m.to("float64"), pf.float64),
        (lambda m: m.to(dtype=pf.float16), pf.float16),
        (lambda m: m.to(pf.ones(1, dtype=pf.float64)), pf.float64),
        (lambda m: m.to("cpu", pf.float16), pf.float16),
        (lambda m: m.type(pf.float16).float(), pf.float32),
    ],
)
def test_dtypes(call: Any, dtype: pf.DType) -> None:
    layer = call(nn.Linear(2, 2))
    assert layer.weight.dtype is dtype and layer.weight.requires_grad
    assert layer(pf.ones(1, 2, dtype=dtype)).dtype is dtype


def test_to_a_device() -> None:
    layer = nn.Linear(2, 2).to("null:gfx942")
    assert layer.weight.device == "null:gfx942"
    assert layer(pf.ones(1, 2)).device == "null:gfx942"
    assert nn.Linear(2, 2, device="null:gfx942").bias.device == "null:gfx942"
    assert nn.Linear(2, 2).cpu().weight.device == "cpu"


def test_a_module_is_made_in_a_dtype() -> None:
    for layer in (
        nn.Linear(2, 2, dtype=pf.float16),
        nn.Conv1d(2, 2, 1, dtype=pf.float16),
        nn.BatchNorm1d(2, dtype="half"),
    ):
        floats = [t for t in (*layer.parameters(), *layer.buffers()) if t.dtype.is_float]
        assert floats and {t.dtype for t in floats} == {pf.float16}


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace() -> None:
    layer = nn.Identity()
    seen: list[Any] = []
    before = layer.register_forward_pre_hook(lambda m, args: (args[0] + 1.0,))
    after = layer.register_forward_hook(lambda m, args, out: seen.append(out) or out * 10.0)
    assert layer(pf.tensor(1.0)).item() == 20.0 and seen[0].item() == 2.0
    before.remove()
    assert layer(pf.tensor(1.0)).item() == 10.0
    after.remove()
    assert layer(pf.tensor(1.0)).item() == 1.0
    after.remove()  # a second time does nothing


def test_hooks_in_order_and_with_keywords() -> None:
    net = Net().eval()
    order: list[str] = []
    net.register_forward_hook(lambda m, args, out: order.append("second"))
    with net.register_forward_hook(lambda m, args, out: order.append("first"), prepend=True):
        net(x())
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"shift": kwargs["shift"] + 1.0}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: order.append(str(kwargs["shift"])), with_kwargs=True)
    shifted, plain = net(x(), shift=1.0), net.forward(x())
    np.testing.assert_allclose(shifted.numpy(), plain.numpy() + 2.0, rtol=1e-6)
    assert order == ["first", "second", "second", "2.0"]


def test_a_pre_hook_may_give_one_value() -> None:
    layer = nn.Identity()
    layer.register_forward_pre_hook(lambda m, args: pf.tensor(7.0))
    assert layer(pf.tensor(1.0)).item() == 7.0


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_copies_are_independent(duplicate: Any) -> None:
    net = Net()
    net.first.weight.note = "mine"
    net.scale.requires_grad_(False)
    other = duplicate(net)
    want = net.eval()(x()).numpy().copy()
    np.testing.assert_array_equal(other.eval()(x()).numpy(), want)
    assert isinstance(other.first.weight, nn.Parameter) and other.first.weight.note == "mine"
    assert not other.scale.requires_grad and other.first.weight.requires_grad
    with pf.no_grad():
        other.first.weight.zero_()
        other.norm.running_mean.add_(1.0)
    np.testing.assert_array_equal(net(x()).numpy(), want)
    assert list(other.state_dict()) == list(net.state_dict()) and other.label == "net"


def test_pickle_of_every_dtype_and_device() -> None:
    layer = nn.Linear(2, 2).to("cpu", pf.bfloat16)
    other = pickle.loads(pickle.dumps(layer))
    assert other.weight.dtype is pf.bfloat16 and other.weight.tolist() == layer.weight.tolist()


# --- parameters -------------------------------------------------------------------------------------------------------


def test_parameter_takes_values_without_their_tape() -> None:
    source = pf.ones(2, requires_grad=True) * 2.0
    p = nn.Parameter(source)
    assert p.is_leaf and p.requires_grad and p.tolist() == [2.0, 2.0]
    assert repr(p).startswith("Parameter containing:\ntensor(")
    assert nn.Parameter(np.ones(2, np.float32), requires_grad=False).requires_grad is False
    (p * 3.0).sum().backward()
    assert p.grad.tolist() == [3.0, 3.0]
    q = copy.copy(p)
    assert isinstance(q, nn.Parameter) and q.grad is p.grad
    with pytest.raises(pf.PyFlameError, match="expected a tensor but got None"):
        nn.Parameter(None)
    with pytest.raises(pf.GradientError, match="floating-point"):
        nn.Parameter([1, 2])


def test_vector_of_parameters() -> None:
    layer = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    want = torch.nn.utils.parameters_to_vector(
        [torch.from_numpy(p.detach().numpy().copy()) for p in layer.parameters()]
    )
    np.testing.assert_array_equal(vector.numpy(), want.numpy())
    weight = layer.weight
    nn.utils.vector_to_parameters(vector * 2.0, layer.parameters())
    assert layer.weight is weight and weight.is_leaf
    np.testing.assert_array_equal(nn.utils.parameters_to_vector(layer.parameters()).numpy(), want.numpy() * 2.0)
    with pytest.raises(pf.ShapeError, match=r"expected a vector of shape \(9,\) but got \(8,\)"):
        nn.utils.vector_to_parameters(pf.ones(8), layer.parameters())


# --- summary ----------------------------------------------------------------------------------------------------------


def test_summary() -> None:
    net = Net()
    net.norm.eval()
    shown = net.summary(x())
    assert shown.parameters == sum(p.numel() for p in TorchNet().parameters()) == 34
    assert shown.nbytes == 34 * 4 and shown.buffer_nbytes == (4 + 4 + 2 + 1) * 4 + 8
    assert [(r.name, r.kind, r.output, r.parameters) for r in shown.rows][:3] == [
        ("", "Net", "(5, 2)", 2),
        ("first", "Linear", "(5, 4)", 16),
        ("norm", "BatchNorm1d", "(5, 4)", 8),
    ]
    text = str(shown)
    assert "34 parameters (34 trainable), 136 B; buffers 52 B" in text and "    0" in text
    # it ran in evaluation mode, and left everything as it was
    assert net.training and not net.norm.training and net.norm.num_batches_tracked.item() == 0
    assert not net._forward_hooks
    net.first.requires_grad_(False)
    assert net.summary().trainable == 18 and "(5, 4)" not in str(net.summary())


def test_summary_computes_nothing() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    outputs = []
    model.register_forward_hook(lambda m, args, out: outputs.append(out))
    model.summary(x())
    assert outputs[0]._node.op.kind != "leaf"


def test_a_sparse_buffer() -> None:
    """It moves and converts with its module, and is not saved."""
    module = nn.Module()
    module.register_buffer("heads", pf.eye(3).to_sparse(), persistent=False)
    assert [name for name, _ in module.named_buffers()] == ["heads.indices", "heads.values"]
    assert module.state_dict() == {}
    module.to(pf.float16)
    assert module.heads.dtype is pf.float16
    module.heads = (2 * pf.eye(2)).to_sparse()
    assert module.heads.to_dense().tolist() == [[2.0, 0.0], [0.0, 2.0]]
    with pytest.raises(pf.NotSupportedError, match="persistent=False"):
        module.register_buffer("other", pf.eye(3).to_sparse())
