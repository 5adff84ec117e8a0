"""Every distribution against torch's: densities, entropies, moments, divergences, gradients and samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

RNG = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float64)


def above(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.3, 2.5, shape).astype(np.float64)


def part(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.1, 0.9, shape).astype(np.float64)


def spread(n: int, *batch: int) -> np.ndarray[Any, Any]:
    a = real(*batch, n, n)
    return a @ np.swapaxes(a, -1, -2) + 0.5 * np.eye(n)


Kind = tuple[str, list[Any], dict[str, Any], np.ndarray[Any, Any]]
# name, positional parameters, keyword ones, values
CASES: list[Kind] = [
    ("Normal", [real(3), above(3)], {}, real(4, 3)),
    ("Normal", [real(2, 1), above(3)], {}, real(2, 3)),
    ("LogNormal", [real(3), above(3)], {}, above(4, 3)),
    ("HalfNormal", [above(3)], {}, above(4, 3)),
    ("Uniform", [real(3), real(3) + 6], {}, real(4, 3) + 2),
    ("Exponential", [above(3)], {}, above(4, 3)),
    ("Laplace", [real(3), above(3)], {}, real(4, 3)),
    ("Cauchy", [real(3), above(3)], {}, real(4, 3)),
    ("Gumbel", [real(3), above(3)], {}, real(4, 3)),
    ("Gamma", [above(3), above(3)], {}, above(4, 3)),
    ("Chi2", [above(3)], {}, above(4, 3)),
    ("Beta", [above(3), above(3)], {}, part(4, 3)),
    ("StudentT", [above(3) + 2, real(3), above(3)], {}, real(4, 3)),
    ("Dirichlet", [above(2, 4)], {}, RNG.dirichlet(np.ones(4), (5, 2))),
    ("Bernoulli", [part(3)], {}, RNG.integers(0, 2, (4, 3)).astype(np.float64)),
    ("Bernoulli", [], dict(logits=real(3)), RNG.integers(0, 2, (4, 3)).astype(np.float64)),
    ("Categorical", [above(2, 5)], {}, RNG.integers(0, 5, (4, 2))),
    ("Categorical", [], dict(logits=real(5)), RNG.integers(0, 5, (4, 2))),
    ("OneHotCategorical", [above(2, 4)], {}, np.eye(4)[RNG.integers(0, 4, (3, 2))]),
    ("Binomial", [np.array([3.0, 5.0, 7.0]), part(3)], {}, RNG.integers(0, 4, (4, 3)).astype(np.float64)),
    ("Binomial", [6], dict(logits=real(3)), RNG.integers(0, 7, (4, 3)).astype(np.float64)),
    ("Geometric", [part(3)], {}, RNG.integers(0, 7, (4, 3)).astype(np.float64)),
    ("Poisson", [above(3)], {}, RNG.integers(0, 7, (4, 3)).astype(np.float64)),
    ("Multinomial", [6, above(3)], {}, RNG.multinomial(6, [0.2, 0.3, 0.5], 4).astype(np.float64)),
    ("MultivariateNormal", [real(3), spread(3)], {}, real(4, 3)),
    ("MultivariateNormal", [real(2, 3)], dict(precision_matrix=spread(3, 2)), real(4, 2, 3)),
    ("MultivariateNormal", [real(3)], dict(scale_tril=np.linalg.cholesky(spread(3))), real(3)),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


def both(kind: Kind) -> tuple[Any, Any, list[Any], list[Any]]:
    name, args, kwargs, _ = kind
    out: list[Any] = []
    for lib in (pf, torch):

        def made(v: Any, lib: Any = lib) -> Any:
            return lib.tensor(v).requires_grad_() if isinstance(v, np.ndarray) else v

        given = [made(a) for a in args]
        named = {k: made(v) for k, v in kwargs.items()}
        extra = {} if lib is pf else {"validate_args": False}
        leaves = [t for t in (*given, *named.values()) if hasattr(t, "requires_grad_")]
        out.append((getattr(lib.distributions, name)(*given, **named, **extra), leaves))
    (ours, left), (theirs, right) = out
    return ours, theirs, left, right


def same(ours: Any, theirs: Any, what: str, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=max(tolerance, 1e-7), atol=1e-7, err_msg=what, strict=True
    )


@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_log_prob_and_its_gradients(kind: Kind) -> None:
    ours, theirs, left, right = both(kind)
    got, want = ours.log_prob(pf.tensor(kind[3])), theirs.log_prob(torch.tensor(kind[3]))
    same(got, want, "log_prob")
    got.sum().backward(), want.sum().backward()
    for a, b in zip(left, right, strict=True):
        if b.grad is not None:
            same(a.grad, b.grad, "gradient", 1e-6)


@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_moments_and_entropy(kind: Kind) -> None:
    ours, theirs, _, _ = both(kind)
    assert (ours.batch_shape, ours.event_shape) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    for name in ("mean", "variance", "stddev", "mode", "probs", "logits"):
        try:
            want = getattr(theirs, name)
        except (NotImplementedError, AttributeError):
            continue
        if (kind[0], name) not in {("Uniform", "mode"), ("Dirichlet", "mode"), ("Beta", "mode")}:
            same(getattr(ours, name), want, name)
    try:
        want = theirs.entropy()
    except NotImplementedError:
        return
    if kind[0] not in ("Binomial", "Multinomial"):  # torch enumerates their values
        same(ours.entropy(), want, "entropy")


WITH_CDF = ("Normal", "LogNormal", "HalfNormal", "Uniform", "Exponential", "Laplace", "Cauchy", "Gumbel")


@pytest.mark.parametrize("kind", [c for c in CASES if c[0] in WITH_CDF])
def test_cumulative(kind: Kind) -> None:
    ours, theirs, _, _ = both(kind)
    shape = tuple(theirs.batch_shape)
    same(ours.cdf(pf.tensor(kind[3])), theirs.cdf(torch.tensor(kind[3])), "cdf")
    p = part(*shape)
    same(ours.icdf(pf.tensor(p)), theirs.icdf(torch.tensor(p)), "icdf")


@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_samples(kind: Kind) -> None:
    """Shapes, dtypes, and the mean and spread of many draws."""
    ours, theirs, _, _ = both(kind)
    pf.manual_seed(0), torch.manual_seed(0)
    for shape in ((), (2,), (3, 2), (0,)):
        if shape == (0,) and kind[0] in ("Categorical", "OneHotCategorical", "Multinomial"):
            assert ours.sample(shape).shape == (0, *ours.batch_shape, *ours.event_shape)  # torch refuses
            continue
        got, want = ours.sample(shape), theirs.sample(shape)
        assert got.shape == tuple(want.shape) and not got.requires_grad
        assert got.dtype.name == str(want.dtype).removeprefix("torch.")
    drawn = ours.sample((4000,)).numpy().astype(np.float64)
    want = theirs.sample((4000,)).numpy().astype(np.float64)
    if kind[0] in ("Cauchy", "LogNormal"):  # no mean, or a heavy tail: compare medians
        np.testing.assert_allclose(np.median(drawn, 0), np.median(want, 0), rtol=0.1, atol=0.25)
        return
    spread_of = want.std(0)
    np.testing.assert_allclose(drawn.mean(0), want.mean(0), atol=float((0.15 * spread_of + 0.02).max()))
    if kind[0] != "StudentT":
        np.testing.assert_allclose(drawn.std(0), spread_of, rtol=0.25, atol=0.02)


def test_gradients_flow_through_rsample() -> None:
    for name in ("Normal", "Laplace", "Uniform", "Gumbel", "LogNormal"):
        args = [0.5, 0.2] if name == "LogNormal" else [0.5, 2.0]
        params = [pf.tensor(a, dtype="float64", requires_grad=True) for a in args]
        d = getattr(pf.distributions, name)(*params)
        assert d.has_rsample
        drawn = d.rsample((2000,))
        drawn.mean().backward()
        # the derivative of the mean, up to the noise of sampling
        again = [pf.tensor(a, dtype="float64", requires_grad=True) for a in args]
        getattr(pf.distributions, name)(*again).mean.backward()
        for p, q in zip(params, again, strict=True):
            assert p.grad.item() == pytest.approx(0.0 if q.grad is None else q.grad.item(), abs=0.15), name
    with pytest.raises(pf.NotSupportedError, match="has no rsample"):
        pf.distributions.Bernoulli(0.5).rsample()


PAIRS: list[tuple[str, Callable[[], list[Any]]]] = [
    ("Normal", lambda: [real(3), above(3)]),
    ("LogNormal", lambda: [real(3), above(3)]),
    ("Bernoulli", lambda: [part(3)]),
    ("Categorical", lambda: [above(2, 4)]),
    ("OneHotCategorical", lambda: [above(2, 4)]),
    ("Exponential", lambda: [above(3)]),
    ("Laplace", lambda: [real(3), above(3)]),
    ("Poisson", lambda: [above(3)]),
    ("Gamma", lambda: [above(3), above(3)]),
    ("Beta", lambda: [above(3), above(3)]),
    ("Dirichlet", lambda: [above(2, 4)]),
    ("MultivariateNormal", lambda: [real(2, 3), spread(3, 2)]),
    ("Uniform", lambda: [real(3) - 5, real(3) + 5]),
]


@pytest.mark.parametrize(("name", "params"), PAIRS, ids=[n for n, _ in PAIRS])
def test_kl_divergence(name: str, params: Callable[[], list[Any]]) -> None:
    first, second = params(), params()
    results = []
    for lib in (pf, torch):
        p, q = (getattr(lib.distributions, name)(*map(lib.tensor, v)) for v in (first, second))
        results.append(lib.distributions.kl_divergence(p, q))
    same(*results, "kl", 1e-6)
    with pytest.raises(pf.NotSupportedError, match="expected a pair with a formula"):
        pf.distributions.kl_divergence(pf.distributions.Normal(0.0, 1.0), pf.distributions.Poisson(1.0))


def test_independent_and_transformed() -> None:
    loc, scale, x = real(4, 3), above(4, 3), part(4, 3) * 0.8
    results = []
    for lib in (pf, torch):
        d = lib.distributions
        base = d.Independent(d.Normal(lib.tensor(loc), lib.tensor(scale)), 1)
        squashed = d.TransformedDistribution(base, [d.TanhTransform(), d.AffineTransform(0.1, 1.5)])
        other = d.TransformedDistribution(d.Normal(lib.tensor(loc), lib.tensor(scale)), [d.SigmoidTransform()])
        value = lib.tensor(x)
        results.append([base.log_prob(value), base.entropy(), squashed.log_prob(value), other.log_prob(value)])
        assert tuple(base.batch_shape) == (4,) and tuple(base.event_shape) == (3,)
        assert tuple(squashed.rsample((2,)).shape) == (2, 4, 3)
        assert tuple(base.expand((5, 4)).batch_shape) == (5, 4)
        results[-1].append(d.kl_divergence(base, d.Independent(d.Normal(lib.zeros(4, 3, dtype=lib.float64), 1.0), 1)))
    for a, b in zip(*results, strict=True):
        same(a, b, "value", 1e-6)


def test_a_policy_gradient_step() -> None:
    """REINFORCE and PPO use these: sample, log_prob, entropy and their gradients, all in one step."""
    logits = pf.zeros(4, 3, requires_grad=True)
    policy = pf.distributions.Categorical(logits=logits)
    action = policy.sample()
    loss = -(policy.log_prob(action) * pf.ones(4)).mean() - 0.01 * policy.entropy().mean()
    loss.backward()
    assert logits.grad.shape == (4, 3) and action.shape == (4,)
    assert np.allclose(logits.grad.sum(-1).numpy(), 0.0, atol=1e-6)


def test_sampling_inside_jit() -> None:
    @pf.jit
    def draw(loc: Any) -> Any:
        return pf.distributions.Normal(loc, 1.0).sample(), pf.distributions.Categorical(logits=loc).sample((5,))

    pf.manual_seed(0)
    first, second = draw(pf.zeros(3)), draw(pf.zeros(3))
    assert first[0].tolist() != second[0].tolist() and first[1].shape == (5,)
    with pytest.raises(pf.TraceError):
        pf.jit(lambda a: pf.distributions.Poisson(a).sample())(pf.ones(2))


def test_refusals() -> None:
    d = pf.distributions
    for make in (d.Bernoulli, d.Categorical):
        with pytest.raises(pf.ArgumentError, match="either probs or logits"):
            make()
        with pytest.raises(pf.ArgumentError, match="got both"):
            make(pf.ones(2), pf.ones(2))
    with pytest.raises(pf.ArgumentError, match="expected scale to satisfy"):
        d.Normal(0.0, -1.0, validate_args=True)
    with pytest.raises(pf.ArgumentError, match="one of covariance_matrix"):
        d.MultivariateNormal(pf.zeros(2))
    with pytest.raises(pf.ShapeError, match=r"expected \(\.\.\., n\)"):
        d.MultivariateNormal(pf.zeros(2), pf.eye(3))
    with pytest.raises(pf.ShapeError, match="at least one axis"):
        d.Categorical(pf.tensor(1.0))
    pf.manual_seed(3)
    a = d.Gamma(2.0, 1.0).sample((4,)).tolist()
    pf.manual_seed(3)
    assert a == d.Gamma(2.0, 1.0).sample((4,)).tolist()
