"""Transforms, constraints and their registries against torch's: values, inverses, stretch, gradients, shapes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

RNG = np.random.default_rng(1)
Array = np.ndarray[Any, Any]


def real(*shape: int) -> Array:
    return RNG.standard_normal(shape)


def above(*shape: int) -> Array:
    return RNG.uniform(0.3, 2.5, shape)


# What makes a transform from a library's distributions and its tensor function, and an argument for it.
TRANSFORMS: dict[str, tuple[Callable[[Any, Any], Any], Array]] = {
    "abs": (lambda d, t: d.AbsTransform(), real(2, 3)),
    "affine": (lambda d, t: d.AffineTransform(0.5, -2.0), real(2, 3)),
    "affine-tensors": (lambda d, t: d.AffineTransform(t(W1), t(W2)), real(4, 2, 3)),
    "affine-event": (lambda d, t: d.AffineTransform(t(W1), t(W2), event_dim=1), real(4, 2, 3)),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.identity_transform], 0, [1, 2]), real(3, 2)),
    "cat-last": (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1, [2, 2]), real(3, 4)),
    "cat-event": (
        lambda d, t: d.CatTransform([d.AffineTransform(0.0, 2.0, event_dim=1), d.ExpTransform()], -1, [2, 2]),
        real(3, 4),
    ),
    "compose": (lambda d, t: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(1.0, t(W2))]), real(2, 3)),
    "compose-vectors": (lambda d, t: d.ComposeTransform([d.TanhTransform(), d.StickBreakingTransform()]), real(2, 3)),
    "corr-cholesky": (lambda d, t: d.CorrCholeskyTransform(), real(2, 6)),
    "corr-cholesky-2": (lambda d, t: d.CorrCholeskyTransform(), real(1)),
    "cumulative": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(W1), t(W2))), real(2, 3)),
    "exp": (lambda d, t: d.ExpTransform(), real(2, 3)),
    "identity": (lambda d, t: d.identity_transform, real(2, 3)),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), real(2, 3)),
    "inverse": (lambda d, t: d.ExpTransform().inv, above(2, 3)),
    "inverse-compose": (lambda d, t: d.ComposeTransform([d.ExpTransform(), d.TanhTransform()]).inv, above(3) / 4),
    "lower-cholesky": (lambda d, t: d.LowerCholeskyTransform(), real(2, 3, 3)),
    "positive-definite": (lambda d, t: d.PositiveDefiniteTransform(), real(2, 3, 3)),
    "power": (lambda d, t: d.PowerTransform(t(W2)), above(2, 3)),
    "reshape": (lambda d, t: d.ReshapeTransform((2, 3), (6,)), real(4, 2, 3)),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), real(2, 3)),
    "sigmoid-far": (lambda d, t: d.SigmoidTransform(), np.array([-800.0, 40.0])),
    "softmax": (lambda d, t: d.SoftmaxTransform(), real(2, 3)),
    "softplus": (lambda d, t: d.SoftplusTransform(), real(2, 3)),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 1), real(3, 2)),
    "stick-breaking": (lambda d, t: d.StickBreakingTransform(), real(2, 3)),
    "tanh": (lambda d, t: d.TanhTransform(), real(2, 3)),
    "0-d": (lambda d, t: d.ExpTransform(), real()),
    "empty": (lambda d, t: d.SigmoidTransform(), real(0, 3)),
}  # fmt: skip
W1, W2 = real(2, 3), above(2, 3)


def close(ours: Any, theirs: Any, what: str) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-7, atol=1e-9, err_msg=what, strict=True
    )


@pytest.mark.share(3)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name: str) -> None:
    make, given = TRANSFORMS[name]
    seen = []
    for lib in (pf, torch):
        x = lib.tensor(given).requires_grad_()
        t = make(lib.distributions, lib.tensor)
        y = t(x)
        out = [y, t.inv(y)]
        facts = [tuple(t.forward_shape(x.shape)), tuple(t.inverse_shape(y.shape)), bool(t.bijective)]
        facts += [t.domain.event_dim, t.codomain.event_dim, repr(t.domain), repr(t.codomain)]
        for ask in (lambda t=t: float(np.asarray(t.sign).flat[0]), lambda t=t: t.event_dim):
            try:
                facts.append(ask())
            except (NotImplementedError, ValueError) as error:
                facts.append(next(e for e in (NotImplementedError, ValueError) if isinstance(error, e)))
        try:
            out.append(t.log_abs_det_jacobian(x, y))
        except NotImplementedError:
            facts.append("no stretch")
        sum((o * o).sum() for o in out).backward()
        assert t.inv.inv is t and t.with_cache()(x).shape == y.shape
        seen.append((out, facts, x.grad))
    (ours, facts, grad), (theirs, want, slope) = seen
    if name == "sigmoid-far":  # torch's gradient there is nan: both clamps lie on an infinite slope
        slope = grad
    assert facts == want
    for a, b, what in zip(ours, theirs, ("forward", "inverse", "stretch"), strict=False):
        close(a, b, what)
    assert len(ours) == len(theirs)
    close(grad, slope, "gradient")


def test_transforms_inside_jit() -> None:
    d = pf.distributions
    for t in (d.CorrCholeskyTransform(), d.StickBreakingTransform(cache_size=1)):
        x = pf.tensor(real(2, 3))
        y, back, stretch = pf.jit(lambda x, t=t: (t(x), t.inv(t(x)), t.log_abs_det_jacobian(x, t(x))))(x)
        close(y, t(x), "forward"), close(back, x, "inverse"), close(stretch, t.log_abs_det_jacobian(x, y), "stretch")


def test_cache_gives_the_argument_back() -> None:
    x = pf.tensor([20.0])
    plain, cached = pf.distributions.TanhTransform(), pf.distributions.TanhTransform(cache_size=1)
    assert plain.inv(plain(x)).item() == np.inf
    y = cached(x)
    assert cached.inv(y) is x and cached(x) is y
    z = pf.tensor([0.5])
    assert cached(cached.inv(z)) is z
    composed = pf.distributions.ComposeTransform([plain, pf.distributions.AffineTransform(0.0, 2.0)], cache_size=1)
    assert composed.inv(composed(x)) is x
    assert pickle.loads(pickle.dumps(pf.distributions.ExpTransform(cache_size=1))) == pf.distributions.ExpTransform()


def test_equality_is_torchs() -> None:
    seen = []
    for lib in (pf, torch):
        d, one = lib.distributions, lib.tensor([1.0, 2.0])
        made = [
            d.ExpTransform(), d.ExpTransform(), d.TanhTransform(), d.AffineTransform(0.0, 1.0),
            d.AffineTransform(0.0, 2.0),
            d.AffineTransform(0.0, 1.0), d.AffineTransform(0.0, one), d.AffineTransform(0.0, one.clone()),
            d.PowerTransform(one), d.PowerTransform(one.clone()), d.ComposeTransform([d.ExpTransform()]),
            d.ComposeTransform([d.ExpTransform()]), d.ComposeTransform([]), d.identity_transform, d.ExpTransform().inv,
            d.ExpTransform().inv, d.CorrCholeskyTransform(), d.CorrCholeskyTransform(),
            d.ReshapeTransform((2,), (2,)), d.ReshapeTransform((2,), (2,)),
        ]  # fmt: skip
        seen.append([[bool(a == b) for b in made] for a in made])
    assert seen[0] == seen[1]


CHECKED = {
    "boolean": [0.0, 1.0, 0.5], "nonnegative_integer": [-1.0, 0.0, 1.5, 3.0], "positive_integer": [0.0, 1.0, 1.5],
    "real": [0.0, np.nan, np.inf], "positive": [-1.0, 0.0, 1.0], "nonnegative": [-1.0, 0.0, 1.0],
    "unit_interval": [-0.1, 0.0, 1.0, 1.1], "real_vector": [[0.0, np.nan], [1.0, 2.0]],
    "simplex": [[0.5, 0.5], [0.5, 0.6], [-0.5, 1.5]], "one_hot": [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]],
    "lower_triangular": [[[1.0, 0.0], [2.0, -3.0]], [[1.0, 1.0], [2.0, 3.0]]],
    "lower_cholesky": [[[1.0, 0.0], [2.0, -3.0]], [[1.0, 0.0], [2.0, 3.0]]],
    "corr_cholesky": [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.9]]],
    "square": [[[1.0, 0.0, 1.0], [2.0, -3.0, 1.0]]],
    "symmetric": [[[1.0, 2.0], [2.0, -3.0]], [[1.0, 0.0], [2.0, 3.0]]],
    "positive_semidefinite": [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
    "positive_definite": [[[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
}  # fmt: skip
CALLED: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "greater_than": (lambda c: c.greater_than(1.0), [0.0, 1.0, 2.0]),
    "greater_than_eq": (lambda c: c.greater_than_eq(lower_bound=1.0), [0.0, 1.0, 2.0]),
    "less_than": (lambda c: c.less_than(1.0), [0.0, 1.0, 2.0]),
    "interval": (lambda c: c.interval(-1.0, 1.0), [-2.0, -1.0, 1.0, 2.0]),
    "half_open_interval": (lambda c: c.half_open_interval(-1.0, 1.0), [-2.0, -1.0, 1.0, 2.0]),
    "integer_interval": (lambda c: c.integer_interval(0, 2), [-1.0, 0.0, 0.5, 2.0, 3.0]),
    "multinomial": (lambda c: c.multinomial(3), [[1.0, 2.0], [3.0, 1.0], [-1.0, 2.0]]),
    "independent": (lambda c: c.independent(c.positive, 1), [[1.0, 2.0], [-1.0, 1.0]]),
    "mixture": (lambda c: c.MixtureSameFamilyConstraint(c.simplex), [[0.5, 0.5], [0.5, 0.6]]),
    "cat": (lambda c: c.cat([c.positive, c.real], 0, [1, 2]), [-1.0, -1.0, 1.0]),
    "stack": (lambda c: c.stack([c.positive, c.real], -1), [[-1.0, -1.0], [1.0, 1.0]]),
}


def facts_of(constraint: Any, value: Any) -> tuple[Any, ...]:
    return constraint.check(value).tolist(), constraint.is_discrete, constraint.event_dim


@pytest.mark.share(3)
@pytest.mark.parametrize("name", CHECKED)
def test_constraint(name: str) -> None:
    ours, theirs = (getattr(lib.distributions.constraints, name) for lib in (pf, torch))
    assert facts_of(ours, pf.tensor(CHECKED[name])) == facts_of(theirs, torch.tensor(CHECKED[name]))
    assert repr(ours) == repr(theirs)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", CALLED)
def test_constraint_with_arguments(name: str) -> None:
    make, value = CALLED[name]
    ours, theirs = make(pf.distributions.constraints), make(torch.distributions.constraints)
    assert facts_of(ours, pf.tensor(value)) == facts_of(theirs, torch.tensor(value))


def test_dependent_constraints() -> None:
    c, u = pf.distributions.constraints, pf.distributions.Uniform
    assert set(torch.distributions.constraints.__all__) == set(c.__all__)
    assert c.is_dependent(u.support) and not c.is_dependent(u(0.0, 1.0).support)
    assert c.dependent(is_discrete=True).is_discrete and u.support.event_dim == 0
    with pytest.raises(NotImplementedError, match="event_dim"):
        _ = c.dependent.event_dim
    with pytest.raises(ValueError, match="dependent"):
        c.dependent.check(pf.ones(1))


MAPPED = [
    lambda c: c.real, lambda c: c.positive, lambda c: c.greater_than(2.0), lambda c: c.greater_than_eq(2.0),
    lambda c: c.less_than(1.0), lambda c: c.unit_interval, lambda c: c.interval(-1.0, 3.0),
    lambda c: c.half_open_interval(0, 1), lambda c: c.simplex, lambda c: c.corr_cholesky, lambda c: c.real_vector,
    lambda c: c.independent(c.positive, 1), lambda c: c.cat([c.positive, c.real], -1, [1, 2]),
    lambda c: c.stack([c.positive, c.real, c.unit_interval], -1), lambda c: c.lower_cholesky,
    lambda c: c.positive_definite, lambda c: c.positive_semidefinite, lambda c: c.one_hot,
]  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize("which", ["transform_to", "biject_to"])
@pytest.mark.parametrize("make", MAPPED)
def test_registries(which: str, make: Callable[[Any], Any]) -> None:
    given = real(3, 3)
    try:
        want = getattr(torch.distributions, which)(make(torch.distributions.constraints))
    except NotImplementedError:
        with pytest.raises(pf.NotSupportedError, match="constraint with a transform"):
            getattr(pf.distributions, which)(make(pf.distributions.constraints))
        return
    got = getattr(pf.distributions, which)(make(pf.distributions.constraints))
    close(got(pf.tensor(given)), want(torch.tensor(given)), "value")
    assert bool(make(pf.distributions.constraints).check(got(pf.tensor(given))).all())


def test_registering() -> None:
    c, registry = pf.distributions.constraints, type(pf.distributions.transform_to)()

    @registry.register(c.boolean)
    def made(constraint: Any) -> Any:
        return pf.distributions.SigmoidTransform()

    assert isinstance(registry(c.boolean), pf.distributions.SigmoidTransform)
    with pytest.raises(TypeError, match="expected a constraint"):
        registry.register(3, made)


@pytest.mark.slow
def test_validation() -> None:
    """Parameters and values are checked with validate_args, or by default where that is set."""
    d = pf.distributions
    bad: list[tuple[Callable[..., Any], list[Any]]] = [
        (d.Normal, [0.0, -1.0]), (d.Normal, [float("nan"), 1.0]), (d.Uniform, [1.0, 0.0]), (d.Gamma, [1.0, 0.0]),
        (d.Poisson, [-1.0]), (d.Bernoulli, [1.5]), (d.Categorical, [pf.tensor([-1.0, 2.0])]), (d.Chi2, [-1.0]),
        (d.Dirichlet, [pf.tensor([1.0, -1.0])]), (d.Binomial, [1.5, 0.5]), (d.StudentT, [-1.0]),
        (d.MultivariateNormal, [pf.zeros(2), pf.tensor([[1.0, 2.0], [2.0, 1.0]])]), (d.HalfCauchy, [-1.0]),
        (d.FisherSnedecor, [1.0, -1.0]), (d.GeneralizedPareto, [0.0, -1.0, 0.5]), (d.InverseGamma, [0.0, 1.0]),
        (d.Kumaraswamy, [1.0, 0.0]), (d.Pareto, [1.0, 0.0]), (d.Weibull, [-1.0, 1.0]), (d.VonMises, [0.0, -1.0]),
        (d.NegativeBinomial, [1.0, 1.0]), (d.ContinuousBernoulli, [1.5]), (d.Geometric, [0.0]),
        (d.Wishart, [0.5, pf.eye(2)]), (d.LogisticNormal, [pf.zeros(2), -pf.ones(2)]), (d.RelaxedBernoulli, [1.0, 1.5]),
        (d.LowRankMultivariateNormal, [pf.zeros(2), pf.ones(2, 1), -9 * pf.ones(2)]),
    ]  # fmt: skip
    for make, args in bad:
        make(*args)
        with pytest.raises(ValueError, match="expected"):
            make(*args, validate_args=True)
        given = [a.numpy() if isinstance(a, pf.Tensor) else a for a in args]
        with pytest.raises(ValueError):
            getattr(torch.distributions, make.__name__)(*[torch.tensor(a) for a in given], validate_args=True)
    checked = d.Exponential(pf.ones(3), validate_args=True)
    for value, why in ((pf.tensor([-1.0, 1.0, 1.0]), "GreaterThanEq"), (pf.ones(2), "fits"), (1.0, "tensor")):
        for ask in (checked.log_prob, checked.cdf, checked.expand((2, 3)).log_prob):
            with pytest.raises(ValueError, match=why):
                ask(value)
    assert d.Exponential(1.0).log_prob(pf.tensor(-1.0)).item() == 1.0
    try:
        d.Distribution.set_default_validate_args(True)
        with pytest.raises(ValueError, match="scale"):
            d.Normal(0.0, -1.0)
        d.Normal(0.0, -1.0, validate_args=False)
    finally:
        d.Distribution.set_default_validate_args(False)


def test_transformed_distribution() -> None:
    """Its shapes, where transforms widen the base or take its batch as an event; cdf, icdf, support and expand."""
    wide, loc = real(4, 3), real(3)
    seen = []
    for lib in (pf, torch):
        d, t = lib.distributions, lib.tensor
        falling = d.TransformedDistribution(d.Normal(t(loc), 1.0), [d.ExpTransform(), d.AffineTransform(t(wide), -2.0)])
        sticks = d.TransformedDistribution(d.Normal(t(loc), 1.0), d.StickBreakingTransform())
        square = d.TransformedDistribution(d.Normal(t(real_6), 1.0), [d.ReshapeTransform((6,), (2, 3))])
        value, p = t(wide - 1.0), t(RNG_PART)
        made = (falling, sticks, square)
        shapes = [(tuple(m.batch_shape), tuple(m.event_shape)) for m in made]
        shapes += [
            (tuple(e.batch_shape), tuple(e.sample((2,)).shape)) for e in (sticks.expand((5,)), square.expand((2,)))
        ]
        shapes += [(repr(m.support), m.support.event_dim) for m in made]
        out = [falling.log_prob(value), falling.cdf(value), falling.icdf(p), sticks.log_prob(t(SIMPLEX))]
        seen.append((shapes, [*out, square.log_prob(t(real_6.reshape(2, 3)))]))
    assert seen[0][0] == seen[1][0]
    for a, b in zip(seen[0][1], seen[1][1], strict=True):
        close(a, b, "value")


RNG_PART, SIMPLEX, real_6 = RNG.uniform(0.1, 0.9, (4, 3)), RNG.dirichlet(np.ones(4), 2), real(6)


def test_refusals_of_transforms() -> None:
    d = pf.distributions
    with pytest.raises(ValueError, match="cache_size of 0 or 1"):
        d.ExpTransform(cache_size=2)
    with pytest.raises(pf.ShapeError, match="equally many"):
        d.ReshapeTransform((2,), (3,))
    with pytest.raises(pf.ShapeError, match="ends with"):
        d.ReshapeTransform((2,), (2, 1))(pf.ones(3))
    with pytest.raises(pf.ShapeError, match="last axis"):
        d.CorrCholeskyTransform()(pf.ones(2))
    with pytest.raises(pf.ShapeError, match="along axis 0"):
        d.StackTransform([d.ExpTransform()])(pf.ones(2))
    with pytest.raises(pf.ShapeError, match="at least 1 axes"):
        d.IndependentTransform(d.ExpTransform(), 1)(pf.tensor(1.0))
    with pytest.raises(ValueError, match="expected 1 lengths"):
        d.CatTransform([d.ExpTransform()], lengths=[1, 2])
    with pytest.raises(ValueError, match="expected transforms"):
        d.TransformedDistribution(d.Normal(0.0, 1.0), [3])  # type: ignore[list-item]
    with pytest.raises(pf.ShapeError, match="at least 1 axes"):
        d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform())
    with pytest.raises(TypeError, match="lower_bound"):
        d.constraints.interval(1.0)
    with pytest.raises(ValueError, match="a constraint"):
        d.constraints.independent(3, 1)  # type: ignore[arg-type]
