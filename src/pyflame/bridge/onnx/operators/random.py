"""Random numbers: from our own streams, so `pf.manual_seed` governs them and not the node's `seed`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.bridge.onnx.values import numpy_dtype
from pyflame.core.dtype import DType, as_dtype, bool_, float32
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import ones
from pyflame.tensor.random import multinomial as draw_classes
from pyflame.tensor.random import rand, randn


def _dtype(call: Call, default: DType) -> DType:
    code = call.get("dtype")
    return default if code is None else as_dtype(numpy_dtype(code))


def _normal(call: Call, shape: Any, dtype: DType) -> Tensor:
    return F["add"](randn(*shape) * call.get("scale", 1.0), call.get("mean", 0.0)).to(dtype)


def _uniform(call: Call, shape: Any, dtype: DType) -> Tensor:
    low, high = call.get("low", 0.0), call.get("high", 1.0)
    return F["add"](rand(*shape) * (high - low), low).to(dtype)


@operator("RandomNormal", folds=False)
def random_normal(call: Call) -> Tensor:
    return _normal(call, call.get("shape"), _dtype(call, float32))


@operator("RandomNormalLike", folds=False)
def random_normal_like(call: Call, x: Tensor) -> Tensor:
    return _normal(call, x.shape, _dtype(call, x.dtype))


@operator("RandomUniform", folds=False)
def random_uniform(call: Call) -> Tensor:
    return _uniform(call, call.get("shape"), _dtype(call, float32))


@operator("RandomUniformLike", folds=False)
def random_uniform_like(call: Call, x: Tensor) -> Tensor:
    return _uniform(call, x.shape, _dtype(call, x.dtype))


@operator("Bernoulli", folds=False)
def bernoulli(call: Call, p: Tensor) -> Tensor:
    return (rand(*p.shape) < p).to(_dtype(call, p.dtype))


@operator("Multinomial", folds=False)
def multinomial(call: Call, logits: Tensor) -> Tensor:
    code = call.get("dtype", 6)
    return draw_classes(F["exp"](logits), call.get("sample_size", 1), True).to(as_dtype(numpy_dtype(code)))


@operator("Dropout", host=[1, 2], folds=False)
def dropout(call: Call, x: Tensor, ratio: Array | None = None, training: Array | None = None) -> tuple[Tensor, Tensor]:
    p = 0.5 if ratio is None else float(np.asarray(ratio).reshape(-1)[0])
    if training is None or not bool(np.asarray(training).reshape(-1)[0]) or p == 0:
        return x, ones(*x.shape, dtype=bool_)
    kept = rand(*x.shape) >= p
    return F["where"](kept, x / (1 - p), 0.0).to(x.dtype), kept
