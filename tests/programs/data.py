"""The numbers of a program's inputs, and tensors that hold them under several layouts."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import pyflame as pf
from tests.programs.program import FLOATS, Input

Array = np.ndarray[Any, Any]
# `!` says that the tensor is evaluated before the program starts.
LAYOUTS = (
    "plain",
    "transposed",
    "strided",
    "offset",
    "flipped",
    "pending",
    "transposed!",
    "strided!",
    "offset!",
    "pending!",
)


def numbers(given: Input, call: int) -> Array:
    """What an input holds in one call."""
    rng = np.random.default_rng([given.seed, call])
    if given.kind.startswith("index:"):
        out = rng.integers(0, max(1, int(given.kind[6:])), given.shape)
    elif given.kind == "bool":
        out = rng.random(given.shape) < 0.6
    elif given.kind == "int":
        out = rng.integers(0 if given.dtype.startswith("u") else -4, 6, given.shape)
    else:
        out = np.clip(rng.standard_normal(given.shape), -3, 3)
        out = np.abs(out) + 0.5 if given.kind == "positive" else out
        out = (np.tanh(out) + 1) * 0.45 + 0.05 if given.kind == "unit" else out
    return np.asarray(out).astype(pf.as_dtype(given.dtype).numpy)


def weights(number: int, shape: tuple[int, ...], seed: int) -> Array:
    """What an output is multiplied with before gradients are taken."""
    return np.asarray(np.clip(np.random.default_rng([seed, 77, number]).standard_normal(shape), -2, 2))


def laid_out(array: Array, layout: str) -> pf.Tensor:
    """A tensor of these numbers whose memory lies otherwise, or that is yet to be computed."""
    kind = layout.rstrip("!")
    if kind == "transposed" and array.ndim > 1:
        order = tuple(reversed(range(array.ndim)))
        out = pf.tensor(np.ascontiguousarray(array.transpose(order))).permute(order)
    elif kind == "strided" and array.ndim:
        out = pf.tensor(np.stack([array, array[..., ::-1]], -1).reshape(*array.shape[:-1], 2 * array.shape[-1]))[
            ..., ::2
        ]
    elif kind == "offset" and array.ndim:
        out = pf.tensor(np.concatenate([array, array[::-1], array]))[len(array) : 2 * len(array)].flip(0)
    elif kind == "flipped" and array.ndim:
        out = pf.tensor(np.ascontiguousarray(array[..., ::-1])).flip(-1)
    elif kind == "pending" and array.dtype != np.bool_ and prod(array.shape):
        out = pf.tensor((array * 0.5).astype(array.dtype)) * 2 if array.dtype.name in FLOATS else pf.tensor(array) + 0
    else:
        out = pf.tensor(array)
    if layout.endswith("!"):
        pf.eval(out)
    return out
