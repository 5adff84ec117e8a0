"""Probability distributions, by torch.distributions' names.

Parameters are tensors or numbers that broadcast; what is computed from them is part of the graph and differentiable.
`rsample` draws samples that gradients flow through. Values are not checked unless `validate_args=True`, which evaluates
them.
"""

from pyflame.core.torch_paths import below
from pyflame.distributions import constraints, transforms, utils
from pyflame.distributions.composed import Independent, TransformedDistribution
from pyflame.distributions.constraint_registry import biject_to, transform_to
from pyflame.distributions.continuous import (
    Cauchy,
    Exponential,
    GeneralizedPareto,
    Gumbel,
    Laplace,
    Normal,
    Uniform,
    VonMises,
)
from pyflame.distributions.counts import Binomial, Geometric, Multinomial, NegativeBinomial, Poisson
from pyflame.distributions.discrete import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from pyflame.distributions.distribution import Distribution, ExponentialFamily
from pyflame.distributions.gammas import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, StudentT
from pyflame.distributions.kl import kl_divergence, register_kl
from pyflame.distributions.mixture import MixtureSameFamily
from pyflame.distributions.multivariate import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    _precision_to_scale_tril,  # noqa: F401  what libraries name
)
from pyflame.distributions.transformed import (
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    Weibull,
)
from pyflame.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from pyflame.distributions.wishart import LKJCholesky, Wishart

__getattr__ = below("distributions")

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
    "utils",
]
