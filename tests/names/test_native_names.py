"""Functions of `torch` itself that its own layers call: recurrences, norms with statistics, factorisations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from tests.oracle import assert_close


def both(*shape: int, seed: int = 0, dtype: Any = np.float32) -> tuple[pf.Tensor, torch.Tensor]:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)
    return pf.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)


def same(got: Any, want: Any, what: str, dtype: pf.DType = pf.float32) -> None:
    for a, b in zip(got, want, strict=True):
        assert tuple(a.shape) == tuple(b.shape), what
        assert_close(a.detach(), b.detach(), dtype, what)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN", "RNN relu", "LSTM projected"])
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_functions(name: str, layers: int) -> None:
    kind = name.split()[0]
    options: dict[str, Any] = dict(bidirectional=layers == 2, batch_first=layers == 1, bias=layers == 2)
    options |= dict(nonlinearity="relu") if name.endswith("relu") else {}
    options |= dict(proj_size=3) if name.endswith("projected") else {}
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 5, layers, **options)
    ours = [pf.tensor(p.detach().numpy(), requires_grad=True) for p in layer.parameters()]
    count, (x, y) = layers * (1 + options["bidirectional"]), both(3, 2, 4)
    batch = 3 if options["batch_first"] else 2
    h, th = both(count, batch, options.get("proj_size", 5))
    c, tc = both(count, batch, 5, seed=1)
    states = ((h, c), (th, tc)) if kind == "LSTM" else (h, th)
    function = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_relu" if name.endswith("relu") else "rnn_tanh"}[kind]
    rest = (options["bias"], layers, 0.0, True, options["bidirectional"], options["batch_first"])
    got = getattr(pf, function)(x, states[0], ours, *rest)
    want = getattr(torch, function)(y, states[1], list(layer.parameters()), *rest)
    same(got, want, function)
    got[0].square().sum().backward(), want[0].square().sum().backward()
    same([x.grad, h.grad], [y.grad, th.grad], "gradient")
    same([p.grad for p in ours], [p.grad for p in layer.parameters()], "gradient of a weight")
    with pytest.raises(pf.ArgumentError, match="weights"):
        getattr(pf, function)(x, states[0], ours[2:], *rest)


@pytest.mark.parametrize("name", ["lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"])
def test_cells(name: str) -> None:
    gates = {"lstm_cell": 4, "gru_cell": 3}.get(name, 1)
    pairs = [both(2, 4), both(gates * 5, 4), both(gates * 5, 5), both(gates * 5), both(gates * 5, seed=1)]
    (h, th), (c, tc) = both(2, 5), both(2, 5, seed=1)
    state = ((h, c), (th, tc)) if gates == 4 else (h, th)
    for biases in (5, 3):
        args = [(a, b) for a, b in pairs[:biases]]
        got = getattr(pf, name)(args[0][0], state[0], *[a for a, _ in args[1:]])
        want = getattr(torch, name)(args[0][1], state[1], *[b for _, b in args[1:]])
        same(got if gates == 4 else [got], want if gates == 4 else [want], name)


@pytest.mark.slow
def test_norms_with_statistics() -> None:
    (x, y), (w, tw), (b, tb) = both(2, 6, 4), both(6), both(6, seed=1)
    (v, tv) = both(4)
    same(pf.native_layer_norm(x, [4], v, None, 1e-5), torch.native_layer_norm(y, [4], tv, None, 1e-5), "layer")
    args = (2, 6, 4, 3, 1e-5)
    same(pf.native_group_norm(x, w, b, *args), torch.native_group_norm(y, tw, tb, *args), "group")
    with pytest.raises(pf.ShapeError, match="pixels"):
        pf.native_group_norm(x, w, b, 2, 6, 5, 3, 1e-5)
    for training in (True, False):
        mean, var = pf.zeros(6), pf.ones(6)
        tmean, tvar = torch.zeros(6), torch.ones(6)
        got = pf.native_batch_norm(x, w, b, mean, var, training, 0.1, 1e-5)
        want = torch.native_batch_norm(y, tw, tb, tmean, tvar, training, 0.1, 1e-5)
        same([*got, mean, var], [*want, tmean, tvar], "batch")
    for dim in (0, 1, -1):
        same([pf.norm_except_dim(x, 2, dim)], [torch.norm_except_dim(y, 2, dim)], "norm_except_dim")


@pytest.mark.slow
def test_dropout_by_these_names() -> None:
    x = pf.ones(2000).requires_grad_()
    out, mask = pf.native_dropout(x, 0.25, True)
    assert mask.dtype is pf.bool_ and out.tolist() == (mask.float() / 0.75).tolist()
    assert 0.65 < mask.float().mean().item() < 0.85
    out.sum().backward()
    assert x.grad.tolist() == out.tolist()
    kept, mask = pf.native_dropout(x, 0.25, False)
    assert kept.tolist() == x.tolist() and bool(mask.all())
    assert pf.native_dropout(x, 1.0, True)[0].sum().item() == 0.0
    with pytest.raises(pf.ArgumentError, match="probability"):
        pf.native_dropout(x, 1.5, True)
    for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"):
        plane = pf.ones(40, 5, 3)
        assert getattr(pf, name)(plane, 0.5, True) is plane
        values = set(plane.flatten().tolist())
        assert len(values) == 2, name
        if name.startswith("feature"):
            assert bool((plane == plane[:, :, :1]).all())
        assert getattr(pf, name)(pf.ones(2, 2, 2), 0.5, False).tolist() == [[[1.0] * 2] * 2] * 2


@pytest.mark.slow
def test_windows_by_these_names() -> None:
    (x, y), (w, tw), (b, tb) = both(2, 4, 6, 5), both(4, 2, 3, 3), both(4)
    for transposed in (False, True):
        rest = ([2, 1], [1, 0], [1, 2], transposed, [1, 0] if transposed else [0, 0], 2)
        bias = (None, None) if transposed else (b, tb)
        same([pf.convolution(x, w, bias[0], *rest)], [torch.convolution(y, tw, bias[1], *rest)], "convolution")
    same([pf.constant_pad_nd(x, [1, -1, 0, 2], 3)], [torch.constant_pad_nd(y, [1, -1, 0, 2], 3)], "pad")
    theta, their = both(2, 2, 3)
    grid, places = (lib.affine_grid_generator(t, [2, 4, 3, 3], False) for lib, t in ((pf, theta), (torch, their)))
    same([grid], [places], "affine_grid_generator")
    for mode, pad in ((0, 0), (1, 1), (0, 2)):
        same([pf.grid_sampler(x, grid, mode, pad, True)], [torch.grid_sampler(y, places, mode, pad, True)], "grid")
    with pytest.raises(pf.ArgumentError, match="modes"):
        pf.grid_sampler_2d(x, grid, 5, 0, True)
    table, theirs = both(5, 3)
    rows = [t.detach().clone() for t in (table, theirs)]
    (
        pf.embedding_renorm_(rows[0], pf.tensor([0, 3]), 0.5, 2.0),
        torch.embedding_renorm_(rows[1], torch.tensor([0, 3]), 0.5, 2.0),
    )
    same(rows[:1], rows[1:], "embedding_renorm_")


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (7, 7), (2, 3, 5, 5), (0, 0), (3, 0, 0)])
def test_ldl(shape: tuple[int, ...]) -> None:
    for hollow in (False, True):  # zeros on the diagonal need blocks of two
        a = np.random.default_rng(len(shape)).standard_normal(shape)
        a = a + a.swapaxes(-1, -2)
        if hollow:
            a = a * (1 - np.eye(shape[-1]))
        got, want = pf.linalg.ldl_factor_ex(pf.tensor(a)), torch.linalg.ldl_factor_ex(torch.tensor(a))
        same([got.LD.tril()], [want.LD.tril()], "LD", pf.float64)
        assert got.pivots.tolist() == want.pivots.tolist() and got.pivots.dtype is pf.int32
        assert got.info.tolist() == want.info.tolist()
        if not want.info.any():
            b, tb = both(*shape[:-1], 2, dtype=np.float64)
            x, y = pf.linalg.ldl_solve(got.LD, got.pivots, b), torch.linalg.ldl_solve(want.LD, want.pivots, tb.detach())
            same([x], [y], "solution", pf.float64)
            (x * x).sum().backward(), (torch.linalg.solve(torch.tensor(a), tb) ** 2).sum().backward()
            same([b.grad], [tb.grad], "gradient", pf.float64)  # torch has none for ldl_solve


def test_ldl_refuses() -> None:
    with pytest.raises(RuntimeError, match="block of 0"):
        pf.linalg.ldl_factor(pf.zeros(2, 2))
    assert (
        pf.linalg.ldl_factor_ex(pf.zeros(2, 2)).info.item() == torch.linalg.ldl_factor_ex(torch.zeros(2, 2)).info.item()
    )
    factor = pf.linalg.ldl_factor(pf.eye(3))
    with pytest.raises(pf.ShapeError, match="rows of B"):
        pf.linalg.ldl_solve(*factor, pf.ones(2, 1))
    with pytest.raises(pf.ShapeError, match="square"):
        pf.linalg.ldl_factor(pf.ones(2, 3))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("general", [True, False])
def test_lobpcg(largest: bool, general: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (m @ m.T + np.eye(12) for m in rng.standard_normal((2, 12, 12)))
    torch.manual_seed(0)
    want, _ = torch.lobpcg(torch.tensor(a), 3, torch.tensor(b) if general else None, largest=largest, niter=500)
    got, vectors = pf.lobpcg(pf.tensor(a), 3, pf.tensor(b) if general else None, largest=largest)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4)
    x = vectors.numpy()
    np.testing.assert_allclose(a @ x, (b if general else np.eye(12)) @ x * got.numpy(), atol=1e-8)
    with pytest.raises(pf.ArgumentError, match="k from 1"):
        pf.lobpcg(pf.tensor(a), 13)


def test_small_names() -> None:
    assert pf.cond(pf.tensor(2) > 1, lambda x: x + 1, lambda x: x, [pf.ones(1)]).item() == 2.0
    assert pf.cond(False, lambda: 1, lambda: 2) == 2
    with pytest.raises(pf.TraceError):
        pf.jit(lambda x: pf.cond(x.sum() > 0, lambda: x, lambda: -x))(pf.ones(2))
    strides = ((2, 3, 4), (1, 8, 2)), ((2, 3), (3, 1)), ((), ()), ((1, 4), (7, 1))
    for size, stride in strides[:3]:
        made, want = pf.empty_strided(size, stride, dtype=pf.float64), torch.empty_strided(size, stride)
        assert made.shape == tuple(want.shape) and made.stride() == want.stride() and made.dtype is pf.float64
    assert pf.empty_strided(*strides[3]).shape == (1, 4)
    with pytest.raises(pf.NotSupportedError, match="gaps"):
        pf.empty_strided((2, 2), (4, 1))
    assert pf.empty_permuted((2, 3, 4), (2, 0, 1)).stride() == torch.empty_permuted((2, 3, 4), (2, 0, 1)).stride()
    with pytest.raises(pf.ArgumentError, match="order"):
        pf.empty_permuted((2, 3), (0, 0))
    assert pf.typename(nn.Linear(1, 1)) == "pyflame.nn.linear.Linear" and pf.typename(3) == "int"
    assert not any(question(pf.ones(1)) for question in (pf.is_storage, pf.is_conj, pf.is_neg, pf.is_inference))
    assert [t.tolist() for t in pf.unsafe_split_with_sizes(pf.arange(3), [1, 2])] == [[0], [1, 2]]
    try:
        pf.set_deterministic_debug_mode("error")
        assert pf.get_deterministic_debug_mode() == 2 and pf.are_deterministic_algorithms_enabled()
    finally:
        pf.set_deterministic_debug_mode(0)
    assert pf.get_deterministic_debug_mode() == 0 and not pf.is_deterministic_algorithms_warn_only_enabled()
    with pytest.raises(pf.ArgumentError, match="expected 0"):
        pf.set_deterministic_debug_mode("loud")
