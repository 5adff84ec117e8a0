"""Optimisers, learning-rate schedules, gradient clipping, loss scaling and weight averaging, with PyTorch's semantics.

All state lives in tensors that exist from construction, and one graph updates all parameters, so a step works inside
of a jitted function: forward, backward, clipping and update are one plan.
"""

from pyflame.optim import lr_scheduler, swa_utils
from pyflame.optim.adadelta import Adadelta
from pyflame.optim.adafactor import Adafactor
from pyflame.optim.adagrad import Adagrad
from pyflame.optim.adam import Adam, AdamW
from pyflame.optim.adamax import Adamax
from pyflame.optim.asgd import ASGD
from pyflame.optim.ema import WeightAverage
from pyflame.optim.group import ParamGroup
from pyflame.optim.lbfgs import LBFGS
from pyflame.optim.lion import Lion
from pyflame.optim.muon import Muon
from pyflame.optim.nadam import NAdam
from pyflame.optim.optimizer import Optimizer
from pyflame.optim.radam import RAdam
from pyflame.optim.rmsprop import RMSprop
from pyflame.optim.rprop import Rprop
from pyflame.optim.scaler import GradScaler
from pyflame.optim.sgd import SGD
from pyflame.optim.sparse_adam import SparseAdam
from pyflame.tensor.clip import clip_grad_norm_, clip_grad_value_, get_total_norm

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "GradScaler",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "ParamGroup",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "WeightAverage",
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "lr_scheduler",
    "swa_utils",
]
