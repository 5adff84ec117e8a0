"""nn.utils: gradient clipping, parameters as one vector, sequences of different lengths, and parametrizations."""

from pyflame.nn.utils import fusion, parametrizations, parametrize, prune, rnn
from pyflame.nn.utils.spectral import remove_spectral_norm, spectral_norm
from pyflame.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from pyflame.nn.utils.weights import remove_weight_norm, weight_norm
from pyflame.tensor.clip import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fusion",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
