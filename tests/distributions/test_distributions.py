"""Every distribution against torch's: densities, entropies, moments, divergences, gradients and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def mixture(d: Any, t: Any) -> Any:
    return d.Categorical(t(np.array([0.2, 0.3, 0.5])))


LOC, WEIGHTS, LOWER = real(2, 3), above(2, 3), np.linalg.cholesky(spread(4, 3, 2))
FACTOR = LOWER / np.linalg.norm(LOWER, axis=-1, keepdims=True)
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
    ("LowRankMultivariateNormal", [real(2, 4), real(4, 2), above(4)], {}, real(3, 2, 4)),
    ("ContinuousBernoulli", [np.array([0.1, 0.4999, 0.8])], {}, part(4, 3)),
    ("ContinuousBernoulli", [], dict(logits=real(3)), part(4, 3)),
    ("FisherSnedecor", [above(3) + 2, above(3) + 4], {}, above(4, 3)),
    ("GeneralizedPareto", [part(4), above(4) + 1, np.array([-0.5, 0.0, 0.2, 1.5])], {}, part(3, 4) + 0.9),
    ("HalfCauchy", [above(3)], {}, real(4, 3)),
    ("InverseGamma", [np.array([0.7, 2.5, 4.0]), above(3)], {}, above(4, 3)),
    ("Kumaraswamy", [above(3), above(3)], {}, part(4, 3)),
    ("LKJCholesky", [4], dict(concentration=above(2)), FACTOR),
    ("LogisticNormal", [real(2, 3), above(3)], {}, RNG.dirichlet(np.ones(4), (5, 2))),
    ("LogisticNormal", [0.5, 1.0], {}, RNG.dirichlet(np.ones(2), 5)),
    ("NegativeBinomial", [np.array([3.0, 5.5, 7.0]), part(3)], {}, RNG.integers(0, 7, (4, 3)).astype(np.float64)),
    ("NegativeBinomial", [0.0], dict(logits=real(3)), RNG.integers(0, 2, (4, 3)).astype(np.float64)),
    ("Pareto", [above(3), np.array([0.8, 1.5, 4.0])], {}, above(4, 3) + 2.5),
    ("RelaxedBernoulli", [np.array(0.7), part(3)], {}, part(4, 3)),
    ("RelaxedBernoulli", [np.array(0.7)], dict(logits=real(3)), part(4, 3)),
    ("RelaxedOneHotCategorical", [np.array(0.7), above(2, 4)], {}, RNG.dirichlet(np.ones(4), (5, 2))),
    ("VonMises", [real(3), np.array([0.3, 2.0, 30.0])], {}, real(4, 3)),
    ("Weibull", [above(3), above(3) + 1], {}, above(4, 3)),
    ("Wishart", [above(2) + 3, spread(3, 2)], {}, spread(3, 4, 2)),
    ("Wishart", [4.0], dict(precision_matrix=spread(2)), spread(2, 3)),
    (
        "MixtureSameFamily",
        [lambda d, t: d.Categorical(t(WEIGHTS))],
        dict(component_distribution=lambda d, t: d.Normal(t(LOC), 0.5)),
        real(4, 2),
    ),
    (
        "MixtureSameFamily",
        [mixture],
        dict(component_distribution=lambda d, t: d.Independent(d.Normal(t(LOC).reshape(3, 2), 0.5), 1)),
        real(4, 2),
    ),
]
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


def both(kind: Kind) -> tuple[Any, Any, list[Any], list[Any]]:
    name, args, kwargs, _ = kind
    out: list[Any] = []
    for lib in (pf, torch):

        def made(v: Any, lib: Any = lib) -> Any:
            if callable(v):
                return v(lib.distributions, lib.tensor)
            return lib.tensor(v).requires_grad_() if isinstance(v, np.ndarray) else v

        given = [made(a) for a in args]
        named = {k: made(v) for k, v in kwargs.items()}
        extra = {} if lib is pf else {"validate_args": False}
        leaves = [t for t in (*given, *named.values()) if hasattr(t, "requires_grad_")]
        out.append((getattr(lib.distributions, name)(*given, **named, **extra), leaves))
    (ours, left), (theirs, right) = out
    return ours, theirs, left, right


# PyTorch approximates I0 and its ratio to 7 digits.
COARSE = {"VonMises": 2e-6}


@pytest.fixture(autouse=True)
def _dtype_of_pareto(request: pytest.FixtureRequest) -> Iterator[None]:
    """torch's GeneralizedPareto knows its default dtype only."""
    before = torch.get_default_dtype()
    if "GeneralizedPareto" in request.node.name:
        torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def same(ours: Any, theirs: Any, what: str, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=max(tolerance, 1e-7), atol=1e-7, err_msg=what, strict=True
    )


@pytest.mark.share(6)
@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_log_prob_and_its_gradients(kind: Kind) -> None:
    ours, theirs, left, right = both(kind)
    got, want = ours.log_prob(pf.tensor(kind[3])), theirs.log_prob(torch.tensor(kind[3]))
    same(got, want, "log_prob", COARSE.get(kind[0], 1e-9))
    same(pf.jit(ours.log_prob)(pf.tensor(kind[3])), want, "log_prob inside of jit", COARSE.get(kind[0], 1e-9))
    if not left:
        return
    got.sum().backward(), want.sum().backward()
    for a, b in zip(left, right, strict=True):
        if b.grad is not None:
            same(a.grad, b.grad, "gradient", COARSE.get(kind[0], 1e-6))


@pytest.mark.share(6)
@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_moments_and_entropy(kind: Kind) -> None:
    ours, theirs, _, _ = both(kind)
    assert (ours.batch_shape, ours.event_shape) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    assert (ours.has_rsample, ours.has_enumerate_support) == (theirs.has_rsample, theirs.has_enumerate_support)
    assert set(ours.arg_constraints) == set(theirs.arg_constraints)
    facts = [(s.is_discrete, s.event_dim, type(s).__name__) for s in (ours.support, theirs.support)]
    assert facts[0] == facts[1]
    p = part(*ours.batch_shape)
    asked: dict[str, Callable[[Any, Any], Any]] = {
        name: lambda d, t, name=name: getattr(d, name)
        for name in ("mean", "variance", "stddev", "mode", "probs", "logits", "covariance_matrix", "precision_matrix")
    }
    asked["entropy"] = lambda d, t: d.entropy()
    asked["cdf"] = lambda d, t: d.cdf(t(kind[3]))
    asked["icdf"] = lambda d, t: d.icdf(t(p))
    asked["enumerate_support"] = lambda d, t: d.enumerate_support()
    for name, ask in asked.items():
        try:
            want = ask(theirs, torch.tensor)
        except (NotImplementedError, AttributeError):
            continue
        same(ask(ours, pf.tensor), want, name, COARSE.get(kind[0], 1e-9))


@pytest.mark.share(6)
@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_expand(kind: Kind) -> None:
    ours, theirs, _, _ = both(kind)
    batch = (5, *ours.batch_shape)
    wide, want = ours.expand(batch), theirs.expand(torch.Size(batch))
    assert type(wide) is type(ours)
    assert (wide.batch_shape, wide.event_shape) == (tuple(want.batch_shape), tuple(want.event_shape))
    value = np.expand_dims(kind[3], kind[3].ndim - len(ours.batch_shape) - len(ours.event_shape))
    same(wide.log_prob(pf.tensor(value)), want.log_prob(torch.tensor(value)), "log_prob", COARSE.get(kind[0], 1e-9))
    assert wide.sample((2,)).shape == (2, *batch, *ours.event_shape)


HEAVY = ("Cauchy", "FisherSnedecor", "GeneralizedPareto", "HalfCauchy", "InverseGamma", "LogNormal", "Pareto")


@pytest.mark.share(6)
@pytest.mark.parametrize("kind", CASES, ids=IDS)
def test_samples(kind: Kind) -> None:
    """Shapes, dtypes, and the mean and spread of many draws."""
    ours, theirs, _, _ = both(kind)
    pf.manual_seed(0), torch.manual_seed(0)
    for shape in ((), (2,), (3, 2), (0,)):
        if shape == (0,) and kind[0] in ("Categorical", "OneHotCategorical", "Multinomial", "MixtureSameFamily"):
            assert ours.sample(shape).shape == (0, *ours.batch_shape, *ours.event_shape)  # torch refuses
            continue
        got, want = ours.sample(shape), theirs.sample(shape)
        assert got.shape == tuple(want.shape) and not got.requires_grad
        assert got.dtype.name == str(want.dtype).removeprefix("torch.")
    drawn = ours.sample((4000,)).numpy().astype(np.float64)
    want = theirs.sample((4000,)).numpy().astype(np.float64)
    if kind[0] in HEAVY:  # no mean, or a heavy tail: compare medians
        np.testing.assert_allclose(np.median(drawn, 0), np.median(want, 0), rtol=0.1, atol=0.25)
        return
    spread_of = want.std(0)
    np.testing.assert_allclose(drawn.mean(0), want.mean(0), atol=float((0.15 * spread_of + 0.02).max()))
    if kind[0] != "StudentT":
        np.testing.assert_allclose(drawn.std(0), spread_of, rtol=0.25, atol=0.02)


REPARAMETRIZED: dict[str, list[Any]] = {
    "Normal": [0.5, 2.0], "Laplace": [0.5, 2.0], "Uniform": [0.5, 2.0], "Gumbel": [0.5, 2.0], "LogNormal": [0.5, 0.2],
    "Gamma": [0.6, 1.5], "Chi2": [3.0], "Beta": [0.8, 2.0], "Dirichlet": [[0.5, 1.0, 3.0]], "StudentT": [5.0, 0.5, 1.0],
    "FisherSnedecor": [3.0, 12.0], "InverseGamma": [5.0, 2.0], "Kumaraswamy": [1.5, 2.0], "Weibull": [1.0, 2.0],
    "Pareto": [1.0, 6.0], "GeneralizedPareto": [0.5, 1.0, 0.1], "HalfNormal": [1.5], "ContinuousBernoulli": [0.3],
    "Exponential": [1.5], "Wishart": [4.0, [[1.0, 0.3], [0.3, 1.0]]],
    "MultivariateNormal": [[0.5, 0.1], [[1.0, 0.3], [0.3, 1.0]]],
    "LowRankMultivariateNormal": [[0.5, 0.1], [[1.0], [0.3]], [1.0, 2.0]],
}  # fmt: skip


@pytest.mark.share(6)
@pytest.mark.parametrize("name", REPARAMETRIZED)
def test_gradients_flow_through_rsample(name: str) -> None:
    """The gradients of the mean of many draws are those of the mean, up to the noise of sampling; so inside of jit."""
    make = getattr(pf.distributions, name)
    params, again = (
        [pf.tensor(a, dtype="float64", requires_grad=True) for a in REPARAMETRIZED[name]] for _ in range(2)
    )
    assert make(*params).has_rsample
    pf.manual_seed(1)
    drawn = make(*params).rsample((4000,))
    assert drawn.requires_grad and drawn.dtype == pf.float64
    drawn.mean(0).sum().backward()
    make(*again).mean.sum().backward()
    for p, q in zip(params, again, strict=True):
        want = np.zeros(p.shape) if q.grad is None else q.grad.numpy()
        np.testing.assert_allclose(p.grad.numpy(), want, rtol=0.1, atol=0.15)
    slope = pf.jit(pf.grad(lambda first, *rest: make(first, *rest).rsample((4000,)).mean(0).sum()))(*params)
    want = np.zeros(params[0].shape) if again[0].grad is None else again[0].grad.numpy()
    np.testing.assert_allclose(slope.numpy(), want, rtol=0.1, atol=0.15)


@pytest.mark.slow
def test_gamma_numbers_and_their_gradients() -> None:
    """Many shapes of gamma numbers: their moments, and dx/da, which PyTorch approximates to about 3 digits."""
    shapes = np.array([0.05, 0.5, 1.0, 2.5, 40.0, 3000.0])
    a = pf.tensor(shapes, requires_grad=True)
    pf.manual_seed(0)
    x = pf.distributions.Gamma(a, pf.ones(6, dtype="float64")).rsample((5000,))
    np.testing.assert_allclose(x.mean(0).numpy(), shapes, rtol=0.1)
    np.testing.assert_allclose(x.std(0).numpy(), np.sqrt(shapes), rtol=0.15)
    x[:100].sum().backward()
    wide = torch.tensor(np.broadcast_to(shapes, (100, 6)).copy())
    want = torch._standard_gamma_grad(wide, torch.tensor(x[:100].detach().numpy())).sum(0)
    np.testing.assert_allclose(a.grad.numpy(), want.numpy(), rtol=1e-3)
    assert (pf.distributions.Gamma(pf.full((1000,), 1e-3), 1.0).sample() > 0).all()


def test_no_rsample_where_torch_has_none() -> None:
    with pytest.raises(pf.NotSupportedError, match="has no rsample"):
        pf.distributions.Bernoulli(0.5).rsample()


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


def test_a_family_of_ones_own() -> None:
    """Entropy and support of a subclass follow from its natural parameters, as torch's."""
    rate = above(3)
    seen = []
    for lib in (pf, torch):

        class Mine(lib.distributions.ExponentialFamily):  # type: ignore[name-defined,misc]
            arg_constraints: Any = {}  # noqa: RUF012
            _mean_carrier_measure = 0

            def __init__(self, rate: Any) -> None:
                self.rate = rate
                super().__init__(rate.shape)

            @property
            def _natural_params(self) -> Any:
                return (-self.rate,)

            def _log_normalizer(self, x: Any) -> Any:
                return -(-x).log()

        seen.append(Mine(lib.tensor(rate)).entropy())
    same(*seen, "entropy")
    same(seen[0], torch.distributions.Exponential(torch.tensor(rate)).entropy(), "entropy")
    with pytest.raises(NotImplementedError, match="_natural_params"):
        pf.distributions.Poisson(1.0).entropy()


def test_refusals_of_shapes() -> None:
    d = pf.distributions
    with pytest.raises(ValueError, match="at least 2"):
        d.LKJCholesky(1)
    with pytest.raises(ValueError, match="expected a Categorical"):
        d.MixtureSameFamily(d.Bernoulli(0.5), d.Normal(pf.zeros(2), 1.0))  # type: ignore[arg-type]
    for components in (d.Normal(pf.zeros(3), 1.0), d.Normal(0.0, 1.0)):
        with pytest.raises(pf.ShapeError, match="weights that fit"):
            d.MixtureSameFamily(d.Categorical(pf.ones(2)), components)
    with pytest.raises(pf.ShapeError, match="rank"):
        d.LowRankMultivariateNormal(pf.zeros(2), pf.ones(3, 1), pf.ones(2))
    with pytest.raises(pf.ShapeError, match="n, n"):
        d.Wishart(3.0, pf.ones(2))
    with pytest.raises(NotImplementedError, match="equal total_counts"):
        d.Binomial(pf.tensor([1.0, 2.0]), 0.5).enumerate_support()


def test_text_shows_a_parameter_of_one_number() -> None:
    ours, theirs = (t.distributions.Laplace(t.zeros(1), t.ones(1)) for t in (pf, torch))
    assert repr(ours) == repr(theirs) == "Laplace(loc: tensor([0.]), scale: tensor([1.]))"
    assert repr(pf.distributions.Laplace(pf.zeros(2), pf.ones(2))) == "Laplace(loc: (2,), scale: (2,))"


@pytest.mark.parametrize("lib", [pf, torch], ids=["pyflame", "torch"])
def test_a_subclass_with_a_base_of_its_own(lib: Any) -> None:
    """Pyro's LogNormal passes by torch's, to give TransformedDistribution a Normal of its own."""
    D = lib.distributions

    class Base(D.Normal):  # type: ignore[misc, name-defined]
        pass

    class LogNormal(D.LogNormal):  # type: ignore[misc, name-defined]
        def __init__(self, loc: Any, scale: Any) -> None:
            super(D.LogNormal, self).__init__(Base(loc, scale), D.transforms.ExpTransform())

    d = LogNormal(0.5, 0.25)
    assert isinstance(d.base_dist, Base) and float(d.loc) == 0.5 and float(d.scale) == 0.25
    expected = torch.distributions.LogNormal(0.5, 0.25).log_prob(torch.tensor(1.5))
    np.testing.assert_allclose(float(d.log_prob(lib.tensor(1.5))), float(expected), rtol=1e-5)
