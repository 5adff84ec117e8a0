"""Products with encoded weights, and what NumPy says of them in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.encoding import encoding

Array = np.ndarray[Any, Any]


def random_layer(name: str, rows: int, out: int, dtype: pf.DType, blocks: int = 3) -> tuple[Array, Array, Array]:
    """x, the weight and a bias. Every other line is of any bytes: scales are tiny, huge, infinite and no numbers."""
    rng, kind = np.random.default_rng(len(name) + rows), encoding(name)
    width = blocks * kind.block
    data = kind.encode(rng.normal(size=(out, width)).astype(np.float32))
    data[::2] = rng.integers(0, 256, data[::2].shape, dtype=np.uint8)
    x, bias = (rng.normal(size=s).astype(np.float32).astype(dtype.numpy) for s in ((rows, width), out))
    return x, data, bias


def check_layer(got: Array, name: str, x: Array, data: Array, bias: Array | None = None) -> None:
    """Of lines with numbers that a float32 sum may not hold nothing is known but that they do not harm the others."""
    with np.errstate(all="ignore"):
        weight = encoding(name).decode(data).astype(x.dtype).astype(np.float64)
        wide = x.astype(np.float64)
        want, size = wide @ weight.T, np.abs(wide) @ np.abs(weight.T)
        want = want if bias is None else want + bias.astype(np.float64)
    fine = (size < {"float16": 6e4, "float64": 1e300}.get(x.dtype.name, 1e37)).all(0)
    assert fine[1::2].all()
    loose = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3}.get(x.dtype.name, 1e-2)
    assert got.shape == want.shape
    got, want, size = (v[:, fine].astype(np.float64) for v in (got, want, size))
    wrong = np.abs(got - want) / (np.abs(want) + 0.05 * size + 1e-4)
    assert wrong.max() <= loose, (name, float(wrong.max()))


def layer(name: str, x: Array, data: Array, bias: Array | None = None, device: str | None = None) -> pf.Tensor:
    given = [pf.tensor(v, device=device) for v in (x, data, bias) if v is not None]
    return pf.encoded_linear(*given, encoding=name, width=x.shape[-1])
