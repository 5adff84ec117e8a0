"""nn.utils: gradient clipping, parameters as one vector, sequences of different lengths, and parametrizations."""

from pyflame.nn.utils import fusion, parametrizations, parametrize, prune, rnn, stateless
from pyflame.nn.utils.building import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
    skip_init,
)
from pyflame.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from pyflame.nn.utils.spectral import remove_spectral_norm, spectral_norm
from pyflame.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from pyflame.nn.utils.weights import remove_weight_norm, weight_norm
from pyflame.tensor.clip import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "fusion",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]
