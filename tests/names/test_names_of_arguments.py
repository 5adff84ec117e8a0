"""Functions take their arguments by PyTorch's names, in PyTorch's order: each line runs with torch and with PyFlame."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pyflame as pf

BY_NAME = [
    "t.where(x > 0, input=x, other=y)", "t.max(x, other=y)", "x.min(other=y)", "t.nonzero(input=x)",
    "t.masked_select(input=x, mask=x > 0)", "t.split(tensor=x, split_size_or_sections=1, dim=1)",
    "t.clamp_min(x, min=0.0)", "x.clamp_max(max=0.0)", "t.relu_(input=x.clone())", "t.det(input=s)",
    "t.linalg.det(A=s)", "t.linalg.svd(A=s, full_matrices=False)[1]", "t.linalg.norm(input=x, dim=1)",
    "t.linalg.solve(A=s, B=s)", "t.linalg.eigvalsh(input=s + s.t(), UPLO='L')", "t.linalg.qr(A=s, mode='r')[1].abs()",
    "t.linalg.matrix_norm(input=s, ord='nuc')", "t.linalg.vector_norm(input=x, ord=1)", "t.arange(end=3)",
    "t.equal(input=x, other=x)", "t.dot(input=x[0], tensor=y[0])", "x[0].dot(tensor=y[0])", "t.inverse(input=s)",
    "t.numel(input=x)", "t.argwhere(input=x > 0)", "t.bincount(input=i)", "t.matrix_power(input=s, n=2)",
    "t.repeat_interleave(input=x, repeats=2, dim=0)", "t.repeat_interleave(repeats=i)", "t.unique(input=i)",
    "t.unique_consecutive(input=i)", "t.isin(elements=i, test_element=1)", "t.isin(element=1, test_elements=i)",
    "t.ones(1, dtype=t.promote_types(type1=t.float32, type2=t.int32))", "x.view(size=(12,))",
    "x.clone().copy_(other=y)",
    "t.ones(1, dtype=t.result_type(tensor=x, other=1))", "t.permute(input=x, dims=(1, 0))", "t.flip(input=x, dims=[0])",
    "x.clone().requires_grad_(requires_grad=False)", "x.clone().uniform_(to=0.0)", "x.clone().random_(to=1)",
    "t.tensor_split(x, sections=2)[1]", "t.tensor_split(x, indices=[1])[1]", "t.hsplit(x, sections=2)[1]",
    "t.special.zeta(input=x.abs() + 2, other=y.abs() + 1)", "t.igamma(input=x.abs(), other=y.abs())",
    "t.atan2(input=x, other=y)", "t.pow(self=2.0, exponent=x)", "t.tile(input=x, dims=(2, 1))",
    "t.broadcast_to(input=x[0], size=(3, 4))", "t.logdet(input=s @ s.t())", "t.linalg.pinv(input=s, rcond=1e-5)",
    "t.linalg.matrix_rank(input=s, tol=1e-5)", "t.linalg.cond(input=s)", "t.linalg.slogdet(A=s)[1]",
    "t.linalg.cholesky(input=s @ s.t() + 4 * t.eye(4))", "nn.Hardtanh(min_value=-0.5, max_value=0.5)(x)",
    "nn.ModuleDict(modules={'a': nn.Identity()})['a'](x)", "t.cholesky_inverse(input=t.eye(3) * 2)",
]  # fmt: skip
IN_ORDER = [
    "F.cross_entropy(x, i, None, False)", "F.cross_entropy(x, i, None, None, 1)",
    "F.cross_entropy(x, i, c, None, -100, None, 'sum', 0.1)", "F.cross_entropy(x, i, None, True, -100, False)",
    "F.nll_loss(x, i, None, False)", "F.nll_loss(x, i, c, None, 1, None, 'none')", "F.mse_loss(x, y, None, False)",
    "F.mse_loss(x, y, False)", "F.mse_loss(x, y, weight=w)", "F.mse_loss(x, y, None, None, 'sum', w)",
    "F.l1_loss(x, y, weight=w)", "F.l1_loss(x, y, reduction='none', weight=w)", "F.l1_loss(x, y, True, False)",
    "F.huber_loss(x, y, weight=w)", "F.huber_loss(x, y, 'none', 0.5, w)", "F.huber_loss(x, y, 'sum', 0.5)",
    "F.binary_cross_entropy_with_logits(x, w, None, False)", "F.kl_div(x, w, False)",
    "F.soft_margin_loss(x, sign, False)",
    "F.binary_cross_entropy_with_logits(x, w, None, None, None, 'sum', c)",
    "F.kl_div(x, w, None, None, 'batchmean', True)",
    "F.binary_cross_entropy(w, w, None, False)", "F.smooth_l1_loss(x, y, None, None, 'sum', 0.5)",
    "F.cosine_embedding_loss(x, y, sign[:, 0], 0.1, False)", "F.hinge_embedding_loss(x, sign, 0.5, None, False)",
    "F.margin_ranking_loss(x, y, sign, 0.5, False)", "F.multi_margin_loss(x, i, 1, 0.5, None, False)",
    "F.multilabel_soft_margin_loss(x, w, None, False)",
    "F.poisson_nll_loss(x, w, True, False, None, 1e-8, None, 'sum')",
    "F.triplet_margin_loss(x, y, w, 1.0, 2, 1e-6, True, False)", "F.mse_loss(x, y, size_average=False)",
    "F.gumbel_softmax(x, 1.0, True, 1e-10, -1).sum()", "F.gumbel_softmax(x, tau=1.0, eps=1e-10).sum()",
    "F.softmax(x, dim=1, _stacklevel=3)", "F.softmax(x, 1, 3)", "F.log_softmax(x, -1, 3, t.float64)",
    "F.softmin(x, 1, 3)",
    "F.softmax(x)", "F.softmax(x[None])", "F.log_softmax(x[None, None])", "F.softmin(x[0])", "nn.Softmax()(x[None])",
    "nn.LogSoftmax()(x[None, None])", "nn.Softmin(dim=None)(x[None])",
]  # fmt: skip


@pytest.mark.parametrize("line", [*BY_NAME, *IN_ORDER])
@pytest.mark.filterwarnings("ignore:.*(deprecated|[Ii]mplicit dimension|the axis is guessed)")
def test_arguments_as_torch_has_them(line: str) -> None:
    found = []
    for library in (torch, pf):
        numbers = np.random.default_rng(0)
        x, y, w = (library.tensor(numbers.normal(size=(3, 4)).astype("float32")) for _ in range(3))
        names = {
            "t": library, "nn": library.nn, "F": library.nn.functional, "x": x, "y": y, "w": w.sigmoid(),
            "i": library.tensor([1, 2, 0]), "s": library.tensor(numbers.normal(size=(4, 4)).astype("float32")),
            "c": library.tensor([1.0, 2.0, 3.0, 4.0]), "sign": library.sign(y),
        }  # fmt: skip
        value = eval(line, names)
        found.append((value.numpy(), str(value.dtype).split(".")[-1]) if hasattr(value, "numpy") else (value, ""))
    (theirs, their_dtype), (ours, our_dtype) = found
    assert their_dtype == our_dtype and np.shape(theirs) == np.shape(ours)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_unknown_names_and_odd_weights_raise() -> None:
    x = pf.ones(2, 2)
    for wrong in (lambda: pf.det(inputs=x), lambda: pf.arange(), lambda: pf.igamma(x, elsewhere=x)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="weights of the input's shape"):
        pf.nn.functional.mse_loss(x, x, weight=pf.ones(2))
