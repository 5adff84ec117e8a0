"""Families of aten ops that run wholly here with eager torch's values and gradients: transforms, factorisations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import pyflame.bridge.torch as bridge
from pyflame.bridge.torch.backend import compile_graph
from pyflame.bridge.torch.options import Options
from pyflame.bridge.torch.program import Program
from pyflame.bridge.torch.rows import matrices
from pyflame.bridge.torch.split import fallen


def check(functions: dict[str, Any], *inputs: torch.Tensor) -> None:
    """All functions as one graph: nothing falls back, and results and gradients are eager torch's."""
    fallbacks: dict[str, str] = {}

    def backend(graph: Any, given: Any) -> Any:
        return compile_graph(graph, given, Options(), lambda _, p: fallbacks.update(dict(_fallen(p))))

    def together(*args: torch.Tensor) -> list[Any]:
        return [fn(*args) for fn in functions.values()]

    runs = []
    for function in (torch.compile(together, backend=backend, fullgraph=True), together):
        out = function(*inputs)
        total = sum((torch.view_as_real(o) if o.is_complex() else o).square().mean() for o in out)
        runs.append([*out, *torch.autograd.grad(total, inputs)])
    for name, got, want in zip([*functions, *("gradient" for _ in inputs)], *runs, strict=True):
        tolerance = 2e-4 * float(want.detach().abs().max())
        torch.testing.assert_close(got, want, rtol=2e-4, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}")
    assert not fallbacks


def _fallen(program: Program) -> Iterator[tuple[str, str]]:
    return ((str(node.target), why) for node, why in fallen(program.why).items())


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def positive(x: torch.Tensor) -> torch.Tensor:
    return x @ x.mT + torch.eye(x.shape[-1])


TRANSFORMS = {
    "fft": lambda x: torch.fft.fft(x, norm="ortho"),
    "rfftn": lambda x: torch.fft.rfftn(x, dim=(0, 1)),
    "rfft to irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x).conj() * 2, n=7),
    "hfft": lambda x: torch.fft.hfft(x, norm="forward"),
    "stft": lambda x: torch.stft(x.reshape(-1), 8, window=torch.ones(8), return_complex=True),
}


@pytest.mark.slow
def test_fourier_transforms() -> None:
    check(TRANSFORMS, floats(4, 6))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    """The gradient in bfloat16 is rounded once: at its end."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x * 2, approximate=approximate)

    x = floats(5, 40)
    check({"gelu": fn}, x)
    half, wide = x.detach().bfloat16(), x.detach().bfloat16().double()
    grads = []
    for function, given in ((torch.compile(fn, backend=bridge.backend), half), (fn, wide)):
        given.requires_grad_()
        grads += torch.autograd.grad(function(given).sum(), given)
    torch.testing.assert_close(grads[0].double(), grads[1], rtol=2**-8, atol=1e-6)


FACTORISATIONS = {
    "inv": lambda x: torch.linalg.inv(positive(x)).sin(),
    "solve": lambda x: torch.linalg.solve(positive(x), x[..., :2]),
    "solve from a transpose": lambda x: torch.linalg.solve(positive(x).mT.contiguous().mT + x.mT, x),
    "det": lambda x: torch.linalg.det(x) + torch.linalg.det(x.mT + 1),
    "slogdet": lambda x: torch.linalg.slogdet(x).logabsdet + torch.logdet(positive(x)),
    "cholesky": lambda x: torch.linalg.cholesky(positive(x)) + torch.linalg.cholesky(positive(x), upper=True),
    "qr": lambda x: torch.linalg.qr(x).R.abs(),
    "svd": lambda x: torch.linalg.svdvals(x) + torch.linalg.svd(x).S,
    "eigh": lambda x: torch.linalg.eigh(positive(x)).eigenvalues + torch.linalg.eigvalsh(positive(x)),
    "lu": lambda x: torch.linalg.lu(x).L,
    "pinv": lambda x: torch.linalg.pinv(x),
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x / 2),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(positive(x).tril(), x, upper=False),
}


@pytest.mark.slow
def test_factorisations() -> None:
    check(FACTORISATIONS, floats(2, 4, 4))


def test_ldl_factors_run_here() -> None:
    def solved(x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, b = x.detach(), b.detach()  # torch has no gradients of these
        factors, pivots, info = torch.linalg.ldl_factor_ex(x + x.mT)
        return factors, pivots, info, torch.linalg.ldl_solve(factors, pivots, b)

    given = floats(2, 4, 4), floats(2, 4, 3)
    told = bridge.explain(solved, *given)
    assert not told.fallbacks
    for ours, theirs in zip(torch.compile(solved, backend="pyflame")(*given), solved(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_explain_tells_what_runs_between_plans(capsys: pytest.CaptureFixture[str]) -> None:
    bridge.explain(lambda x: torch.linalg.inv(x).cos(), torch.eye(3))
    assert "2 ops here in 1 plan, 1 of them between plans, 0 in torch" in capsys.readouterr().out


def test_what_has_no_factors_raises_as_in_torch() -> None:
    inverse = torch.compile(lambda x: torch.linalg.inv(x), backend="pyflame")
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        inverse(torch.zeros(3, 3))
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        torch.compile(lambda x: torch.linalg.eigvals(x), backend="pyflame")(torch.full((2, 2), torch.inf))
    _, info = torch.compile(lambda x: torch.linalg.cholesky_ex(x), backend="pyflame")(-torch.eye(3))
    assert int(info) == 1


def test_large_lu_factors_are_left_to_torch() -> None:
    told = bridge.explain(lambda x: torch.linalg.det(x), torch.eye(matrices.LARGEST + 1))
    assert "aten._linalg_det.default" in told.fallbacks


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bags(mode: str) -> None:
    bags = nn.EmbeddingBag(7, 3, mode=mode)
    indices, offsets = torch.tensor([1, 2, 2, 5, 6]), torch.tensor([0, 2, 2])
    check({mode: lambda w: nn.functional.embedding_bag(indices, w, offsets, mode=mode)}, bags.weight)


OTHERS = {
    "masked_scatter": lambda x: torch.zeros(4, 6).masked_scatter(torch.ones(6).cumsum(0) > 2, x * 2),
    "bilinear": lambda x: nn.functional.bilinear(x, x, x[:3, :, None].expand(3, 6, 6)),
    "selu": nn.functional.selu,
    "mean of channels last": lambda x: nn.functional.adaptive_avg_pool2d(
        x.reshape(2, 3, 2, 2).mT.mT.permute(0, 2, 3, 1), 1
    ),
    "as_strided": lambda x: torch.as_strided(x * 2, (3, 2), (2, 3), 1),
    "weight_norm": lambda x: torch._weight_norm(x, x[:, :1] + 2, 0) + torch._weight_norm(x, x[:1] + 2, 1),
    "pdist": nn.functional.pdist,
    "log_ndtr": lambda x: torch.special.log_ndtr(x * 20),
    "fractional_max_pool2d": lambda x: nn.functional.fractional_max_pool2d(
        x[None], 2, (2, 3), _random_samples=torch.full((1, 1, 2), 0.7)
    ),
    "conv_tbc": lambda x: torch.conv_tbc(x.reshape(4, 2, 3), x.reshape(2, 3, 4), x[:, 0], 1),
    "histogram": lambda x: torch.histogram(x.detach(), 4).hist,
    "nearest grid_sample": lambda x: nn.functional.grid_sample(
        x[None, None], x.reshape(1, 3, 4, 2), mode="nearest", align_corners=False
    ),
}


@pytest.mark.slow
def test_others() -> None:
    check(OTHERS, floats(4, 6))
