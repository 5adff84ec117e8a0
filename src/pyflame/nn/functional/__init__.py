"""nn.functional: PyTorch's functions by PyTorch's names. Most are ops of the catalogue."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from pyflame.core.errors import suggest as _suggest
from pyflame.nn.attention.multihead import multi_head_attention_forward
from pyflame.nn.functional.activations import (
    celu,
    gumbel_softmax,
    normalize,
    rrelu,
    rrelu_,
    softshrink,
    tanhshrink,
    threshold,
    threshold_,
)
from pyflame.nn.functional.ctc import ctc_loss
from pyflame.nn.functional.dropouts import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from pyflame.nn.functional.embeddings import embedding, embedding_bag
from pyflame.nn.functional.fractional import fractional_max_pool2d, fractional_max_pool3d
from pyflame.nn.functional.interpolation import interpolate, upsample, upsample_bilinear, upsample_nearest
from pyflame.nn.functional.losses import (
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    pairwise_distance,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from pyflame.nn.functional.norms import batch_norm, instance_norm
from pyflame.nn.functional.resizing import pixel_shuffle, pixel_unshuffle
from pyflame.nn.functional.sampling import affine_grid, grid_sample
from pyflame.nn.functional.torch_order import in_torch_order as _in_torch_order
from pyflame.nn.functional.torch_order import log_softmax, softmax, softmin
from pyflame.nn.functional.torch_order import weighted as _weighted
from pyflame.nn.functional.unpooling import max_unpool1d, max_unpool2d, max_unpool3d
from pyflame.nn.functional.windows import (
    bilinear,
    channel_shuffle,
    conv_tbc,
    local_response_norm,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
)
from pyflame.nn.ops import F as _F
from pyflame.tensor import Tensor
from pyflame.tensor import Tensor as _Tensor
from pyflame.tensor.arguments import publish as _publish
from pyflame.tensor.builtin import unbound as _unbound
from pyflame.tensor.counted import one_hot
from pyflame.tensor.dispatch import in_place as _in_place
from pyflame.tensor.torch_methods import hardshrink
from pyflame.tensor.torch_statistics import pdist


def _with_inplace(name: str) -> Callable[..., Tensor]:
    """An op that also takes PyTorch's `inplace`: the input itself takes the result, so that all who hold it see it."""
    op, writing = _F[name], _in_place(name, name + "_")
    have = inspect.signature(op)
    flag = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation="bool")
    at = len(have.parameters)

    @functools.wraps(op)
    def function(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > at + 1:
            return op(*args, **kwargs)  # which says that there are too many
        inplace = args[at] if len(args) > at else kwargs.pop("inplace", False)
        return (writing if inplace else op)(*args[:at], **kwargs)

    function.__signature__ = have.replace(parameters=[*have.parameters.values(), flag])  # type: ignore[attr-defined]
    return function


def _with_indices(op: Callable[..., Any]) -> Callable[..., Any]:
    """A pool that always gives the maxima and their positions, whatever `return_indices` says."""
    have = inspect.signature(op)

    @functools.wraps(op)
    def function(*args: Any, **kwargs: Any) -> Any:
        bound = have.bind(*args, **kwargs)
        bound.arguments["return_indices"] = True
        return op(*bound.args, **bound.kwargs)

    function.__name__ = function.__qualname__ = f"{op.__name__}_with_indices"
    function.__doc__ = f"The maxima of `{op.__name__}`, and their positions."
    return function


elu = _with_inplace("elu")
hardsigmoid = _with_inplace("hardsigmoid")
hardswish = _with_inplace("hardswish")
hardtanh = _with_inplace("hardtanh")
leaky_relu = _with_inplace("leaky_relu")
mish = _with_inplace("mish")
relu = _with_inplace("relu")
relu6 = _with_inplace("relu6")
selu = _with_inplace("selu")
silu = _with_inplace("silu")

gelu = _F["gelu"]
glu = _F["glu"]
logsigmoid = _F["logsigmoid"]
prelu = _F["prelu"]
sigmoid = _F["sigmoid"]
softplus = _F["softplus"]
softsign = _F["softsign"]
swiglu = _F["swiglu"]
tanh = _F["tanh"]

linear = _F["linear"]
linear_cross_entropy = _F["linear_cross_entropy"]
conv1d = _F["conv1d"]
conv2d = _F["conv2d"]
conv3d = _F["conv3d"]
conv_transpose1d = _F["conv_transpose1d"]
conv_transpose2d = _F["conv_transpose2d"]
conv_transpose3d = _F["conv_transpose3d"]
fold = _F["fold"]
pad = _F["pad"]
scaled_dot_product_attention = _F["scaled_dot_product_attention"]
unfold = _F["unfold2d"]

group_norm = _F["group_norm"]
layer_norm = _F["layer_norm"]
rms_norm = _F["rms_norm"]

adaptive_avg_pool1d = _F["adaptive_avg_pool1d"]
adaptive_avg_pool2d = _F["adaptive_avg_pool2d"]
adaptive_avg_pool3d = _F["adaptive_avg_pool3d"]
adaptive_max_pool1d = _F["adaptive_max_pool1d"]
adaptive_max_pool2d = _F["adaptive_max_pool2d"]
adaptive_max_pool3d = _F["adaptive_max_pool3d"]
avg_pool1d = _F["avg_pool1d"]
avg_pool2d = _F["avg_pool2d"]
avg_pool3d = _F["avg_pool3d"]
max_pool1d = _F["max_pool1d"]
max_pool2d = _F["max_pool2d"]
max_pool3d = _F["max_pool3d"]

adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_indices(fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(fractional_max_pool3d)
max_pool1d_with_indices = _with_indices(max_pool1d)
max_pool2d_with_indices = _with_indices(max_pool2d)
max_pool3d_with_indices = _with_indices(max_pool3d)
native_channel_shuffle = channel_shuffle

_REDUCED = "size_average reduce reduction"
binary_cross_entropy = _in_torch_order(_F["binary_cross_entropy"], f"input target weight {_REDUCED}")
binary_cross_entropy_with_logits = _in_torch_order(
    _F["binary_cross_entropy_with_logits"], f"input target weight {_REDUCED} pos_weight"
)
cosine_embedding_loss = _in_torch_order(cosine_embedding_loss, f"input1 input2 target margin {_REDUCED}")
cosine_similarity = _F["cosine_similarity"]
cross_entropy = _in_torch_order(
    _F["cross_entropy"], "input target weight size_average ignore_index reduce reduction label_smoothing"
)
hinge_embedding_loss = _in_torch_order(hinge_embedding_loss, f"input target margin {_REDUCED}")
huber_loss = _in_torch_order(_weighted(_F["huber_loss"], by_weights=False), "input target reduction delta weight")
kl_div = _in_torch_order(_F["kl_div"], f"input target {_REDUCED} log_target")
l1_loss = _in_torch_order(_weighted(_F["l1_loss"], by_weights=True), f"input target {_REDUCED} weight")
margin_ranking_loss = _in_torch_order(margin_ranking_loss, f"input1 input2 target margin {_REDUCED}")
mse_loss = _in_torch_order(_weighted(_F["mse_loss"], by_weights=True), f"input target {_REDUCED} weight")
multi_margin_loss = _in_torch_order(multi_margin_loss, f"input target p margin weight {_REDUCED}")
multilabel_margin_loss = _in_torch_order(multilabel_margin_loss, f"input target {_REDUCED}")
multilabel_soft_margin_loss = _in_torch_order(multilabel_soft_margin_loss, f"input target weight {_REDUCED}")
nll_loss = _in_torch_order(_F["nll_loss"], "input target weight size_average ignore_index reduce reduction")
poisson_nll_loss = _in_torch_order(poisson_nll_loss, "input target log_input full size_average eps reduce reduction")
smooth_l1_loss = _in_torch_order(_F["smooth_l1_loss"], f"input target {_REDUCED} beta")
soft_margin_loss = _in_torch_order(soft_margin_loss, f"input target {_REDUCED}")
triplet_margin_loss = _in_torch_order(triplet_margin_loss, f"anchor positive negative margin p eps swap {_REDUCED}")

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "native_channel_shuffle",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]


def __getattr__(name: str) -> Any:
    if name.endswith("_") and name[:-1] in __all__ and hasattr(_Tensor, name):
        return globals().setdefault(name, _unbound(getattr(_Tensor, name)))  # relu_(x), as x.relu_()
    raise AttributeError(f"module 'pyflame.nn.functional' has no attribute {name!r}{_suggest(name, __all__, 0.8)}")


_publish(__all__, globals(), __name__)
