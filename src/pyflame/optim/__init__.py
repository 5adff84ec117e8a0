"""Optimisers, learning-rate schedules, gradient clipping, loss scaling and weight averaging, with PyTorch's semantics.

All state lives in tensors that exist from construction, and one graph updates all parameters, so a step works inside
of a jitted function: forward, backward, clipping and update are one plan.
"""

from pyflame.optim import lr_scheduler
from pyflame.optim.adagrad import Adagrad
from pyflame.optim.adam import Adam, AdamW
from pyflame.optim.ema import WeightAverage
from pyflame.optim.group import ParamGroup
from pyflame.optim.lion import Lion
from pyflame.optim.optimizer import Optimizer
from pyflame.optim.rmsprop import RMSprop
from pyflame.optim.scaler import GradScaler
from pyflame.optim.sgd import SGD
from pyflame.tensor.clip import clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "GradScaler",
    "Lion",
    "Optimizer",
    "ParamGroup",
    "RMSprop",
    "WeightAverage",
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "lr_scheduler",
]
