"""kl_divergence of every pair that torch registers: values, gradients, infinities, and the choice of a formula."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions.kl import _KL_REGISTRY

import pyflame as pf

from .test_distributions import above, part, real, same, spread

# Parameters of p and of q, for each distribution.
PARAMETERS: dict[str, tuple[list[Any], list[Any]]] = {
    "Bernoulli": ([part(3)], [part(3)]),
    "Beta": ([above(3), above(3)], [above(3), above(3)]),
    "Binomial": ([np.full(3, 5.0), part(3)], [np.array([5.0, 5.0, 3.0]), part(3)]),
    "Categorical": ([above(2, 4)], [above(2, 4)]),
    "Cauchy": ([real(3), above(3)], [real(3), above(3)]),
    "ContinuousBernoulli": ([np.array([0.2, 0.5, 0.7])], [np.array([0.3, 0.9, 0.4999])]),
    "Dirichlet": ([above(2, 4)], [above(2, 4)]),
    "Exponential": ([above(3)], [above(3)]),
    "Gamma": ([above(3), above(3)], [above(3), above(3)]),
    "Geometric": ([part(3)], [part(3)]),
    "Gumbel": ([real(3), above(3)], [real(3), above(3)]),
    "HalfNormal": ([above(3)], [above(3)]),
    "Laplace": ([real(3), above(3)], [real(3), above(3)]),
    "LogNormal": ([real(3), above(3)], [real(3), above(3)]),
    "LowRankMultivariateNormal": ([real(2, 3), real(3, 2), above(3)], [real(3), real(3, 1), above(2, 3)]),
    "MultivariateNormal": ([real(2, 3), spread(3, 2)], [real(2, 3), spread(3, 2)]),
    "Normal": ([real(3), above(3)], [real(3), above(3)]),
    "OneHotCategorical": ([above(2, 4)], [above(2, 4)]),
    "Pareto": ([above(3), np.array([0.9, 1.5, 4.0])], [np.array([0.1, 9.0, 0.2]), above(3)]),
    "Poisson": ([above(3)], [above(3)]),
    # inside of, around and beside of [0, 1] and of each other
    "Uniform": (
        [np.array([0.2, -1.0, 0.4]), np.array([0.8, 0.5, 3.0])],
        [np.array([-0.5, 0.1, -1.0]), np.array([1.5, 0.9, 4.0])],
    ),
    "Wishart": ([np.array(4.5), spread(3)], [np.array(6.0), spread(3)]),
}  # fmt: skip
GENERAL = {"ExponentialFamily": "Wishart", "TransformedDistribution": "LogNormal"}
NAMES = sorted({(p.__name__, q.__name__) for p, q in _KL_REGISTRY} - {("Independent", "Independent")})


def made(lib: Any, name: str, which: int) -> tuple[Any, list[Any]]:
    params = [lib.tensor(v).requires_grad_() for v in PARAMETERS[name][which]]
    return getattr(lib.distributions, name)(*params, **({} if lib is pf else {"validate_args": False})), params


@pytest.mark.share(6)
@pytest.mark.parametrize("pair", NAMES, ids="-".join)
def test_kl_divergence(pair: tuple[str, str]) -> None:
    first, second = (GENERAL.get(name, name) for name in pair)
    (p, left), (q, right) = made(pf, first, 0), made(pf, second, 1)
    (p2, left2), (q2, right2) = made(torch, first, 0), made(torch, second, 1)
    got, want = pf.distributions.kl_divergence(p, q), torch.distributions.kl_divergence(p2, q2)
    same(got, want, "value", 1e-6)
    if not (want.requires_grad and torch.isfinite(want).any()) or pair[0] == "ExponentialFamily":
        return  # torch's families carry no gradient to p
    finite = torch.isfinite(want).numpy()
    got[pf.tensor(finite)].sum().backward(), want[torch.tensor(finite)].sum().backward()
    for a, b in zip([*left, *right], [*left2, *right2], strict=True):
        if b.grad is not None and torch.isfinite(b.grad).all():
            same(a.grad, b.grad, "gradient", 1e-6)


def test_all_pairs_without_a_formula() -> None:
    """What torch refuses, we refuse: a subclass here must not be taken for what it is there not."""
    for first in PARAMETERS:
        for second in PARAMETERS:
            (p, _), (q, _) = made(pf, first, 0), made(pf, second, 1)
            (p2, _), (q2, _) = made(torch, first, 0), made(torch, second, 1)
            try:
                torch.distributions.kl_divergence(p2, q2)
            except NotImplementedError:
                with pytest.raises(NotImplementedError, match="kl_divergence"):
                    pf.distributions.kl_divergence(p, q)
            except (RuntimeError, ValueError):  # batches or events that do not fit each other
                continue


@pytest.mark.slow
def test_edges() -> None:
    """Certain events, equal bounds, and fewer trials under p."""
    d, kl = pf.distributions, pf.distributions.kl_divergence
    certain, maybe = np.array([0.0, 0.0, 1.0, 1.0, 0.5, 0.5]), np.array([0.0, 0.5, 1.0, 0.5, 0.0, 1.0])
    got = kl(d.Bernoulli(pf.tensor(certain)), d.Bernoulli(pf.tensor(maybe)))
    t = torch.distributions
    same(got, t.kl_divergence(t.Bernoulli(torch.tensor(certain)), t.Bernoulli(torch.tensor(maybe))), "certain", 1e-6)
    # torch calls these infinite, though all values of p are values of q
    assert np.isclose(kl(d.ContinuousBernoulli(0.5), d.Uniform(0.0, 1.0)).item(), 0.0, atol=1e-6)
    assert np.isclose(kl(d.Uniform(0.0, 1.0), d.ContinuousBernoulli(0.5)).item(), 0.0, atol=1e-6)
    for equal in (d.Gamma(1e4, 3.0), d.Normal(7.0, 1e3), d.Beta(5e3, 2e3), d.Exponential(9.0)):  # in float32
        assert abs(kl(equal, equal).item()) < 1e-6, equal
    with pytest.raises(NotImplementedError, match="at most as many trials"):
        kl(d.Binomial(3, 0.5), d.Binomial(4, 0.5))
    with pytest.raises(NotImplementedError, match="same transforms"):
        kl(d.LogNormal(0.0, 1.0), d.HalfNormal(1.0))
    with pytest.raises(pf.ShapeError, match="one shape"):
        kl(d.MultivariateNormal(pf.zeros(2), pf.eye(2)), d.MultivariateNormal(pf.zeros(3), pf.eye(3)))
    with pytest.raises(NotImplementedError, match="pair with a formula"):
        kl(d.Normal(0.0, 1.0), d.Poisson(1.0))
    same(
        pf.jit(lambda a: kl(d.Gamma(a, 1.0), d.Normal(a, 1.0)))(pf.ones(2)),
        t.kl_divergence(t.Gamma(torch.ones(2), 1.0), t.Normal(torch.ones(2), 1.0)),
        "inside of jit",
        1e-5,
    )


def test_register_kl_and_its_choice() -> None:
    d = pf.distributions

    class Base(d.Normal):
        pass

    class Derived(Base):
        pass

    @d.register_kl(Base, Derived)
    def first(p: Any, q: Any) -> Any:
        return p.loc * 0 + 1

    @d.register_kl(Derived, Base)
    def second(p: Any, q: Any) -> Any:
        return p.loc * 0 + 2

    base, derived = Base(0.0, 1.0), Derived(0.0, 1.0)
    assert d.kl_divergence(base, derived).item() == 1 and d.kl_divergence(derived, base).item() == 2
    assert d.kl_divergence(base, base).item() == 0  # as Normals
    with pytest.warns(RuntimeWarning, match="two formulas"):
        assert d.kl_divergence(derived, derived).item() == 2
    d.register_kl(Derived, Derived)(first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert d.kl_divergence(derived, derived).item() == 1
    with pytest.raises(TypeError, match="classes of distributions"):
        d.register_kl(Base, 3)  # type: ignore[arg-type]


def test_formulas_of_bases_that_are_no_distributions() -> None:
    """As Pyro's, which its distributions have beside PyTorch's."""

    class Mixin:
        pass

    class Mine(pf.distributions.Normal, Mixin):
        pass

    pf.distributions.register_kl(Mine, Mixin)(lambda p, q: p.loc - q.loc)
    assert pf.distributions.kl_divergence(Mine(3.0, 1.0), Mine(1.0, 1.0)).item() == 2.0
