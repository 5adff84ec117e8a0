"""Probability distributions, by torch.distributions' names.

Parameters are tensors or numbers that broadcast; what is computed from them is part of the graph and differentiable.
`rsample` draws samples that gradients flow through. Values are not checked unless `validate_args=True`, which evaluates
them.
"""

from pyflame.distributions.composed import Independent, TransformedDistribution
from pyflame.distributions.continuous import (
    Cauchy,
    Exponential,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from pyflame.distributions.counts import Binomial, Geometric, Multinomial, Poisson
from pyflame.distributions.discrete import Bernoulli, Categorical, OneHotCategorical, OneHotCategoricalStraightThrough
from pyflame.distributions.distribution import Distribution
from pyflame.distributions.gammas import Beta, Chi2, Dirichlet, Gamma, StudentT
from pyflame.distributions.kl import kl_divergence, register_kl
from pyflame.distributions.multivariate import MultivariateNormal
from pyflame.distributions.transforms import (
    AffineTransform,
    ExpTransform,
    SigmoidTransform,
    TanhTransform,
    Transform,
)

__all__ = [
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Poisson",
    "SigmoidTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "kl_divergence",
    "register_kl",
]
