"""Learning-rate schedules, by PyTorch's names. They run on the host: call `step()` outside of a jitted function."""

from pyflame.optim.lr_scheduler.base import LambdaLR, LRScheduler, MultiplicativeLR
from pyflame.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from pyflame.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts, WarmupCosine
from pyflame.optim.lr_scheduler.cycle import CyclicLR, OneCycleLR
from pyflame.optim.lr_scheduler.decay import (
    ConstantLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from pyflame.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # PyTorch's older name, which programs still import

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "WarmupCosine",
]
