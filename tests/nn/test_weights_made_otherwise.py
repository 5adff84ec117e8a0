"""Orthogonal parametrizations, weights that a batch norm is folded into, older names and modules as functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from tests.oracle import assert_close


def both(*shape: int, seed: int = 0) -> tuple[pf.Tensor, torch.Tensor]:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
    return pf.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4, 4), {}),
        ((4, 4), dict(orthogonal_map="cayley")),
        ((4, 4), dict(orthogonal_map="householder")),
        ((5, 3), {}),
        ((3, 5), dict(orthogonal_map="cayley")),
        ((3, 5), dict(orthogonal_map="matrix_exp")),
        ((5, 3), dict(use_trivialization=False)),
        ((3, 5), dict(use_trivialization=False)),
        ((4, 4), dict(orthogonal_map="matrix_exp", use_trivialization=False)),
    ],
)
def test_orthogonal(shape: tuple[int, int], options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Linear(shape[1], shape[0])
    ours = nn.Linear(shape[1], shape[0])
    ours.load_state_dict(theirs.state_dict())
    torch.nn.utils.parametrizations.orthogonal(theirs, **options)
    nn.utils.parametrizations.orthogonal(ours, **options)
    if shape[0] == shape[1] or not options.get("use_trivialization", True):  # else part of it is drawn
        assert_close(ours.weight.detach(), theirs.weight, pf.float32, "the weight it starts with")
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        theirs.parametrizations.weight.original.add_(torch.randn(shape) * 0.3 * torch.ones(shape).tril(-1))
    ours.load_state_dict(theirs.state_dict())
    (x, y), flip = both(2, shape[1]), shape[0] < shape[1]
    out, want = ours(x), theirs(y)
    assert_close(out.detach(), want, pf.float32, "output", 10)
    (out * out * out).sum().backward(), (want**3).sum().backward()
    got, expected = (m.parametrizations.weight.original.grad for m in (ours, theirs))
    assert_close(got, expected, pf.float32, "gradient", 20)
    q = ours.weight.detach()
    product = q @ q.T if flip else q.T @ q
    np.testing.assert_allclose(product.numpy(), np.eye(min(shape)), atol=2e-5)


def test_orthogonal_takes_assignments_and_refuses() -> None:
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    turned = pf.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
    layer.weight = turned
    np.testing.assert_allclose(layer.weight.detach().numpy(), turned.numpy(), atol=1e-6)
    with pytest.raises(pf.ShapeError, match="shape"):
        layer.weight = pf.ones(2, 2)
    with pytest.raises(pf.ArgumentError, match="orthogonal_map"):
        nn.utils.parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="qr")
    with pytest.raises(pf.ShapeError, match="matrices"):
        nn.utils.parametrizations.orthogonal(nn.Linear(3, 3), "bias")
    fixed = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3), use_trivialization=False)
    with pytest.raises(pf.NotSupportedError, match="use_trivialization"):
        fixed.weight = turned


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3), (0, 3)])
def test_geqrf_and_ormqr(shape: tuple[int, ...]) -> None:
    x, y = both(*shape)
    (a, tau), (b, scale) = pf.geqrf(x), torch.geqrf(y)
    assert_close(a, b, pf.float32, "a")
    assert_close(tau, scale, pf.float32, "tau")
    other = np.random.default_rng(1).standard_normal((*shape[:-1], 2)).astype(np.float32)
    for transpose in (False, True):
        got = pf.ormqr(a, tau, pf.tensor(other), True, transpose)
        want = torch.ormqr(b[..., : scale.shape[-1]], scale, torch.tensor(other), True, transpose)
        assert_close(got, want, pf.float32, "from the left")
        flat = other.swapaxes(-1, -2).copy()
        got = a.ormqr(tau, pf.tensor(flat), False, transpose)
        want = torch.ormqr(b[..., : scale.shape[-1]], scale, torch.tensor(flat), False, transpose)
        assert_close(got, want, pf.float32, "from the right")


def test_folded_weights() -> None:
    (w, tw), (b, tb), (m, tm) = both(4, 3, 2, 2), both(4), both(4, seed=1)
    v = np.array([0.5, 1.0, 2.0, 0.1], np.float32)
    for bias, shift, flip in ((True, True, False), (False, False, False), (False, True, True)):
        ours = [w.transpose(0, 1) if flip else w, b if bias else None, m, pf.tensor(v), 1e-3, b, m if shift else None]
        theirs = [tw.transpose(0, 1) if flip else tw, tb if bias else None, tm, torch.tensor(v), 1e-3, tb]
        got = nn.utils.fuse_conv_bn_weights(*ours, flip)
        want = torch.nn.utils.fuse_conv_bn_weights(*theirs, tm if shift else None, flip)
        for a, c in zip(got, want, strict=True):
            assert isinstance(a, nn.Parameter)
            assert_close(a.detach(), c, pf.float32, "weights")
    got = nn.utils.fuse_linear_bn_weights(w[:, :, 0, 0], None, m, pf.tensor(v), 1e-3, b, m)
    want = torch.nn.utils.fuse_linear_bn_weights(tw[:, :, 0, 0], None, tm, torch.tensor(v), 1e-3, tb, tm)
    assert_close(got[0].detach(), want[0], pf.float32, "linear")


def test_skip_init_and_memory_formats() -> None:
    pf.manual_seed(3)
    want = pf.randn(2).tolist()
    pf.manual_seed(3)
    layer = nn.utils.skip_init(nn.Linear, 4, 5, dtype=pf.float64)
    assert layer.weight.shape == (5, 4) and layer.weight.dtype is pf.float64 and pf.randn(2).tolist() == want
    with pytest.raises(pf.ArgumentError, match="device"):
        nn.utils.skip_init(nn.ReLU)
    with pytest.raises(TypeError, match="class of modules"):
        nn.utils.skip_init(pf.ones)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv3d(2, 3, 2)), nn.Linear(2, 2))
    before = [p.detach().numpy().copy() for p in net.parameters()]
    assert nn.utils.convert_conv2d_weight_memory_format(net, pf.channels_last) is net
    assert net[0].weight.is_contiguous(memory_format=pf.channels_last)
    nn.utils.convert_conv3d_weight_memory_format(net, pf.channels_last_3d)
    for p, values in zip(net.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), values)


def test_older_names_warn() -> None:
    x = pf.empty(4, 4)
    for name in (
        "uniform",
        "normal",
        "xavier_uniform",
        "xavier_normal",
        "kaiming_uniform",
        "kaiming_normal",
        "orthogonal",
    ):
        with pytest.warns(FutureWarning, match=f"{name}_"):
            assert getattr(nn.init, name)(x) is x
    with pytest.warns(FutureWarning):
        assert nn.init.constant(x, 3.0).tolist() == [[3.0] * 4] * 4
    p = nn.Parameter(pf.zeros(2))
    p.grad = pf.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert nn.utils.clip_grad_norm(p, 1.0).item() == 5.0
    np.testing.assert_allclose(p.grad.numpy(), [0.6, 0.8], rtol=1e-5)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_multi_head_attention_as_a_function(apart: bool, weighed: bool) -> None:
    sizes = dict(kdim=6, vdim=5) if apart else {}
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, **sizes)
    (q, tq), (k, tk), (v, tv) = both(3, 2, 8), both(4, 2, 6 if apart else 8), both(4, 2, 5 if apart else 8, seed=1)
    mask = np.array([[False, False, True, False], [False] * 4])

    def run(lib: Any, f: Any, q: Any, k: Any, v: Any) -> Any:
        def own(t: Any) -> Any:
            return None if t is None else lib.tensor(t.detach().numpy())

        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        return f(
            q, k, v, 8, 2, own(layer.in_proj_weight), own(layer.in_proj_bias), own(layer.bias_k), own(layer.bias_v),
            True, 0.0, own(layer.out_proj.weight), own(layer.out_proj.bias), False, lib.tensor(mask), weighed,
            use_separate_proj_weight=apart, **{n: own(getattr(layer, n)) for n in names},
        )  # fmt: skip

    got, shown = run(pf, nn.functional.multi_head_attention_forward, q, k, v)
    want, known = run(torch, torch.nn.functional.multi_head_attention_forward, tq, tk, tv)
    assert_close(got.detach(), want, pf.float32, "output")
    assert (shown is None) == (known is None)
    if known is not None:
        assert_close(shown.detach(), known, pf.float32, "weights")
    got.square().sum().backward(), want.square().sum().backward()
    for ours, theirs in ((q, tq), (k, tk), (v, tv)):
        assert_close(ours.grad, theirs.grad, pf.float32, "gradient")


def test_functions_by_their_other_names() -> None:
    (x, y), (w, tw), (b, tb) = both(5, 2, 3), both(3, 3, 4), both(4)
    got, want = nn.functional.conv_tbc(x, w, b, 1), torch.nn.functional.conv_tbc(y, tw, tb, 1)
    assert_close(got.detach(), want, pf.float32, "conv_tbc")
    image, theirs = both(2, 4, 6)
    for name, *args in (("max_pool1d", 2), ("adaptive_max_pool1d", 3)):
        found = getattr(nn.functional, f"{name}_with_indices")(image, *args)
        known = getattr(torch.nn.functional, f"{name}_with_indices")(theirs, *args)
        assert found[0].tolist() == known[0].tolist() and found[1].tolist() == known[1].tolist()
    shuffled = nn.functional.native_channel_shuffle(image, 2)
    assert shuffled.tolist() == torch.nn.functional.native_channel_shuffle(theirs, 2).tolist()
    for name, args in (("threshold_", (0.2, -1.0)), ("rrelu_", (0.1, 0.3))):
        (x, y) = both(3, 4)
        x, y = x.detach().clone(), y.detach().clone()
        assert getattr(nn.functional, name)(x, *args) is x
        assert_close(x, getattr(torch.nn.functional, name)(y, *args), pf.float32, name)
